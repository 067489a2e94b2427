import { describe, expect, it } from "vitest";
import type { Group, Replay } from "../../src/api/types";
import { NotJson, parseExact } from "../../src/inbox/exact";
import { withNews } from "../../src/inbox/order";
import { bodyOf, canaryOf, newer, newReplayId, patchOf, properCanaries, rateOf } from "../../src/inbox/replaying";

const replay = (state: Replay["state"], sent: number) => ({ id: "r", state, sent }) as Replay;

describe("a replay", () => {
  it("reads what is asked of it", () => {
    expect([canaryOf(" 3 "), canaryOf("0"), canaryOf("1000")]).toEqual([3, 0, 1000]);
    expect([canaryOf(""), canaryOf("-1"), canaryOf("1.5"), canaryOf("1001")]).toEqual([null, null, null, null]);
    expect([rateOf(""), rateOf("0.5"), rateOf(".5"), rateOf("100")]).toEqual([null, 0.5, 0.5, 100]);
    expect([rateOf("0"), rateOf("-1"), rateOf("x"), rateOf("1e9"), rateOf("Infinity")]).toEqual(
      Array(5).fill(undefined),
    );
  });

  it("takes a merge patch to the last digit, and none that hides something", () => {
    const edit = patchOf('{"id": 12345678901234567890, "note": null}');
    const filter = { group: "1:a", failure_type: null, task: "", tenant: null, since: null, until: null, text: "" };
    const body = bodyOf({ filter, edit, canary: 2, rate: 1.5 }, "x1");
    expect(body).toContain('"edit":{"id":12345678901234567890,"note":null}');
    expect(body).toContain('"canary":2,"rate":1.5,"replay_id":"x1"');
    expect(() => parseExact(body)).not.toThrow();
    expect(patchOf("  ")).toBeNull();
    for (const text of ["[1]", '{"a":', '{"token":"[redacted]"}']) expect(() => patchOf(text)).toThrow(NotJson);
  });

  it("has an id of its own that the server takes", () => {
    expect(newReplayId()).toMatch(/^[0-9a-f]{32}$/);
    expect(newReplayId()).not.toBe(newReplayId());
  });

  it("never goes backwards when an old event comes late", () => {
    expect(newer(replay("running", 9), replay("running", 5)).sent).toBe(9);
    expect(newer(replay("running", 5), replay("running", 9)).sent).toBe(9);
    expect(newer(replay("done", 9), replay("running", 5)).state).toBe("done");
    expect(newer(replay("stopped", 5), replay("running", 9)).state).toBe("stopped");
    expect(newer(replay("running", 9), replay("stopped", 9)).state).toBe("stopped");
    expect(newer(replay("paused", 9), undefined).state).toBe("paused");
  });

  it("proposes few canaries, and none for a single letter", () => {
    expect([1, 2, 60, 100_000].map(properCanaries)).toEqual([0, 1, 3, 10]);
  });
});

describe("news of groups", () => {
  const group = { fingerprint: "a", count: 5, last_at: 10 } as Group;

  it("moves counts, unless what was loaded is newer", () => {
    expect(withNews([group], [{ fingerprint: "a", count: 7, last_at: 11 }])[0]).toMatchObject({
      count: 7,
      last_at: 11,
    });
    expect(withNews([group], [{ fingerprint: "a", count: 3, last_at: 9 }])[0]).toBe(group);
    expect(withNews([group], [])[0]).toBe(group);
  });
});
