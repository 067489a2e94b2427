/** Which letters are shown: the filters of the address bar, and what they mean to the server. */

import { FAILURE_TYPES, type FailureType, type LetterFilter } from "../api/types";
import type { QueryValues } from "../frame/router";

/** The filters as the address bar has them; "" does not filter. */
export interface Filters {
  readonly task: string;
  readonly tenant: string;
  readonly type: FailureType | "";
  readonly text: string;
  /** A length such as "24h", or "" for any time. */
  readonly range: string;
  /** Instants in seconds, where a link names them; they win over the range. */
  readonly since: number | null;
  readonly until: number | null;
}

/** The time ranges on offer, in seconds. */
export const RANGES: readonly (readonly [name: string, words: string, length_s: number])[] = [
  ["15m", "Last 15 minutes", 900],
  ["1h", "Last hour", 3_600],
  ["24h", "Last 24 hours", 86_400],
  ["7d", "Last 7 days", 604_800],
  ["30d", "Last 30 days", 2_592_000],
];

const LONGEST = 200;

/** Read the filters out of a route's query; whatever it holds, filters come out. */
export function filtersOf(query: QueryValues): Filters {
  const one = (name: string) => (query[name]?.[0] ?? "").slice(0, LONGEST);
  const type = one("type");
  const range = one("range");
  return {
    task: one("task"),
    tenant: one("tenant"),
    type: FAILURE_TYPES.find((known) => known === type) ?? "",
    text: one("q"),
    range: RANGES.some(([name]) => name === range) ? range : "",
    since: instantOf(one("since")),
    until: instantOf(one("until")),
  };
}

/** The same for a replay, which knows no text: a search is done in what is shown, a replay by the store. `now` is the store's clock, and only asked where a range is set. */
export function letterFilter(filters: Filters, now: number, group = ""): LetterFilter {
  const length = RANGES.find(([name]) => name === filters.range)?.[2];
  return {
    group,
    failure_type: filters.type || null,
    task: filters.task,
    tenant: filters.tenant || null,
    since: filters.since ?? (length === undefined ? null : Math.max(Math.floor(now - length), 0)),
    until: filters.until,
  };
}

/** The same for a list, text included. */
export function letterSearch(filters: Filters, now: number, group = ""): LetterFilter & { readonly text: string } {
  return { ...letterFilter(filters, now, group), text: filters.text };
}

/** Whether anything is filtered. */
export function isFiltering(filters: Filters): boolean {
  return Object.values(filters).some((value) => value !== "" && value !== null);
}

/** The filters in words: "task charge, tenant acme, last hour". */
export function filtersInWords(filters: Filters): string {
  const range = RANGES.find(([name]) => name === filters.range)?.[1];
  const parts = [
    filters.task && `task ${filters.task}`,
    filters.tenant && `tenant ${filters.tenant}`,
    filters.type && `failure type ${filters.type.replace("_", " ")}`,
    filters.text && `text “${filters.text}”`,
    filters.since === null && range ? range.toLowerCase() : "",
    filters.since !== null && `since ${new Date(filters.since * 1000).toISOString()}`,
    filters.until !== null && `until ${new Date(filters.until * 1000).toISOString()}`,
  ];
  return parts.filter(Boolean).join(", ");
}

function instantOf(text: string): number | null {
  const value = text === "" ? Number.NaN : Number(text);
  return Number.isFinite(value) && value >= 0 && value <= 1e11 ? value : null;
}
