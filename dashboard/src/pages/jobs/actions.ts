/** What can be done to jobs, one or many. */
import { api } from "../../api/client";
import type { Changed, JobState } from "../../api/types";
import { confirmed } from "../../ui/Dialog";
import { plural } from "../../ui/format";
import { done } from "../../ui/Toast";

const OPEN: ReadonlySet<JobState> = new Set(["queued", "running", "retrying", "waiting"]);

/** Whether there is something left to cancel. */
export function canCancel(state: JobState): boolean {
  return OPEN.has(state);
}

/** Only dead letters go back to the queue. */
export function canRetry(state: JobState): boolean {
  return state === "dead_letter";
}

/** The most that the server takes in one request. */
export const MOST = 1000;

/** In one sentence: what became of a bulk request. */
export function outcome(changed: readonly Changed[], verb: string, otherwise: string): string {
  const many = changed.filter((each) => each.is_done).length;
  const rest = changed.length - many;
  return `${plural(many, "job")} ${verb}${rest > 0 ? `; ${rest} ${otherwise}` : ""}`;
}

/** Asks, then cancels; true when it was done. */
export async function cancelJobs(ids: readonly string[]): Promise<boolean> {
  const text =
    "Jobs that have not begun will not run. Those that run are told to stop within seconds; what they did so far stays done.";
  const action = ids.length === 1 ? "Cancel the job" : `Cancel ${plural(ids.length, "job")}`;
  if (!(await confirmed({ title: `${action}?`, text, action, isDanger: true }))) return false;
  const answer = await api.post("/jobs/cancel", { body: { ids: [...ids] } });
  done(outcome(answer.items, "cancelled", "had ended already"));
  return true;
}

/** Asks, then sends dead letters back to the queue; true when it was done. */
export async function retryJobs(ids: readonly string[]): Promise<boolean> {
  const text =
    "Dead letters go back to their queue with new attempts, and keep their id and arguments. Others stay as they are.";
  const action = ids.length === 1 ? "Retry the job" : `Retry ${plural(ids.length, "job")}`;
  if (!(await confirmed({ title: `${action}?`, text, action }))) return false;
  const answer = await api.post("/jobs/retry", { body: { ids: [...ids] } });
  done(outcome(answer.items, "sent back to the queue", ids.length === 1 ? "is no dead letter" : "are no dead letters"));
  return true;
}
