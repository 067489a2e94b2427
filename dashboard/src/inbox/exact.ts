/**
 * JSON that comes back as it was: a number that JavaScript cannot hold (a 19-digit id, `1.0`, `1e400`) stays its text.
 *
 * An operator who mends one argument must not change another one by looking at it.
 */

/** A number by its source text, where a JavaScript number would not be written the same way again. */
export class ExactNumber {
  constructor(readonly text: string) {}

  toString(): string {
    return this.text;
  }

  toJSON(): never {
    throw new TypeError("an exact number is written by exactText(), not by JSON.stringify()");
  }
}

export type Exact = null | boolean | number | string | ExactNumber | Exact[] | { [key: string]: Exact };
export type ExactObject = { [key: string]: Exact };

/** What is wrong with a text that should be JSON, and where. */
export class NotJson extends Error {}

const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const SPACE = /[ \t\n\r]*/y;
const DEEPEST = 200;

/** Whether a value is a JSON object. */
export function isObject(value: Exact | undefined): value is ExactObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof ExactNumber);
}

/** The value of a JSON text; throws NotJson with the line and column. */
export function parseExact(text: string): Exact {
  const reader = new Reader(text);
  const value = reader.value(0);
  reader.end();
  return value;
}

/** A number's value: plain where JavaScript writes it the same way, exact where it does not. */
export function numberOf(text: string): number | ExactNumber {
  const value = Number(text);
  return String(value) === text ? value : new ExactNumber(text);
}

/** The JSON text of a value; `indent` spaces a level, or all in one line. */
export function exactText(value: Exact, indent = 0): string {
  return written(value, indent, "");
}

/** Whether two values are the same JSON; the order of keys does not matter. */
export function isSame(one: Exact | undefined, other: Exact | undefined): boolean {
  if (one === other) return true;
  if (one === undefined || other === undefined) return false;
  if (one instanceof ExactNumber || other instanceof ExactNumber) {
    return one instanceof ExactNumber && other instanceof ExactNumber && one.text === other.text;
  }
  if (Array.isArray(one) || Array.isArray(other)) {
    if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
    return one.every((item, i) => isSame(item, other[i]));
  }
  if (isObject(one) && isObject(other)) {
    const keys = Object.keys(one);
    return keys.length === Object.keys(other).length && keys.every((key) => isSame(one[key], own(other, key)));
  }
  return false;
}

/** The value under a key of its own: `constructor` and the like are not there unless somebody put them there. */
export function own(object: ExactObject, key: string): Exact | undefined {
  return Object.prototype.hasOwnProperty.call(object, key) ? object[key] : undefined;
}

/** Put a value under a key that may be any text, `__proto__` too. */
export function put(object: ExactObject, key: string, value: Exact): void {
  Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
}

function written(value: Exact, indent: number, before: string): string {
  if (value instanceof ExactNumber) return value.text;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const inner = before + " ".repeat(indent);
  const isList = Array.isArray(value);
  const colon = indent > 0 ? ": " : ":";
  const parts = isList
    ? value.map((item) => written(item, indent, inner))
    : Object.keys(value).map((key) => `${JSON.stringify(key)}${colon}${written(value[key] ?? null, indent, inner)}`);
  const [open, close] = isList ? ["[", "]"] : ["{", "}"];
  if (parts.length === 0) return open + close;
  if (indent === 0) return open + parts.join(",") + close;
  return `${open}\n${inner}${parts.join(`,\n${inner}`)}\n${before}${close}`;
}

class Reader {
  private at = 0;

  constructor(private readonly text: string) {
    this.skip();
  }

  value(depth: number): Exact {
    if (depth > DEEPEST) throw this.wrong(`more than ${DEEPEST} levels`);
    const next = this.text[this.at];
    if (next === "{") return this.object(depth);
    if (next === "[") return this.list(depth);
    if (next === '"') return this.string();
    for (const [word, meaning] of WORDS) {
      if (this.text.startsWith(word, this.at)) {
        this.at += word.length;
        this.skip();
        return meaning;
      }
    }
    const number = this.take(NUMBER);
    if (number === null) throw this.wrong(next === undefined ? "it ends too early" : "a value is expected");
    this.skip();
    return numberOf(number);
  }

  end(): void {
    if (this.at < this.text.length) throw this.wrong("nothing more is expected");
  }

  private object(depth: number): ExactObject {
    const found: ExactObject = {};
    this.eat("{");
    if (this.eats("}")) return found;
    do {
      if (this.text[this.at] !== '"') throw this.wrong("a name in double quotes is expected");
      const key = this.string();
      this.eat(":");
      put(found, key, this.value(depth + 1));
    } while (this.eats(","));
    this.eat("}");
    return found;
  }

  private list(depth: number): Exact[] {
    const found: Exact[] = [];
    this.eat("[");
    if (this.eats("]")) return found;
    do found.push(this.value(depth + 1));
    while (this.eats(","));
    this.eat("]");
    return found;
  }

  private string(): string {
    const source = this.take(STRING);
    if (source === null) throw this.wrong("the text in quotes is not closed, or has a character that must be escaped");
    this.skip();
    return JSON.parse(source) as string;
  }

  private take(pattern: RegExp): string | null {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (found === null) return null;
    this.at = pattern.lastIndex;
    return found[0];
  }

  private skip(): void {
    this.take(SPACE);
  }

  private eats(sign: string): boolean {
    if (this.text[this.at] !== sign) return false;
    this.at += 1;
    this.skip();
    return true;
  }

  private eat(sign: string): void {
    if (!this.eats(sign)) throw this.wrong(`"${sign}" is expected`);
  }

  private wrong(what: string): NotJson {
    const before = this.text.slice(0, this.at).split("\n");
    return new NotJson(`line ${before.length}, column ${(before.at(-1) ?? "").length + 1}: ${what}`);
  }
}

const WORDS: readonly (readonly [string, null | boolean])[] = [
  ["null", null],
  ["true", true],
  ["false", false],
];
