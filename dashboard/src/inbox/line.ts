/** Where the attempts of a job stand on a time line: bars for runs, gaps for waits, long waits cut short. */

/** What is known of one attempt. */
export interface Ran {
  readonly number: number;
  readonly started_at: number;
  readonly ended_at: number;
  readonly outcome: string;
  readonly delay_s: number | null;
}

/** A run; places are shares of the whole width, from 0 to 1. */
export interface Bar {
  readonly number: number;
  readonly left: number;
  readonly width: number;
  readonly duration_s: number;
}

/** A wait before the attempt of that number. */
export interface Gap {
  readonly before: number;
  readonly left: number;
  readonly width: number;
  readonly duration_s: number;
  /** It is drawn shorter than it was. */
  readonly isCut: boolean;
  readonly cause: "queued" | "planned" | "sent back";
}

export interface Line {
  readonly bars: readonly Bar[];
  readonly gaps: readonly Gap[];
}

/** No run is drawn narrower than this share, or than half its part when there are many. */
const NARROWEST = 0.008;
/** A wait longer than so many times all that is shorter is cut; delays that double or triple never are. */
const LONGEST_SHARE = 5;

/** The geometry of some attempts, oldest first. A clock that was set back gives no negative lengths. */
export function lineOf(attempts: readonly Ran[], created_at: number): Line {
  if (attempts.length === 0) return { bars: [], gaps: [] };
  const runs = attempts.map((one) => Math.max(one.ended_at - one.started_at, 0));
  const waits = attempts.map((one, i) => {
    const since = i === 0 ? created_at : (attempts[i - 1]?.ended_at ?? created_at);
    return Math.max(one.started_at - since, 0);
  });
  const longest = cutAt(runs, waits);
  const drawn = waits.map((wait) => Math.min(wait, longest));
  const total = sum(runs) + sum(drawn);
  const narrowest = Math.min(NARROWEST, 0.5 / attempts.length);
  const widths = runs.map((run) => Math.max(total > 0 ? run / total : 0, narrowest));
  const scale = 1 / (sum(widths) + (total > 0 ? sum(drawn) / total : 0));
  const bars: Bar[] = [];
  const gaps: Gap[] = [];
  let at = 0;
  attempts.forEach((one, i) => {
    const [run, wait, kept] = [runs[i] ?? 0, waits[i] ?? 0, drawn[i] ?? 0];
    const gapWidth = total > 0 ? (kept / total) * scale : 0;
    const cause =
      i === 0
        ? "queued"
        : attempts[i - 1]?.outcome === "bury" || attempts[i - 1]?.outcome === "fail"
          ? "sent back"
          : "planned";
    gaps.push({ before: one.number, left: at, width: gapWidth, duration_s: wait, isCut: kept < wait, cause });
    at += gapWidth;
    const width = (widths[i] ?? 0) * scale;
    bars.push({ number: one.number, left: at, width, duration_s: run });
    at += width;
  });
  return { bars, gaps };
}

/**
 * The length from which a wait is cut, so that one night between two replays does not hide everything else.
 *
 * The shorter half of the waits between attempts is taken as it is. The wait in the queue says nothing of what is usual.
 */
function cutAt(runs: readonly number[], waits: readonly number[]): number {
  const [queued = 0, ...others] = waits;
  const between = others.filter((wait) => wait > 0).sort((one, other) => one - other);
  const half = (between.length + 1) >> 1;
  let rest = sum(runs) + sum(between.slice(0, half));
  if (rest === 0) return Infinity;
  for (const wait of [...between.slice(half), queued].sort((one, other) => one - other)) {
    if (wait > LONGEST_SHARE * rest) return 2 * rest;
    rest += wait;
  }
  return Infinity;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all + one, 0);
}
