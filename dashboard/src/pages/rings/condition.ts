/** How a ring and its consumers are, and which of them need a look. */
import type { Consumer, Ring } from "../../api/types";
import type { Tone } from "../../ui/Badge";
import { count, duration } from "../../ui/format";

export type Condition = "stuck" | "unsaved" | "full" | "closing" | "working" | "level";

/** The worst first. */
const ORDER: readonly Condition[] = ["stuck", "unsaved", "full", "closing", "working", "level"];

const SAID: Readonly<Record<Condition, readonly [word: string, tone: Tone]>> = {
  stuck: ["stuck", "bad"],
  unsaved: ["checkpoint fails", "bad"],
  full: ["producers wait", "warn"],
  closing: ["closing", "muted"],
  working: ["working", "busy"],
  level: ["up to date", "good"],
};

/** A condition as a badge says it. */
export function saidOf(condition: Condition): readonly [word: string, tone: Tone] {
  return SAID[condition];
}

/** How a ring is, by the worst that is known of it. */
export function conditionOf(ring: Ring): Condition {
  if (ring.consumers.some((one) => one.state === "stuck")) return "stuck";
  if (ring.consumers.some((one) => one.checkpoint_error !== "")) return "unsaved";
  if (ring.blocked > 0) return "full";
  if (ring.is_closing) return "closing";
  return ring.used > 0 ? "working" : "level";
}

/** Whether somebody should look at it. Producers that wait are no reason: they are held back so that nothing is lost. */
export function needsALook(ring: Ring): boolean {
  return ORDER.indexOf(conditionOf(ring)) < ORDER.indexOf("full");
}

/** Those that need a look first; names and processes decide among equals, so that cards keep their places. */
export function byUrgency(rings: readonly Ring[]): readonly Ring[] {
  const rank = (ring: Ring) => Math.min(ORDER.indexOf(conditionOf(ring)), ORDER.indexOf("full"));
  return [...rings].sort(
    (one, two) =>
      rank(one) - rank(two) ||
      one.name.localeCompare(two.name) ||
      one.host.localeCompare(two.host) ||
      one.pid - two.pid ||
      one.worker.localeCompare(two.worker),
  );
}

/** Whether a search means this ring: by its name, a consumer's, or where it runs. */
export function isMeant(ring: Ring, text: string): boolean {
  const wanted = text.toLowerCase();
  const names = [ring.name, `${ring.host} ${ring.pid}`, ...ring.consumers.map((one) => one.name)];
  return names.some((name) => name.toLowerCase().includes(wanted));
}

const TONES: Readonly<Record<Consumer["state"], Tone>> = { idle: "good", running: "busy", waiting: "warn", stuck: "bad" };

/** What a consumer is at, as a badge says it. */
export function workOf(one: Pick<Consumer, "state" | "running_s" | "batch">): readonly [text: string, tone: Tone] {
  const tone = TONES[one.state];
  switch (one.state) {
    case "idle":
      return ["idle", tone];
    case "running":
      return [`running for ${duration(one.running_s)}`, tone];
    case "waiting":
      return [`waiting for ${duration(one.running_s)}`, tone];
    case "stuck":
      return [`stuck for ${duration(one.running_s)} at batch ${count(one.batch)}`, tone];
  }
}

/** The colour of how full a ring is: the last tenth is what producers wait for. */
export function fillTone(utilisation: number): Tone {
  return utilisation >= 0.9 ? "bad" : utilisation >= 0.6 ? "warn" : "good";
}

/** The time of a batch: microseconds as often as seconds. */
export function batchTime(seconds: number): string {
  return seconds > 0 && seconds < 0.001 ? `${Math.max(1, Math.round(seconds * 1e6))} µs` : duration(seconds);
}
