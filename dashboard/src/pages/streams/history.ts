/** Lag and rate of each stream over the last minutes, as this page has seen them: the server keeps none of it. */

/** One look at a stream; null where nobody knew, or nobody looked. */
export interface Sample {
  /** By the store's clock. */
  readonly at: number;
  readonly lag: number | null;
  readonly rate: number | null;
}

export type History = ReadonlyMap<string, readonly Sample[]>;

/** What is older is forgotten. */
export const KEPT_S = 600;
/** A hole longer than this is shown as one: the page was somewhere else, or the server away. */
const HOLE_S = 20;
/** Looks closer together than this are one. */
const CLOSEST_S = 1;

interface Looked {
  readonly name: string;
  readonly lag: number | null;
  readonly rate_per_s: number;
}

/** The history with one more look at some streams; those that nobody has looked at for long are left out. */
export function withLook(history: History, streams: readonly Looked[], at: number): History {
  const next = new Map([...history].filter(([, samples]) => Math.abs(at - (samples.at(-1)?.at ?? 0)) <= KEPT_S));
  for (const { name, lag, rate_per_s: rate } of streams) {
    next.set(name, added(next.get(name) ?? [], { at, lag, rate }));
  }
  return next;
}

function added(samples: readonly Sample[], newest: Sample): readonly Sample[] {
  const last = samples.at(-1);
  if (last === undefined) return [newest];
  const since = newest.at - last.at;
  // A clock that went back cannot be drawn: the line begins anew.
  if (since < -CLOSEST_S) return [newest];
  if (since < CLOSEST_S) return [...samples.slice(0, -1), { ...newest, at: last.at }];
  const hole = since > HOLE_S ? [{ at: last.at + CLOSEST_S / 2, lag: null, rate: null }] : [];
  return [...samples, ...hole, newest].filter((sample) => newest.at - sample.at <= KEPT_S);
}
