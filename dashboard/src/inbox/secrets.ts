/**
 * Editing around values that are not shown.
 *
 * A secret is shown as [redacted], or as a text with [redacted] in it; the server puts the stored value back where the
 * arguments still read as they were shown. One that was moved, or is in a list that changed its length, could get a
 * neighbour's secret: that is refused here.
 */

import { type Exact, isObject, isSame, own } from "./exact";

/** What stands in a secret's place. */
export const HIDDEN = "[redacted]";

/** Whether something was left out of a value. */
export function isHidden(value: Exact | undefined): value is string {
  return typeof value === "string" && value.includes(HIDDEN);
}

/** The steps of a JSON pointer. */
export function stepsOf(pointer: string): string[] {
  if (pointer === "") return [];
  return pointer
    .slice(pointer.startsWith("/") ? 1 : 0)
    .split("/")
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** The JSON pointer of some steps. */
export function pointerOf(steps: readonly (string | number)[]): string {
  return steps.map((step) => `/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

/** The pointers to every text with [redacted] in it. */
export function hiddenIn(value: Exact, steps: readonly (string | number)[] = []): string[] {
  if (isHidden(value)) return [pointerOf(steps)];
  if (Array.isArray(value)) return value.flatMap((item, i) => hiddenIn(item, [...steps, i]));
  if (isObject(value)) return Object.keys(value).flatMap((key) => hiddenIn(value[key] ?? null, [...steps, key]));
  return [];
}

/** A place where the stored value could not be kept safely, and why. */
export interface Misplaced {
  readonly pointer: string;
  readonly message: string;
}

/** What is wrong with the hidden values of edited arguments; empty when all can be kept as stored. */
export function misplacedIn(edited: Exact, stored: Exact): Misplaced[] {
  const found: Misplaced[] = [];
  visit(edited, stored, []);
  return found;

  function visit(now: Exact, then: Exact | undefined, steps: readonly (string | number)[]): void {
    if (isHidden(now) && now !== then) {
      const message = isHidden(then)
        ? `keep it as it is shown to keep the stored value, or write all of it, without ${HIDDEN}`
        : `no hidden value is stored here to be kept; write it out, without ${HIDDEN}`;
      found.push({ pointer: pointerOf(steps), message });
    } else if (Array.isArray(now)) {
      const before = Array.isArray(then) ? then : [];
      const pointer = pointerOf(steps);
      if (hiddenIn(now).length > 0 && now.length !== before.length) {
        found.push({
          pointer,
          message: "this list has hidden values, so its length cannot change unless you write them out",
        });
      } else if (now.some((item, i) => isMoved(item, i, before))) {
        found.push({ pointer, message: "this list has hidden values, so its items cannot change places" });
      } else {
        now.forEach((item, i) => visit(item, before[i], [...steps, i]));
      }
    } else if (isObject(now)) {
      const before = isObject(then) ? then : {};
      for (const key of Object.keys(now)) visit(now[key] ?? null, own(before, key), [...steps, key]);
    }
  }
}

/** Whether an item with hidden values stood at another place of the list before. */
function isMoved(item: Exact, at: number, then: readonly Exact[]): boolean {
  if (hiddenIn(item).length === 0 || isSame(item, then[at])) return false;
  return then.some((one, i) => i !== at && isSame(item, one));
}
