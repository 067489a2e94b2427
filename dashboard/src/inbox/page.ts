/** A page of a crawl as a letter holds it: which page it is, and what of it may be edited. */

import type { JobSummary, PageOrigin } from "../api/types";
import { type Exact, type ExactObject, isObject, own } from "./exact";
import { stepsOf } from "./secrets";

const PART = "data";

/** Which page a letter is; null where it is something else. */
export function pageOf(letter: Pick<JobSummary, "origin">): PageOrigin | null {
  return letter.origin.kind === "page" ? letter.origin : null;
}

/** What people see and edit of a payload: what the page's link was given along. Which page it is stays. */
export function dataIn(payload: Exact): ExactObject {
  return { [PART]: isObject(payload) ? (own(payload, PART) ?? {}) : {} };
}

/** The hidden values that are in the data. */
export function hiddenData(redacted: readonly string[]): readonly string[] {
  return redacted.filter((pointer) => stepsOf(pointer)[0] === PART);
}

/** What the form needs to know. */
export const DATA_SCHEMA: ExactObject = {
  properties: { [PART]: { type: "object" } },
  required: [PART],
  additionalProperties: false,
};

/** What is wrong with edited data, by name: no handler could be given them. */
export function misfitsInData(values: ExactObject): Map<string, string> {
  const found = new Map<string, string>();
  for (const name of Object.keys(values)) if (name !== PART) found.set(name, "only the data of a page can be edited");
  const data = own(values, PART);
  if (data === undefined || !isObject(data)) found.set(PART, "an object is expected: { … }");
  return found;
}
