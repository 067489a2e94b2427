/** What needs attention, the worst first: a line each, and none twice. */
import type { Overview } from "../../api/types";
import { href } from "../../frame/router";

export type Line = readonly [tone: "bad" | "warn", text: string, href: string];

type Told = Pick<
  Overview,
  "workers" | "queues" | "open_breakers" | "alerts" | "health" | "reasons" | "is_durable" | "durability" | "warnings"
>;

/** Reasons of the score that have a line of their own, which is newer: breakers, and that no worker is alive. */
const HAS_LINE = /^breaker .* is open$|no worker is alive$/s;

/** The lines for an overview. Why the score is low is said where that is no longer healthy. */
export function attentionOf(of: Told): readonly Line[] {
  const tone = of.health === "unhealthy" ? "bad" : "warn";
  const reasons = of.health === "healthy" ? [] : of.reasons.filter((reason) => !HAS_LINE.test(reason));
  const firing = of.alerts.filter((alert) => alert.is_firing);
  return [
    ...noWorker(of),
    ...of.open_breakers.map((key): Line => ["bad", `The breaker ${key} is open.`, href("breakers")]),
    ...firing.map((alert): Line => ["bad", `${alert.name}: ${alert.text}`, href("alerts")]),
    ...reasons.map((reason): Line => [tone, `${reason.slice(0, 1).toUpperCase()}${reason.slice(1)}.`, placeOf(reason)]),
    ...(of.is_durable ? [] : [["warn", `Jobs may be lost with the store: ${of.durability}`, ""] as const]),
    ...of.warnings.map((text): Line => ["warn", text, ""]),
  ];
}

/** Where a reason is explained, if a page does that. */
function placeOf(reason: string): string {
  const page = /^check (streams|rings|crawls) failed$/.exec(reason)?.[1];
  return page === undefined ? "" : href(page);
}

function noWorker(of: Told): readonly Line[] {
  if (of.workers > 0) return [];
  // Pages wait for the process of their crawl, and for no worker.
  const isAwaited = of.queues.some((queue) => queue.lag_s !== null && !queue.is_paused && !queue.name.startsWith("crawl:"));
  return [
    isAwaited
      ? ["bad", "No worker is alive: jobs wait.", href("workers")]
      : ["warn", "No worker is alive.", href("workers")],
  ];
}
