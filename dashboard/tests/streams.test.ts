import { describe, expect, it } from "vitest";
import type { Partition, Stream } from "../src/api/types";
import { byUrgency, conditionOf, isMeant, needsALook, STUCK_S } from "../src/pages/streams/condition";
import { type History, KEPT_S, withLook } from "../src/pages/streams/history";
import { folded, held, keyOf, sorted } from "../src/pages/streams/order";

const partition = (number: number, said: Partial<Partition> = {}): Partition => ({
  topic: "orders",
  partition: number,
  worker: "w",
  position: "1",
  lag: 0,
  in_flight: 0,
  buffered: 0,
  paused: "",
  stuck_id: "",
  stuck_key: "",
  stuck_s: 0,
  ...said,
});

const stuck = (number: number, stuck_s: number) => partition(number, { lag: 5, stuck_id: `orders/${number}/1`, stuck_s });

const stream = (name: string, said: Partial<Stream> = {}): Stream => ({
  name,
  group: "billing",
  topic: "orders",
  location: "kafka://localhost/orders",
  workers: 1,
  lag: 0,
  in_flight: 0,
  rate_per_s: 0,
  dead_letters: 0,
  last_error: "",
  last_error_at: null,
  away: "",
  partitions: [],
  ...said,
});

describe("the history of lag and rate", () => {
  const look = (history: History, at: number, lag: number | null = 1) =>
    withLook(history, [{ name: "bill", lag, rate_per_s: 2 }], at);
  const times = (history: History) => history.get("bill")?.map((sample) => sample.at);

  it("is a line as long as somebody looks, and a hole where nobody did", () => {
    let history: History = new Map();
    for (const at of [100, 105, 110]) history = look(history, at);
    expect(times(history)).toEqual([100, 105, 110]);
    history = look(history, 200, 7);
    expect(history.get("bill")?.slice(2)).toEqual([
      { at: 110, lag: 1, rate: 2 },
      { at: 110.5, lag: null, rate: null },
      { at: 200, lag: 7, rate: 2 },
    ]);
  });

  it("keeps the newest of looks in one second, and times that rise", () => {
    const history = look(look(look(new Map(), 100, 1), 100.4, 2), 100.8, 3);
    expect(history.get("bill")).toEqual([{ at: 100, lag: 3, rate: 2 }]);
  });

  it("begins anew when the clock goes back", () => {
    expect(times(look(look(new Map(), 500), 100))).toEqual([100]);
  });

  it("forgets what is old, streams that are gone too, and keeps those that were not asked about", () => {
    let history = withLook(new Map(), [{ name: "gone", lag: 1, rate_per_s: 0 }], 0);
    for (let at = 5; at <= KEPT_S + 20; at += 5) history = look(history, at);
    expect(times(history)?.[0]).toBe(20);
    expect([...history.keys()]).toEqual(["bill"]);
    const both = withLook(history, [{ name: "ship", lag: 1, rate_per_s: 0 }], KEPT_S + 25);
    expect([...both.keys()]).toEqual(["bill", "ship"]);
  });
});

describe("how a stream is", () => {
  it("is what is worst about it", () => {
    const parts = [stuck(0, STUCK_S)];
    expect(conditionOf(stream("a", { away: "refused", workers: 0, partitions: parts }))).toBe("away");
    expect(conditionOf(stream("a", { workers: 0, partitions: parts }))).toBe("unread");
    expect(conditionOf(stream("a", { partitions: parts }))).toBe("stuck");
    expect(conditionOf(stream("a", { partitions: [stuck(0, STUCK_S - 1)], lag: 1 }))).toBe("behind");
    expect(conditionOf(stream("a", { lag: null }))).toBe("behind");
    expect(conditionOf(stream("a", { in_flight: 1 }))).toBe("behind");
    expect(conditionOf(stream("a"))).toBe("level");
  });

  it("needs no look for being busy, or paused until its time", () => {
    expect(needsALook(stream("a", { lag: 9_000, partitions: [partition(0, { paused: "not due" })] }))).toBe(false);
    expect(needsALook(stream("a", { partitions: [stuck(0, 100)] }))).toBe(true);
  });

  it("decides the order, but being busy does not", () => {
    const all = [stream("d"), stream("c", { lag: 5 }), stream("b", { partitions: [stuck(0, 99)] }), stream("a", { away: "x" })];
    expect(byUrgency(all).map((one) => one.name)).toEqual(["a", "b", "c", "d"]);
    expect(byUrgency([stream("b", { lag: 5 }), stream("a")]).map((one) => one.name)).toEqual(["a", "b"]);
  });

  it("is found by name, topic and group", () => {
    for (const text of ["", "BIL", "order", "ill"]) expect(isMeant(stream("bill"), text)).toBe(true);
    expect(isMeant(stream("bill"), "ship")).toBe(false);
  });
});

describe("partitions", () => {
  const numbers = (rows: readonly Partition[]) => rows.map((one) => one.partition);

  it("stand by lag, by time or by number; equals by number, and what nobody knows last", () => {
    const rows = [partition(3), partition(2, { lag: null }), stuck(1, 9), partition(0, { lag: 7 }), partition(10)];
    expect(numbers(sorted(rows, "lag"))).toEqual([0, 1, 3, 10, 2]);
    expect(numbers(sorted(rows, "stuck"))).toEqual([1, 0, 2, 3, 10]);
    expect(numbers(sorted(rows, "number"))).toEqual([0, 1, 2, 3, 10]);
  });

  it("are all shown while they are few", () => {
    const few = Array.from({ length: 8 }, (_, number) => partition(number));
    expect(folded(few)).toMatchObject({ others: 0, othersLag: 0, othersStuck: 0 });
    expect(folded(few).shown).toHaveLength(8);
  });

  it("fold the healthy ones away when they are many", () => {
    const many = Array.from({ length: 200 }, (_, number) => partition(number, { lag: number < 100 ? 0 : number }));
    many[5] = stuck(5, STUCK_S);
    many[6] = stuck(6, STUCK_S + 1);
    many[7] = partition(7, { paused: "not due" });
    const { shown, ...rest } = folded(many);
    expect(numbers(shown)).toEqual([6, 5, 7, 199, 198, 197, 196, 195]);
    expect(rest).toEqual({ others: 192, othersLag: (194 * 195 - 99 * 100) / 2, othersStuck: 0 });
    expect(folded(many.map((one) => stuck(one.partition, 99)))).toMatchObject({ others: 192, othersStuck: 192 });
    expect(folded(many.map((one) => partition(one.partition)))).toMatchObject({ shown: [], others: 200, othersLag: 0 });
  });

  it("keep their places while somebody reads, and new ones stand at the end", () => {
    const before = [partition(2), partition(1)].map(keyOf);
    const newest = [partition(0, { lag: 99 }), partition(1, { lag: 50 }), partition(2)];
    expect(numbers(held(before, newest))).toEqual([2, 1, 0]);
  });

  it("of one number that several workers read are told apart", () => {
    expect(keyOf(partition(1))).not.toBe(keyOf(partition(1, { worker: "other" })));
  });
});
