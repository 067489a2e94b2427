/** Elements of a ring as a letter holds them: where they were given up, and what of them may be edited. */

import type { JobSummary, RingOrigin } from "../api/types";
import { type Exact, type ExactObject, isObject, own } from "./exact";
import { stepsOf } from "./secrets";

const PART = "elements";

/** Where the elements of a letter were given up; null where the letter is something else. */
export function ringOf(letter: Pick<JobSummary, "origin">): RingOrigin | null {
  return letter.origin.kind === "ring" ? letter.origin : null;
}

/** Some elements in one line: "prices/enrich, batch 12, offset 4100". */
export function spotOf(origin: RingOrigin): string {
  const offset = origin.offset === null ? "" : `, offset ${origin.offset}`;
  return `${origin.ring}/${origin.consumer}, batch ${origin.batch}${offset}`;
}

/** What people see and edit of a payload: where the elements came from is the library's own. */
export function elementsIn(payload: Exact): ExactObject {
  return { [PART]: isObject(payload) ? (own(payload, PART) ?? []) : [] };
}

/** The hidden values that are in the elements. */
export function hiddenElements(redacted: readonly string[]): readonly string[] {
  return redacted.filter((pointer) => stepsOf(pointer)[0] === PART);
}

/** What the form needs to know. */
export const ELEMENTS_SCHEMA: ExactObject = {
  properties: { [PART]: { type: "array" } },
  required: [PART],
  additionalProperties: false,
};

/** What is wrong with edited elements, by name: a consumer could not be called with them. */
export function misfitsInElements(values: ExactObject): Map<string, string> {
  const found = new Map<string, string>();
  for (const name of Object.keys(values)) if (name !== PART) found.set(name, "a letter of a ring has elements, and no more");
  const elements = own(values, PART);
  if (!Array.isArray(elements) || elements.length === 0) found.set(PART, "a list with at least one element is expected");
  return found;
}
