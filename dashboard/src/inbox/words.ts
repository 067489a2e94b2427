/** What the server's short names mean, for somebody who was woken up by them. */

import type { Attempt, Job, Replay } from "../api/types";

const REASONS: Readonly<Record<string, string>> = {
  "not retriable": "Its failure is of a kind that another attempt does not mend, so it was not tried again.",
  "retries used up": "Every attempt that its policy allows has failed.",
  "total time over": "Another attempt would have gone beyond the total time that its policy allows.",
  "retry budget empty": "Too many retries were under way for too few successes, so no more were allowed.",
  "breaker open": "The circuit breaker of its task was open, and its policy says not to wait.",
  "the retry strategy itself failed": "The function that picks the delay raised an error itself.",
  "still running after its time limit": "It went on running after its time limit; what it did since is not known.",
  "unknown task": "No worker knew its task. Was it renamed, or is a deploy missing?",
};

/** Why a letter was given up, in a sentence; the server's own words where they are not known here. */
export function reasonInWords(reason: string): string {
  return (
    REASONS[reason] ??
    (reason ? `${reason[0]?.toUpperCase()}${reason.slice(1)}${/[.!?]$/.test(reason) ? "" : "."}` : "")
  );
}

const FAILURES: Readonly<Record<string, string>> = {
  transient: "A passing fault, here or on the other side: replay, another attempt usually helps.",
  rate_limited: "The other side asked us to slow down: replay with a rate.",
  network: "The other side could not be reached: replay when it is back.",
  system: "An error of the machine, or one that nobody recognised: read the traceback, fix the cause, then replay.",
  permanent: "A bug, or a final no from the other side: fix it, then replay.",
  validation: "Something in the data is wrong: edit it, or fix the code that judges it, then replay.",
  authentication: "Credentials or permissions were refused: fix these, then replay.",
  structural: "What came back has another shape than the code expects: deploy code that knows it, then replay.",
};

/** What a failure type asks of the operator, in a sentence. */
export function failureInWords(type: string | null): string {
  return type === null ? "" : (FAILURES[type] ?? "");
}

const OUTCOMES: Readonly<Record<string, string>> = {
  complete: "completed",
  retry: "failed, tried again",
  park: "put off",
  release: "given back",
  bury: "given up",
  fail: "failed for good",
  discard: "discarded by the task",
  cancel: "cancelled",
};

/** How an attempt ended. */
export function outcomeInWords(attempt: Pick<Attempt, "outcome">): string {
  return OUTCOMES[attempt.outcome] ?? attempt.outcome;
}

/** The colour family of an attempt's outcome. */
export function outcomeTone(attempt: Pick<Attempt, "outcome" | "failure_type">): "good" | "warn" | "bad" | "muted" {
  if (attempt.outcome === "complete") return "good";
  if (attempt.outcome === "bury" || attempt.outcome === "fail") return "bad";
  return attempt.failure_type === null ? "muted" : "warn";
}

/** How a replay stands, in a sentence. */
export function replayInWords(replay: Replay): string {
  const left = Math.max(replay.total - replay.sent, 0);
  switch (replay.state) {
    case "running":
      if (replay.verdict === "waiting") {
        return `Waiting for ${several(Math.min(replay.canary, replay.total), "canary", "canaries")} to complete before the rest goes.`;
      }
      return replay.verdict === "passed"
        ? "The canaries completed; the rest is on its way."
        : "Letters are on their way to the queue.";
    case "paused":
      return `${begun("Paused", replay.reason)} ${several(left, "letter waits", "letters wait")} for it to go on.`;
    case "stopped":
      return stoppedInWords(replay, left);
    case "done":
      return left > 0
        ? `Done. ${several(left, "letter was", "letters were")} retried, removed or changed by somebody else first.`
        : replay.total === 0
          ? "Done. There was no letter to send back."
          : "Done. Every letter went back to the queue.";
  }
}

function stoppedInWords(replay: Replay, left: number): string {
  const rest = `${several(left, "letter stays", "letters stay")} in the inbox.`;
  if (replay.verdict === "failed") {
    const why = replay.reason ? replay.reason[0]?.toUpperCase() + replay.reason.slice(1) : "A canary failed";
    return `Stopped by itself, as the cause is not mended: ${why.replace(/[.\s]+$/, "")}. ${rest}`;
  }
  return `${begun("Stopped", replay.reason)} ${rest}`;
}

/** "Paused by ann.": the reason says it once more, or says something else. */
function begun(word: string, reason: string): string {
  const text = reason.toLowerCase().startsWith(`${word.toLowerCase()} by `)
    ? word + reason.slice(word.length)
    : reason && `${word}: ${reason}`;
  return `${(text || word).replace(/[.\s]+$/, "")}.`;
}

/** Whether it can still change. */
export function isUnderWay(replay: Pick<Replay, "state">): boolean {
  return replay.state === "running" || replay.state === "paused";
}

/** "1 letter", "1,204 letters". */
export function several(count: number, one: string, many: string): string {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

/** The cause of a group or letter in one line; a name without a message stands alone. */
export function causeOf(one: Pick<Job, "error_name" | "message" | "reason">): string {
  if (one.error_name === "") return one.message || reasonInWords(one.reason) || "No error was recorded";
  return one.message ? `${one.error_name}: ${one.message}` : one.error_name;
}

/** The class of an error without its module, and the module. */
export function splitName(name: string): { readonly module: string; readonly short: string } {
  const cut = name.lastIndexOf(".");
  return cut < 0 ? { module: "", short: name } : { module: name.slice(0, cut + 1), short: name.slice(cut + 1) };
}
