import { describe, expect, it } from "vitest";
import type { Consumer, Ring } from "../src/api/types";
import { batchTime, byUrgency, conditionOf, fillTone, isMeant, needsALook, workOf } from "../src/pages/rings/condition";
import { bytes } from "../src/ui/format";

const consumer = (name: string, said: Partial<Consumer> = {}): Consumer => ({
  name,
  after: [],
  state: "idle",
  doing: "",
  running_s: 0,
  lag: 0,
  processed: 0,
  rate_per_s: 0,
  batches: 0,
  batch: 0,
  batch_s: 0,
  mean_s: null,
  slowest_s: 0,
  errors: 0,
  retries: 0,
  given_up: 0,
  dead_letters: 0,
  in_inbox: 0,
  offset: null,
  checkpoint_error: "",
  ...said,
});

const ring = (name: string, said: Partial<Ring> = {}): Ring => ({
  name,
  worker: "w",
  host: "mill",
  pid: 7,
  seen_at: 0,
  size: 1024,
  used: 0,
  utilisation: 0,
  produced: 0,
  rate_per_s: 0,
  blocked: 0,
  memory_bytes: 0,
  is_closing: false,
  consumers: [],
  ...said,
});

const stuck = consumer("enrich", { state: "stuck", running_s: 61, batch: 12 });
const unsaved = consumer("enrich", { checkpoint_error: "disk full" });

describe("how a ring is", () => {
  it("is what is worst about it", () => {
    const all = { blocked: 1, is_closing: true, used: 5 };
    expect(conditionOf(ring("a", { ...all, consumers: [unsaved, stuck] }))).toBe("stuck");
    expect(conditionOf(ring("a", { ...all, consumers: [unsaved] }))).toBe("unsaved");
    expect(conditionOf(ring("a", all))).toBe("full");
    expect(conditionOf(ring("a", { is_closing: true, used: 5 }))).toBe("closing");
    expect(conditionOf(ring("a", { used: 5 }))).toBe("working");
    expect(conditionOf(ring("a"))).toBe("level");
  });

  it("needs no look for producers that are held back", () => {
    expect(needsALook(ring("a", { blocked: 9 }))).toBe(false);
    expect(needsALook(ring("a", { consumers: [stuck] }))).toBe(true);
    expect(needsALook(ring("a", { consumers: [unsaved] }))).toBe(true);
  });

  it("decides the order, but being busy does not; processes of one name keep theirs", () => {
    const all = [
      ring("b", { pid: 10 }),
      ring("b", { pid: 9, blocked: 1 }),
      ring("a", { used: 5 }),
      ring("z", { consumers: [unsaved] }),
      ring("y", { consumers: [stuck] }),
    ];
    expect(byUrgency(all).map((one) => `${one.name}${one.pid}`)).toEqual(["y7", "z7", "a7", "b9", "b10"]);
  });

  it("is found by its name, a consumer's and its process", () => {
    const one = ring("prices", { consumers: [consumer("Enrich")] });
    for (const text of ["", "PRI", "enr", "mill 7"]) expect(isMeant(one, text)).toBe(true);
    expect(isMeant(one, "orders")).toBe(false);
  });
});

describe("a consumer", () => {
  it("says what it is at, and for how long", () => {
    expect(workOf(consumer("a"))).toEqual(["idle", "good"]);
    expect(workOf(consumer("a", { state: "running", running_s: 2 }))).toEqual(["running for 2 s", "busy"]);
    expect(workOf(consumer("a", { state: "waiting", running_s: 75 }))).toEqual(["waiting for 1 min 15 s", "warn"]);
    expect(workOf(stuck)).toEqual(["stuck for 1 min 1 s at batch 12", "bad"]);
  });

  it("has batches of microseconds as well as of seconds", () => {
    expect([0, 0.0000001, 0.00025, 0.0015, 12].map(batchTime)).toEqual(["0 s", "1 µs", "250 µs", "2 ms", "12 s"]);
  });
});

describe("how full and how large", () => {
  it("has a colour for the last tenth", () => {
    expect([0, 0.6, 0.9, 1.5].map(fillTone)).toEqual(["good", "warn", "bad", "bad"]);
  });

  it("is in bytes that people read", () => {
    expect([0, 999, 1000, 48_211_000, 999_960, 3.2e15].map(bytes)).toEqual([
      "0 B",
      "999 B",
      "1 kB",
      "48.2 MB",
      "1 MB",
      "3200 TB",
    ]);
  });
});
