/** What a JSON schema says about one argument, as far as a form needs it. */

import { type Exact, ExactNumber, type ExactObject, isObject, own } from "./exact";
import { stepsOf } from "./secrets";

/** How a value is typed in. */
export type Kind = "text" | "integer" | "number" | "boolean" | "choice" | "json";

/** One argument. */
export interface Shape {
  readonly kind: Kind;
  readonly isNullable: boolean;
  readonly choices: readonly Exact[];
  readonly words: string;
  readonly standard: Exact | undefined;
}

const KINDS: ReadonlyMap<Exact, Kind> = new Map<Exact, Kind>([
  ["string", "text"],
  ["integer", "integer"],
  ["number", "number"],
  ["boolean", "boolean"],
]);

/** The shape of an argument's schema; references are looked up in the whole one. */
export function shapeOf(schema: Exact, root: ExactObject): Shape {
  const outer = resolved(schema, root);
  const standard = own(outer, "default");
  const options = optionsOf(outer).map((option) => resolved(option, root));
  const isNullable = options.some((one) => own(one, "type") === "null" || listAt(one, "enum").includes(null));
  const others = options.filter((one) => own(one, "type") !== "null");
  const only = others.length === 1 ? others[0] : undefined;
  if (only === undefined) {
    const words =
      others
        .map((one) => wordsOf(one))
        .filter(Boolean)
        .join(" or ") || "any JSON";
    return { kind: "json", isNullable, choices: [], words: nullable(words, isNullable), standard };
  }
  const choices = own(only, "const") === undefined ? listAt(only, "enum") : [own(only, "const") ?? null];
  const values = choices.filter((choice) => choice !== null);
  const kind: Kind = values.length > 0 ? "choice" : (KINDS.get(own(only, "type") ?? "") ?? "json");
  return { kind, isNullable, choices: values, words: nullable(wordsOf(only), isNullable), standard };
}

function optionsOf(schema: ExactObject): Exact[] {
  for (const name of ["anyOf", "oneOf"]) {
    const options = listAt(schema, name);
    if (options.length > 0) return options;
  }
  const types = own(schema, "type");
  return Array.isArray(types) ? types.map((type) => ({ ...schema, type })) : [schema];
}

function resolved(schema: Exact, root: ExactObject): ExactObject {
  let found: Exact | undefined = schema;
  for (let i = 0; i < 8 && isObject(found); i += 1) {
    const ref: Exact | undefined = own(found, "$ref");
    if (typeof ref !== "string" || !ref.startsWith("#")) return found;
    found = stepsOf(decodeURIComponent(ref.slice(1))).reduce<Exact | undefined>(
      (at, step) => (isObject(at) ? own(at, step) : undefined),
      root,
    );
  }
  return isObject(found) ? found : {};
}

const WORDS: ReadonlyMap<Exact, string> = new Map<Exact, string>([
  ["string", "text"],
  ["integer", "whole number"],
  ["number", "number"],
  ["boolean", "yes or no"],
  ["array", "list (JSON)"],
  ["object", "object (JSON)"],
]);

function wordsOf(schema: ExactObject): string {
  const parts = [
    listAt(schema, "enum").length > 0 ? "one of a few" : (WORDS.get(own(schema, "type") ?? "") ?? "any JSON"),
    bound(schema, "minimum", "at least"),
    bound(schema, "exclusiveMinimum", "above"),
    bound(schema, "maximum", "at most"),
    bound(schema, "exclusiveMaximum", "below"),
    bound(schema, "minLength", "length at least"),
    bound(schema, "maxLength", "length at most"),
    typeof own(schema, "format") === "string" ? String(own(schema, "format")) : "",
  ];
  return parts.filter(Boolean).join(", ");
}

function bound(schema: ExactObject, name: string, words: string): string {
  const limit = own(schema, name);
  return typeof limit === "number" || limit instanceof ExactNumber ? `${words} ${limit}` : "";
}

function nullable(words: string, isNullable: boolean): string {
  return isNullable ? `${words}, or null` : words;
}

/** The object under a name of a schema; empty where there is none. */
export function objectAt(schema: ExactObject, name: string): ExactObject {
  const found = own(schema, name);
  return isObject(found) ? found : {};
}

/** The list under a name of a schema; empty where there is none. */
export function listAt(schema: ExactObject, name: string): Exact[] {
  const found = own(schema, name);
  return Array.isArray(found) ? found : [];
}
