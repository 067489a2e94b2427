/** A message as a letter holds it: where it came from, what of it may be edited, and where it goes when it is sent back. */

import type { Job, JobSummary, MessageOrigin } from "../api/types";
import { type Exact, type ExactObject, isObject, own } from "./exact";
import { stepsOf } from "./secrets";

/** Where a message is sent back to: to its group alone, or to everybody who reads its topic. */
export type To = "retry" | "topic";

const PARTS = ["key", "value", "headers"] as const;

/** Where the message of a letter came from; null where the letter is a job. */
export function messageOf(letter: Pick<JobSummary, "origin">): MessageOrigin | null {
  return letter.origin.kind === "message" ? letter.origin : null;
}

/** A message in one word, as health checks and logs have it: "orders/3/1042", "orders/1700000000000-0". */
export function placeOf(origin: MessageOrigin): string {
  const isEntry = origin.offset.includes("-");
  return isEntry ? `${origin.topic}/${origin.offset}` : `${origin.topic}/${origin.partition}/${origin.offset}`;
}

/** The topic that a message goes to. */
export function targetOf(origin: MessageOrigin, to: To): string {
  return to === "topic" ? origin.topic : `${origin.topic}.${origin.group}.retry.0`;
}

/** What people see and edit of a payload; the rest of it is the library's own. */
export function partsOf(payload: Exact): ExactObject {
  const found = isObject(payload) ? payload : {};
  return { key: own(found, "key") ?? null, value: own(found, "value") ?? null, headers: own(found, "headers") ?? [] };
}

/** The hidden values that are in these parts. */
export function hiddenParts(redacted: readonly string[]): readonly string[] {
  return redacted.filter((pointer) => PARTS.some((name) => name === stepsOf(pointer)[0]));
}

/** The payload with other parts, to be sent there. */
export function payloadWith(payload: ExactObject, parts: ExactObject, to: To): ExactObject {
  return { ...payload, ...parts, to };
}

/** What an edit may have changed, to be compared. */
export function editable(payload: Exact): ExactObject {
  return { ...partsOf(payload), to: toOf(payload) };
}

/** Where a payload would go as it is stored. */
export function toOf(payload: Exact): To {
  return isObject(payload) && own(payload, "to") === "topic" ? "topic" : "retry";
}

/** Whether the server had deleted it before anybody read it: without a value there is nothing to send. */
export function isGone(payload: Exact): boolean {
  return isObject(payload) && own(payload, "is_gone") === true && partsOf(payload)["value"] === null;
}

const TEXT_OR_NULL: Exact = { anyOf: [{ type: "string" }, { type: "null" }] };

/** What the form needs to know: texts are typed as they are, all else as JSON. */
export function schemaOf(parts: ExactObject): ExactObject {
  const { key, value } = parts;
  return {
    properties: {
      key: typeof key === "string" || key === null ? TEXT_OR_NULL : {},
      value: typeof value === "string" ? TEXT_OR_NULL : {},
      headers: { type: "array" },
    },
    required: [...PARTS],
    additionalProperties: false,
  };
}

/** What is wrong with edited parts, by name: a worker could not make a message of them. */
export function misfitsIn(parts: ExactObject): Map<string, string> {
  const found = new Map<string, string>();
  for (const name of Object.keys(parts)) {
    if (!PARTS.some((known) => known === name)) found.set(name, "a message has a key, a value and headers, and no more");
  }
  for (const name of PARTS) if (own(parts, name) === undefined) found.set(name, "it is required; null is none");
  const key = own(parts, "key");
  if (key !== undefined && key !== null && !isBytes(key)) found.set("key", `a text, null or ${BASE64} is expected`);
  const headers = own(parts, "headers");
  if (headers !== undefined && !(Array.isArray(headers) && headers.every(isHeader))) {
    found.set("headers", `a list of pairs is expected: [["name", "value"], …]; a value may be null or ${BASE64}`);
  }
  return found;
}

const BASE64 = '{"base64": "…"}';

function isBytes(value: Exact): boolean {
  if (typeof value === "string") return true;
  return isObject(value) && Object.keys(value).length === 1 && typeof own(value, "base64") === "string";
}

function isHeader(value: Exact): boolean {
  if (!Array.isArray(value) || value.length !== 2) return false;
  const [name, text] = value;
  return name !== undefined && isBytes(name) && text !== undefined && (text === null || isBytes(text));
}

/** The topic that a letter was sent to and is not finished in yet; "" where it is nowhere. */
export function sentTo(job: Pick<Job, "state" | "reason" | "origin">): string {
  if (job.state !== "waiting" || messageOf(job) === null) return "";
  return /^sent to (\S.*)$/s.exec(job.reason)?.[1] ?? "";
}

/** A stream that letters are of, and where one of its messages came from. */
export interface MessagesOf {
  readonly task: string;
  readonly origin: MessageOrigin;
}

/** Which of some letters are messages: some, all, and `only` where all are of one stream. */
export function messagesOf(sample: readonly { readonly job: Pick<JobSummary, "task" | "origin"> }[]) {
  const found = sample.flatMap(({ job }) => {
    const origin = messageOf(job);
    return origin ? [{ task: job.task, origin }] : [];
  });
  const [first] = found;
  const areAll = first !== undefined && found.length === sample.length;
  const only: MessagesOf | null = areAll && found.every((one) => one.task === first.task) ? first : null;
  return { areSome: first !== undefined, areAll, only };
}
