/** What can be done to several letters at once, after a question, with a word on what became of them. */
import { api, problemOf } from "../api/client";
import { confirmed, done } from "../ui";
import { several } from "./words";

/** Removals that are under way at once. */
const AT_ONCE = 4;

/** Send letters back to the queue as they are, and say what became of them; false when it was not wanted after all. */
export async function retry(ids: readonly string[]): Promise<boolean> {
  const isSure =
    ids.length === 1 ||
    (await confirmed({
      title: `Retry ${several(ids.length, "letter", "letters")}?`,
      text: "They go back to the queue at once, with new attempts and the arguments they have. A replay sends a few first and stops when these fail again.",
      action: `Retry ${several(ids.length, "letter", "letters")}`,
    }));
  if (!isSure) return false;
  const { items } = await api.post("/jobs/retry", { body: { ids: [...ids] } });
  const sent = items.filter((one) => one.is_done).length;
  const rest = ids.length - sent;
  done(
    `${several(sent, "letter", "letters")} sent back${rest > 0 ? `; ${several(rest, "was", "were")} no dead letter any more` : ""}`,
  );
  return true;
}

/** Delete letters for good, after a question. One that somebody else sent back in the meantime stays. */
export async function remove(ids: readonly string[]): Promise<boolean> {
  const isSure = await confirmed({
    title: `Remove ${several(ids.length, "letter", "letters")}?`,
    text: "They are deleted for good, with their arguments and every attempt. Nobody can send them back after that.",
    action: `Remove ${several(ids.length, "letter", "letters")}`,
    isDanger: true,
  });
  if (!isSure) return false;
  const waiting = [...ids];
  let removed = 0;
  let refused = 0;
  const work = async () => {
    for (let id = waiting.pop(); id !== undefined; id = waiting.pop()) {
      try {
        const answer = await api.delete("/dead-letters/{id}", { path: { id } });
        removed += answer.removed;
      } catch (error) {
        const { status } = problemOf(error);
        if (status !== 404 && status !== 409) throw error;
        refused += 1;
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_ONCE }, work));
  } finally {
    waiting.length = 0;
    if (removed > 0 || refused > 0) {
      done(
        `${several(removed, "letter", "letters")} removed${refused > 0 ? `; ${several(refused, "was", "were")} no dead letter any more` : ""}`,
      );
    }
  }
  return true;
}
