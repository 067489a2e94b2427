/** How a stream and its partitions are, and which of them need a look. */
import type { Partition, Stream } from "../../api/types";
import type { Tone } from "../../ui/Badge";

/** So long without a step is stuck; the health check says the same. */
export const STUCK_S = 60;

export type Condition = "away" | "unread" | "stuck" | "behind" | "level";

/** The worst first. */
const ORDER: readonly Condition[] = ["away", "unread", "stuck", "behind", "level"];

const SAID: Readonly<Record<Condition, readonly [word: string, tone: Tone]>> = {
  away: ["server away", "bad"],
  unread: ["no worker", "bad"],
  stuck: ["stuck", "bad"],
  behind: ["working", "busy"],
  level: ["up to date", "good"],
};

/** A condition as a badge says it. */
export function saidOf(condition: Condition): readonly [word: string, tone: Tone] {
  return SAID[condition];
}

/** Whether nothing has moved behind an unfinished message for too long. */
export function isStuck(partition: Pick<Partition, "stuck_id" | "stuck_s">): boolean {
  return partition.stuck_id !== "" && partition.stuck_s >= STUCK_S;
}

/** Whether a partition is shown before the others: stuck, paused, or nobody knows how far it is. */
export function isRemarkable(partition: Partition): boolean {
  return isStuck(partition) || partition.paused !== "" || partition.lag === null;
}

/** How a stream is, by the worst that is known of it. */
export function conditionOf(stream: Stream): Condition {
  if (stream.away !== "") return "away";
  if (stream.workers === 0) return "unread";
  if (stream.partitions.some(isStuck)) return "stuck";
  return stream.lag === 0 && stream.in_flight === 0 ? "level" : "behind";
}

/** Whether somebody should look at it. Pauses are no reason: a retry topic waits for its time, a busy one for room. */
export function needsALook(stream: Stream): boolean {
  return ORDER.indexOf(conditionOf(stream)) < ORDER.indexOf("behind");
}

/** Those that need a look first; names decide among equals, so that cards do not change places with every message. */
export function byUrgency(streams: readonly Stream[]): readonly Stream[] {
  const rank = (stream: Stream) => Math.min(ORDER.indexOf(conditionOf(stream)), ORDER.indexOf("behind"));
  return [...streams].sort((one, two) => rank(one) - rank(two) || one.name.localeCompare(two.name));
}

/** Whether a search means this stream. */
export function isMeant(stream: Pick<Stream, "name" | "topic" | "group">, text: string): boolean {
  const wanted = text.toLowerCase();
  return [stream.name, stream.topic, stream.group].some((name) => name.toLowerCase().includes(wanted));
}
