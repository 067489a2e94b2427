/** One letter with its arguments to the last digit, and what can be done with it. */

import { apiText } from "../api/client";
import type { Changed, Job } from "../api/types";
import { type Exact, type ExactObject, exactText, isObject, own, parseExact } from "./exact";

/** A letter; `job` is what the page shows, the others are what may be edited and sent back. */
export interface Letter {
  readonly job: Job;
  readonly arguments: Exact;
  readonly original: Exact;
  readonly schema: Exact;
}

/** A letter out of the server's JSON text. */
export function letterFrom(text: string): Letter {
  const exact = parseExact(text);
  const whole = isObject(exact) ? exact : {};
  return {
    job: JSON.parse(text) as Job,
    arguments: own(whole, "arguments") ?? null,
    original: own(whole, "original_arguments") ?? null,
    schema: own(whole, "arguments_schema") ?? null,
  };
}

/** Load a letter. One that was sent back is still found: as the job that it is. */
export async function loadLetter(id: string, signal: AbortSignal): Promise<Letter> {
  return letterFrom(await apiText.get("/jobs/{id}", { path: { id }, signal }));
}

/** What became of a check of arguments by the server. */
export type Check =
  | { readonly is: "fine" }
  | { readonly is: "wrong"; readonly errors: readonly { readonly where: string; readonly message: string }[] };

/** Ask the server whether the arguments fit the task. */
export async function checkArguments(task: string, values: ExactObject): Promise<Check> {
  const text = exactText({ arguments: values });
  const answer = JSON.parse(await apiText.post("/tasks/{name}/validate", { path: { name: task }, text })) as {
    is_valid: boolean;
    errors: { where: string; message: string }[];
  };
  return answer.is_valid ? { is: "fine" } : { is: "wrong", errors: answer.errors };
}

/** Send a letter back to the queue, with other arguments where they are given. */
export async function retryLetter(id: string, values: ExactObject | null): Promise<Changed> {
  const text = values === null ? "{}" : exactText({ arguments: values });
  return JSON.parse(await apiText.post("/dead-letters/{id}/retry", { path: { id }, text })) as Changed;
}
