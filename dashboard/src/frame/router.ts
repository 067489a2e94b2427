/** Routes live in the hash, `#/jobs/ID?state=running`, so that the page works under any prefix and filters can be bookmarked. */
import { computed, signal } from "@preact/signals";

/** Where the page is: `parts` is never empty. */
export interface Route {
  readonly parts: readonly [string, ...string[]];
  readonly query: QueryValues;
}

export type QueryValues = Readonly<Record<string, readonly string[]>>;
export type QueryPatch = Record<string, string | number | readonly string[] | null | undefined>;

export const HOME = "inbox";

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Reads a hash; whatever it is, a route comes out. */
export function parseHash(hash: string): Route {
  const text = hash.replace(/^#?\/?/, "");
  const cut = text.indexOf("?");
  const [first, ...rest] = (cut < 0 ? text : text.slice(0, cut)).split("/").filter(Boolean).map(decoded);
  const query: Record<string, string[]> = Object.create(null) as Record<string, string[]>;
  for (const [name, value] of new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1))) (query[name] ??= []).push(value);
  return { parts: [first ?? HOME, ...rest], query };
}

/** The hash of a route: `href(["jobs", id])`, `href("jobs", { state: ["running"] })`. Empty values are left out. */
export function href(parts: string | readonly string[], query: QueryPatch = {}): string {
  const path = (typeof parts === "string" ? [parts] : parts).map(encodeURIComponent).join("/");
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? (value as readonly string[]) : [value]) {
      if (each !== null && each !== undefined && each !== "") asked.append(name, String(each));
    }
  }
  const text = asked.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

const here = signal("");
export const route = computed(() => parseHash(here.value));

/** The first value of a query name, or "". */
export function asked(name: string): string {
  return route.value.query[name]?.[0] ?? "";
}

/** Every value of a query name. */
export function askedAll(name: string): readonly string[] {
  return route.value.query[name] ?? [];
}

/** Goes somewhere; `replace` leaves no step behind in the history (for typing into a filter). */
export function go(target: string, replace = false): void {
  if (replace) history.replaceState(null, "", target);
  else history.pushState(null, "", target);
  here.value = target;
}

/** Changes some of the query and keeps the rest. */
export function setQuery(patch: QueryPatch, replace = false): void {
  go(href(route.value.parts, { ...route.value.query, ...patch }), replace);
}

/** Follows the address bar; called once. */
export function startRouter(): void {
  const read = () => {
    here.value = location.hash;
  };
  addEventListener("hashchange", read);
  addEventListener("popstate", read);
  read();
}
