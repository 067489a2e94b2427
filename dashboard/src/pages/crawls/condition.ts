/** How a crawl and its domains are, and which of them need a look. */
import type { Crawl, Domain } from "../../api/types";
import type { Tone } from "../../ui/Badge";
import { duration } from "../../ui/format";

export type Condition = "unwritten" | "running" | "stopped" | "finished";

/** The worst first. */
const ORDER: readonly Condition[] = ["unwritten", "running", "stopped", "finished"];

const SAID: Readonly<Record<Condition, readonly [word: string, tone: Tone]>> = {
  unwritten: ["items not written", "bad"],
  running: ["running", "busy"],
  stopped: ["stopped", "warn"],
  finished: ["finished", "good"],
};

/** A condition as a badge says it. */
export function saidOf(condition: Condition): readonly [word: string, tone: Tone] {
  return SAID[condition];
}

/** How a crawl is, by the worst that is known of it. */
export function conditionOf(crawl: Crawl): Condition {
  return needsALook(crawl) ? "unwritten" : crawl.state;
}

/** Whether somebody should look at it. Sites that are down are no reason: their pages wait, and the rest goes on. */
export function needsALook(crawl: Pick<Crawl, "processes">): boolean {
  return crawl.processes.some((one) => one.output_error !== "");
}

/** Those that need a look first, then those that run; names decide among equals, so that rows keep their places. */
export function byUrgency(crawls: readonly Crawl[]): readonly Crawl[] {
  const rank = (crawl: Crawl) => ORDER.indexOf(conditionOf(crawl));
  return [...crawls].sort((one, two) => rank(one) - rank(two) || one.name.localeCompare(two.name));
}

/** Whether a search means this crawl. */
export function isMeant(crawl: Pick<Crawl, "name">, text: string): boolean {
  return crawl.name.toLowerCase().includes(text.toLowerCase());
}

/** The share of the pages known now that have ended, from 0 to 1; null where none is known. */
export function shareOf(crawl: Pick<Crawl, "done" | "dead" | "skipped" | "pending">): number | null {
  const ended = crawl.done + crawl.dead + crawl.skipped;
  const known = ended + crawl.pending;
  return known === 0 ? null : ended / known;
}

/** Until when it is, in words: "about 2 min 5 s", or why nobody can say. */
export function etaInWords(crawl: Pick<Crawl, "state" | "eta_s" | "pending">): string {
  if (crawl.pending === 0) return "nothing is left";
  if (crawl.state !== "running") return "no process is on it";
  return crawl.eta_s === null ? "nobody can say yet" : `about ${duration(crawl.eta_s)} at this rate`;
}

export type Hold = "held" | "breaker" | "busy" | "idle";

/** What a domain is at, by the store's time: a hold whose time is over is one no more. */
export function holdOf(domain: Pick<Domain, "held_until_at" | "breaker_state" | "in_flight">, now: number): Hold {
  if (domain.held_until_at !== null && domain.held_until_at > now) return "held";
  if (domain.breaker_state === "open" || domain.breaker_state === "forced_open") return "breaker";
  return domain.in_flight > 0 ? "busy" : "idle";
}

/** Whether a search means this domain. */
export function isDomainMeant(domain: Pick<Domain, "domain" | "why">, text: string): boolean {
  const wanted = text.toLowerCase();
  return [domain.domain, domain.why].some((one) => one.toLowerCase().includes(wanted));
}
