/**
 * A task's arguments as a form, made from their JSON schema.
 *
 * An argument that nobody touched keeps its stored value to the last digit, whether the schema likes it or not: what is
 * wrong with it is said next to it, and never mended in silence.
 */

import type { FieldProblem } from "../api/types";
import {
  type Exact,
  type ExactObject,
  exactText,
  isObject,
  isSame,
  NotJson,
  numberOf,
  own,
  parseExact,
  put,
} from "./exact";
import { hiddenIn, isHidden, misplacedIn, pointerOf, stepsOf } from "./secrets";
import { type Kind, listAt, objectAt, shapeOf } from "./shape";

/** What an argument is: typed in, null, left out, or the stored value that is not shown. */
export type Mode = "value" | "null" | "absent" | "stored";

/** One argument. */
export interface Field {
  readonly name: string;
  readonly kind: Kind;
  readonly modes: readonly Mode[];
  readonly isRequired: boolean;
  readonly isKnown: boolean;
  readonly choices: readonly Exact[];
  /** In words, for the label: "integer or null, at least 1". */
  readonly type: string;
  readonly standard: Exact | undefined;
  readonly stored: Exact | undefined;
  readonly hasHidden: boolean;
}

/** What stands in a field now. */
export interface Entry {
  readonly mode: Mode;
  readonly text: string;
  readonly isTouched: boolean;
}

/** Every argument of the task, then those of the letter that the task does not know. */
export function fieldsOf(schema: Exact, stored: ExactObject, redacted: readonly string[]): Field[] {
  const root = isObject(schema) ? schema : {};
  const properties = objectAt(root, "properties");
  const required = listAt(root, "required");
  const isOpen = own(root, "additionalProperties") !== false && Object.keys(properties).length === 0;
  const names = [
    ...Object.keys(properties),
    ...Object.keys(stored).filter((name) => own(properties, name) === undefined),
  ];
  return names.map((name) => {
    const isKnown = own(properties, name) !== undefined;
    const shape = shapeOf(own(properties, name) ?? {}, root);
    const value = own(stored, name);
    const isStored = isHidden(value) && redacted.includes(pointerOf([name]));
    const isRequired = required.includes(name);
    const modes: Mode[] = [...(isStored ? (["stored"] as const) : []), "value"];
    if (shape.isNullable || value === null) modes.push("null");
    if (!isRequired || value === undefined) modes.push("absent");
    return {
      name,
      kind: shape.kind,
      modes,
      isRequired,
      isKnown: isKnown || isOpen,
      choices: shape.choices,
      type: shape.words,
      standard: shape.standard,
      stored: value,
      hasHidden: value !== undefined && hiddenIn(value).length > 0,
    };
  });
}

/** How a field begins: as it is stored. */
export function entryOf(field: Field): Entry {
  const { stored } = field;
  if (field.modes.includes("stored")) return { mode: "stored", text: "", isTouched: false };
  if (stored === undefined) return { mode: "absent", text: emptyText(field), isTouched: false };
  if (stored === null && field.kind !== "json") return { mode: "null", text: emptyText(field), isTouched: false };
  return { mode: "value", text: textOf(field, stored), isTouched: false };
}

/** What a field's input shows for a value. */
export function textOf(field: Field, value: Exact): string {
  if (field.kind === "json" || field.kind === "choice") return exactText(value, field.kind === "json" ? 2 : 0);
  return typeof value === "string" ? value : exactText(value);
}

/** A remark on a stored value that the input cannot show as what it is: a text where a number is due, say. */
export function mismatchOf(field: Field): string {
  const { kind, stored } = field;
  if (stored === undefined || stored === null || field.modes.includes("stored")) return "";
  const type = typeOf(stored);
  const isFitting =
    kind === "json" ||
    (kind === "text" && type === "text") ||
    (kind === "boolean" && type === "boolean") ||
    (kind === "choice" && field.choices.some((choice) => isSame(choice, stored))) ||
    ((kind === "integer" || kind === "number") && type === "number");
  return isFitting ? "" : `stored as ${type}: ${exactText(stored)}`;
}

/** The arguments that a form stands for, or what is wrong with which field. */
export interface Reading {
  readonly arguments: ExactObject;
  readonly errors: ReadonlyMap<string, string>;
}

/** Read every field. Errors are those that can be seen without asking the server. */
export function readForm(fields: readonly Field[], entries: ReadonlyMap<string, Entry>, stored: ExactObject): Reading {
  const values: ExactObject = {};
  const errors = new Map<string, string>();
  for (const field of fields) {
    const entry = entries.get(field.name) ?? entryOf(field);
    try {
      const value = valueOf(field, entry);
      if (value !== undefined) put(values, field.name, value);
      else if (field.isRequired) errors.set(field.name, "it is required");
    } catch (error) {
      if (!(error instanceof NotJson)) throw error;
      errors.set(field.name, error.message);
    }
  }
  for (const { pointer, message } of misplacedIn(values, stored)) {
    const name = stepsOf(pointer)[0] ?? "";
    if (!errors.has(name)) errors.set(name, message);
  }
  return { arguments: values, errors };
}

function valueOf(field: Field, entry: Entry): Exact | undefined {
  if (entry.mode === "stored") return field.stored;
  if (entry.mode === "absent") return undefined;
  if (entry.mode === "null") return null;
  if (!entry.isTouched && field.stored !== undefined) return field.stored;
  const text = entry.text;
  switch (field.kind) {
    case "text":
      return text;
    case "boolean":
      if (text === "true" || text === "false") return text === "true";
      throw new NotJson("choose yes or no");
    case "integer":
      if (!/^\s*-?(0|[1-9]\d*)\s*$/.test(text)) throw new NotJson("a whole number is expected");
      return numberOf(text.trim());
    case "number":
      if (!/^\s*-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\s*$/.test(text)) throw new NotJson("a number is expected");
      return numberOf(text.trim());
    case "choice":
    case "json":
      return parseExact(text);
  }
}

/** What the server said about arguments, by the fields it said it about; under "" what concerns no field or all. */
export function problemsByField(problems: readonly FieldProblem[], names: readonly string[]): Map<string, string> {
  const found = new Map<string, string>();
  for (const { where, message } of problems) {
    const told = fieldOfProblem(where, names);
    const meant = told ? [told] : namedIn(message).filter((name) => names.includes(name));
    const text =
      meant.length > 0 ? message.replace(/^[^(]{1,200}\(\): (?:argument '[^']*'(?:, )?(?:: )?)?/, "") : message;
    for (const name of meant.length > 0 ? meant : [""]) if (!found.has(name)) found.set(name, text);
  }
  return found;
}

/** The field that a place such as "arguments.order_id", "/order_id/0" or "order_id" is in; "" for none. */
export function fieldOfProblem(where: string, names: readonly string[]): string {
  const plain = where.replace(/^(body[./])?\/?arguments(?=[./[]|$)/, "").replace(/^[./]/, "");
  if (names.includes(plain)) return plain;
  const decoded = plain.replaceAll("~1", "/").replaceAll("~0", "~");
  const longestFirst = [...names].sort((one, other) => other.length - one.length);
  return longestFirst.find((name) => decoded.startsWith(name) && /^$|^[./[]/.test(decoded.slice(name.length))) ?? "";
}

/** Arguments that a message names: "argument 'order': …", "is missing the arguments 'a' and 'b'". */
function namedIn(message: string): string[] {
  const about = /arguments? ((?:'[^']*'(?:, | and )?)+)/.exec(message);
  return about ? [...(about[1] ?? "").matchAll(/'([^']*)'/g)].map((one) => one[1] ?? "") : [];
}

function typeOf(value: Exact): string {
  if (value === null) return "null";
  if (typeof value === "string") return "text";
  if (typeof value === "boolean") return "boolean";
  if (Array.isArray(value)) return "list";
  return isObject(value) ? "object" : "number";
}

function emptyText(field: Field): string {
  const { standard } = field;
  if (standard !== undefined && standard !== null) return textOf(field, standard);
  if (field.kind === "boolean") return "false";
  if (field.kind === "choice") return exactText(field.choices[0] ?? null);
  return field.kind === "json" ? "null" : "";
}
