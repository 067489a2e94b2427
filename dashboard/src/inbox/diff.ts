/** What an edit changed in a letter's arguments, key by key. */

import { type Exact, isObject, isSame, own } from "./exact";

/** One key that is not as it was; undefined where it was not there, or is not there any more. */
export interface Changed {
  readonly path: string;
  readonly before: Exact | undefined;
  readonly after: Exact | undefined;
}

/** The keys that differ, in the order of the newer one; objects are gone into, lists are one value. */
export function changesBetween(before: Exact, after: Exact, path = ""): Changed[] {
  if (isSame(before, after)) return [];
  if (!isObject(before) || !isObject(after)) return [{ path: path || "(all)", before, after }];
  const keys = [...Object.keys(after), ...Object.keys(before).filter((key) => own(after, key) === undefined)];
  return keys.flatMap((key) => {
    const [then, now] = [own(before, key), own(after, key)];
    const place = path ? `${path}.${key}` : key;
    if (then === undefined || now === undefined) {
      return then === now ? [] : [{ path: place, before: then, after: now }];
    }
    return changesBetween(then, now, place);
  });
}
