/** The order of partitions, and which of very many are shown at once. */
import type { Partition } from "../../api/types";
import { isRemarkable, isStuck } from "./condition";

export type Sort = "lag" | "stuck" | "number";

/** A row's name within its stream: several workers may read one partition of a Redis stream. */
export function keyOf(partition: Pick<Partition, "topic" | "partition" | "worker">): string {
  return `${partition.topic}/${partition.partition}/${partition.worker}`;
}

function byNumber(one: Partition, two: Partition): number {
  return (
    one.topic.localeCompare(two.topic) || one.partition - two.partition || one.worker.localeCompare(two.worker)
  );
}

/** The partitions as they should stand; equals keep a fixed order. What nobody knows comes last. */
export function sorted(partitions: readonly Partition[], sort: Sort): Partition[] {
  const rank = (one: Partition) => (sort === "lag" ? (one.lag ?? -1) : sort === "stuck" ? one.stuck_s : 0);
  return [...partitions].sort((one, two) => rank(two) - rank(one) || byNumber(one, two));
}

/** So many are shown whole; of more than these only some. */
const FEW = 8;

export interface Folded {
  readonly shown: readonly Partition[];
  /** How many are left out, and what is known of them. */
  readonly others: number;
  readonly othersLag: number;
  readonly othersStuck: number;
}

/** Of many partitions those that are stuck, paused or unknown, then those with the largest lag; the rest is counted. */
export function folded(partitions: readonly Partition[]): Folded {
  const byLag = sorted(partitions, "lag");
  if (byLag.length <= FEW) return { shown: byLag, others: 0, othersLag: 0, othersStuck: 0 };
  const ranked = [
    ...sorted(byLag.filter(isStuck), "stuck"),
    ...byLag.filter((one) => isRemarkable(one) && !isStuck(one)),
    ...byLag.filter((one) => !isRemarkable(one) && one.lag !== 0),
  ];
  const shown = ranked.slice(0, FEW);
  const isShown = new Set(shown);
  const others = byLag.filter((one) => !isShown.has(one));
  return {
    shown,
    others: others.length,
    othersLag: others.reduce((sum, one) => sum + (one.lag ?? 0), 0),
    othersStuck: others.filter(isStuck).length,
  };
}

/** The newest reports in the order that was shown before, while somebody reads; new ones stand at the end. */
export function held(before: readonly string[], newest: readonly Partition[]): readonly Partition[] {
  const place = new Map(before.map((key, at) => [key, at]));
  const at = (one: Partition) => place.get(keyOf(one)) ?? before.length;
  return [...newest].sort((one, two) => at(one) - at(two));
}
