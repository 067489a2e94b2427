/** Who is signed in, and what they may do. The server enforces all of it; the page only hides what would be refused. */
import { computed, signal } from "@preact/signals";
import { ApiProblem, api, problemListeners, problemOf } from "../api/client";
import type { Session } from "../api/types";

export type Standing =
  | { readonly is: "asking" }
  | { readonly is: "in"; readonly session: Session }
  | { readonly is: "out"; readonly hasEnded: boolean }
  | { readonly is: "unreachable"; readonly problem: ApiProblem };

export const standing = signal<Standing>({ is: "asking" });
export const session = computed(() => (standing.value.is === "in" ? standing.value.session : null));

/** May change things: operator or admin, and the server is not read-only. */
export const canOperate = computed(() => {
  const who = session.value;
  return who !== null && !who.is_read_only && who.role !== "viewer";
});

/** May do what only admins may: purge, and read the audit log. */
export const isAdmin = computed(() => session.value?.role === "admin");
export const canPurge = computed(() => isAdmin.value && !session.value?.is_read_only);

/** Sees one tenant alone: the pages about the whole fleet are not theirs. */
export const isTenant = computed(() => session.value !== null && session.value.tenant !== null);

problemListeners.add((problem) => {
  if (problem.status === 401 && standing.value.is === "in") standing.value = { is: "out", hasEnded: true };
});

/** A role of null is nobody: somebody has to sign in first. */
function standingOf(found: Session, hasEnded: boolean): Standing {
  return found.role === null ? { is: "out", hasEnded } : { is: "in", session: found };
}

/** Asks the server who this is. */
export async function whoAmI(): Promise<void> {
  try {
    standing.value = standingOf(await api.get("/session"), false);
  } catch (error) {
    const problem = problemOf(error);
    standing.value = problem.status === 401 ? { is: "out", hasEnded: false } : { is: "unreachable", problem };
  }
}

/** Asks whether this still is somebody, for pages that ask the server for nothing else. */
export async function askAgain(signal: AbortSignal): Promise<void> {
  const now = standingOf(await api.get("/session", { signal }), true);
  if (now.is === "out" && standing.value.is === "in") standing.value = now;
}

/** Signs in with a token; rejects with ApiProblem. */
export async function signIn(token: string): Promise<void> {
  standing.value = standingOf(await api.post("/session", { body: { token } }), false);
}

export async function signOut(): Promise<void> {
  await api.delete("/session");
  standing.value = { is: "out", hasEnded: false };
}
