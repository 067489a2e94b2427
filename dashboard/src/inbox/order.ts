/** The order of the groups on the page: it holds still while somebody is pointing at the list. */

import type { Group } from "../api/types";
import type { GroupNews } from "../frame/live";

export type Sort = "count" | "last";

/** The groups as they should stand. Equals keep a fixed order, so that nothing flickers. */
export function sorted(groups: readonly Group[], sort: Sort): Group[] {
  const rank = (one: Group): [number, number] =>
    sort === "count" ? [one.count, one.last_at] : [one.last_at, one.count];
  return [...groups].sort((one, other) => {
    const [a, b] = [rank(one), rank(other)];
    return b[0] - a[0] || b[1] - a[1] || (one.fingerprint < other.fingerprint ? -1 : 1);
  });
}

/** What is shown while the list holds still: the old order with new counts; what came since waits to be asked for. */
export interface Held {
  readonly shown: readonly Group[];
  readonly waiting: number;
}

/** The newest groups in the order that was shown before; groups that are gone stay, counted 0, until the list may move. */
export function held(before: readonly Group[], newest: readonly Group[]): Held {
  const found = new Map(newest.map((group) => [group.fingerprint, group]));
  const shown = before.map((group) => found.get(group.fingerprint) ?? { ...group, count: 0 });
  const known = new Set(before.map((group) => group.fingerprint));
  return { shown, waiting: newest.filter((group) => !known.has(group.fingerprint)).length };
}

/** Counts as the last event had them; with filters only the server knows them. */
export function withNews(groups: readonly Group[], news: readonly GroupNews[]): Group[] {
  const found = new Map(news.map((one) => [one.fingerprint, one]));
  return groups.map((group) => {
    const newer = found.get(group.fingerprint);
    if (newer === undefined || newer.last_at < group.last_at) return group;
    return { ...group, count: newer.count, last_at: newer.last_at };
  });
}
