import { describe, expect, it } from "vitest";
import { lineOf, type Ran } from "../../src/inbox/line";

function ran(spans: readonly (readonly [number, number])[], outcome = "retry"): Ran[] {
  return spans.map(([started_at, ended_at], i) => ({ number: i + 1, started_at, ended_at, outcome, delay_s: null }));
}

describe("the time line", () => {
  it("is as wide as the page, in order and without overlaps", () => {
    const line = lineOf(
      ran([
        [1, 2],
        [4, 5],
        [9, 10],
      ]),
      0,
    );
    const pieces = [...line.bars, ...line.gaps].sort((one, other) => one.left - other.left || one.width - other.width);
    pieces.slice(1).forEach((piece, i) => expect(piece.left).toBeCloseTo(pieces[i]!.left + pieces[i]!.width));
    expect(pieces.at(-1)!.left + pieces.at(-1)!.width).toBeCloseTo(1);
    expect(line.bars[0]!.width).toBeCloseTo(0.1);
  });

  it("draws delays that double as they were", () => {
    const line = lineOf(
      ran([
        [0, 0.1],
        [30.1, 30.2],
        [90.2, 90.3],
        [210.3, 210.4],
        [450.4, 450.5],
      ]),
      0,
    );
    expect(line.gaps.every((gap) => !gap.isCut)).toBe(true);
    expect(line.gaps[2]!.width / line.gaps[1]!.width).toBeCloseTo(2);
  });

  it("does not take a short time in the queue for what is usual", () => {
    const spans = [
      [0.008, 0.01],
      [0.41, 0.42],
      [1.2, 1.21],
      [38.2, 38.21],
      [38.6, 38.61],
    ] as const;
    expect(lineOf(ran(spans), 0).gaps.map((gap) => gap.isCut)).toEqual([false, false, false, true, false]);
  });

  it("cuts a long time in the queue", () => {
    const spans = [
      [9000, 9000.1],
      [9001, 9001.1],
      [9003, 9003.1],
    ] as const;
    expect(lineOf(ran(spans), 0).gaps.map((gap) => gap.isCut)).toEqual([true, false, false]);
  });

  it("cuts the night between two replays, and still says how long it was", () => {
    const attempts = ran([
      [0, 1],
      [3, 4],
      [40_000, 40_001],
    ]);
    attempts[1] = { ...attempts[1]!, outcome: "bury" };
    const line = lineOf(attempts, 0);
    expect(line.gaps[2]).toMatchObject({ isCut: true, duration_s: 39_996, cause: "sent back" });
    expect(line.bars[0]!.width).toBeGreaterThan(0.05);
  });

  it("shows runs of no length, and has no negative ones when the clock was set back", () => {
    const line = lineOf(
      ran([
        [100, 100],
        [50, 40],
      ]),
      200,
    );
    expect(line.bars.map((bar) => bar.duration_s)).toEqual([0, 0]);
    for (const piece of [...line.bars, ...line.gaps]) {
      expect(piece.width).toBeGreaterThanOrEqual(0);
      expect(piece.left + piece.width).toBeLessThanOrEqual(1.0001);
    }
    expect(line.bars.every((bar) => bar.width > 0)).toBe(true);
  });

  it("stays within the page with a thousand attempts", () => {
    const line = lineOf(ran(Array.from({ length: 1000 }, (_, i) => [i * 60, i * 60 + 0.01] as const)), 0);
    expect(line.bars.at(-1)!.left + line.bars.at(-1)!.width).toBeCloseTo(1);
  });
});
