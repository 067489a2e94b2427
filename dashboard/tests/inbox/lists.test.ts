import { describe, expect, it } from "vitest";
import type { Group, Replay } from "../../src/api/types";
import { changesBetween } from "../../src/inbox/diff";
import { parseExact } from "../../src/inbox/exact";
import { filtersInWords, filtersOf, isFiltering, letterFilter, letterSearch } from "../../src/inbox/filters";
import { foldsOf } from "../../src/inbox/frames";
import { held, sorted } from "../../src/inbox/order";
import { reasonInWords, replayInWords } from "../../src/inbox/words";

function group(fingerprint: string, count: number, last_at: number): Group {
  return {
    fingerprint,
    count,
    last_at,
    first_at: 0,
    tasks: [],
    tenants: [],
    failure_type: "transient",
    severity: "low",
    error_name: "E",
    message: "",
    sample_id: "",
    hours: [],
  };
}

describe("the order of groups", () => {
  const before = [group("a", 5, 1), group("b", 3, 9)];

  it("is by size or by when it was last seen", () => {
    expect(sorted(before, "count").map((one) => one.fingerprint)).toEqual(["a", "b"]);
    expect(sorted(before, "last").map((one) => one.fingerprint)).toEqual(["b", "a"]);
  });

  it("holds still while counts move, and counts what waits", () => {
    const { shown, waiting } = held(before, [group("c", 99, 99), group("b", 50, 10)]);
    expect(shown.map((one) => [one.fingerprint, one.count])).toEqual([
      ["a", 0],
      ["b", 50],
    ]);
    expect(waiting).toBe(1);
  });
});

describe("filters", () => {
  it("mean the same to the server as in the address bar", () => {
    const filters = filtersOf({ task: ["charge"], tenant: ["acme"], type: ["network"], q: ["<x>"], range: ["1h"] });
    const replayed = {
      group: "1:ab",
      failure_type: "network",
      task: "charge",
      tenant: "acme",
      since: 6_400,
      until: null,
    };
    expect(letterFilter(filters, 10_000, "1:ab")).toEqual(replayed);
    expect(letterSearch(filters, 10_000, "1:ab")).toEqual({ ...replayed, text: "<x>" });
    expect(filtersInWords(filters)).toBe("task charge, tenant acme, failure type network, text “<x>”, last hour");
  });

  it("come out of any address", () => {
    const filters = filtersOf({ type: ["nonsense"], range: ["9y"], since: ["NaN"], q: ["x".repeat(999)] });
    expect(filters).toMatchObject({ type: "", range: "", since: null });
    expect(filters.text).toHaveLength(200);
    expect(isFiltering(filtersOf({}))).toBe(false);
    expect(isFiltering(filters)).toBe(true);
  });
});

describe("a traceback", () => {
  it("folds library frames in a row, and nothing else", () => {
    const frame = (text: string, is_user_code = false) => ({ text, is_user_code });
    const folds = foldsOf([
      frame("Traceback (most recent call last):"),
      frame('  File "/site-packages/a.py", line 1, in f'),
      frame('  File "/site-packages/b.py", line 2, in g'),
      frame('  File "/app/shop.py", line 3, in pay', true),
      frame('  File "/app/bank.py", line 4, in ask', true),
      frame("ValueError: no"),
    ]);
    expect(folds.map((fold) => [fold.kind, fold.frames.length])).toEqual([
      ["text", 1],
      ["library", 2],
      ["user", 1],
      ["user", 1],
      ["text", 1],
    ]);
  });
});

describe("changes", () => {
  it("are listed key by key", () => {
    const changes = changesBetween(
      parseExact('{"a":1,"b":{"c":1.0,"d":2},"x":0}'),
      parseExact('{"a":1,"b":{"c":1,"d":2},"y":[1]}'),
    );
    expect(changes.map((one) => one.path)).toEqual(["b.c", "y", "x"]);
    expect(changes[1]).toEqual({ path: "y", before: undefined, after: [1] });
  });
});

describe("words", () => {
  const replay: Replay = {
    id: "r",
    state: "stopped",
    verdict: "failed",
    reason: "canary 7 failed again with the same cause: Timeout: slow",
    group: "",
    task: "",
    tenant: null,
    canary: 2,
    rate: null,
    total: 10,
    sent: 2,
    created_at: 0,
  };

  it("say why a replay stopped by itself, and what is left", () => {
    expect(replayInWords(replay)).toBe(
      "Stopped by itself, as the cause is not mended: Canary 7 failed again with the same cause: Timeout: slow. 8 letters stay in the inbox.",
    );
    expect(replayInWords({ ...replay, verdict: "", reason: "stopped by hand", sent: 9 })).toBe(
      "Stopped by hand. 1 letter stays in the inbox.",
    );
    expect(replayInWords({ ...replay, state: "paused", reason: "paused by ann", sent: 9 })).toBe(
      "Paused by ann. 1 letter waits for it to go on.",
    );
    expect(replayInWords({ ...replay, state: "running", verdict: "waiting" })).toContain("2 canaries");
  });

  it("keep a reason that is not known", () => {
    expect(reasonInWords("the moon")).toBe("The moon.");
    expect(reasonInWords("")).toBe("");
  });
});
