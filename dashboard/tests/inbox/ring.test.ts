import { describe, expect, it } from "vitest";
import type { RingOrigin } from "../../src/api/types";
import { elementsIn, hiddenElements, misfitsInElements, ringOf, spotOf } from "../../src/inbox/ring";

const origin: RingOrigin = { kind: "ring", ring: "prices", consumer: "enrich", batch: 12, offset: "4100", count: 2 };

describe("a letter of a ring", () => {
  it("is known by its origin, and named by its place", () => {
    expect(ringOf({ origin })).toBe(origin);
    expect(ringOf({ origin: { kind: "job" } })).toBeNull();
    expect(spotOf(origin)).toBe("prices/enrich, batch 12, offset 4100");
    expect(spotOf({ ...origin, offset: null })).toBe("prices/enrich, batch 12");
  });

  it("has elements to edit, and nothing else", () => {
    expect(elementsIn({ origin: { kind: "ring" }, elements: [1, 2] })).toEqual({ elements: [1, 2] });
    expect(elementsIn("spoiled")).toEqual({ elements: [] });
    expect(hiddenElements(["/elements/0/password", "/origin/token"])).toEqual(["/elements/0/password"]);
  });

  it("is not sent with what no consumer could be called with", () => {
    expect([...misfitsInElements({ elements: [null] })]).toEqual([]);
    expect([...misfitsInElements({ elements: [] }).keys()]).toEqual(["elements"]);
    expect([...misfitsInElements({ elements: "x", origin: {} }).keys()]).toEqual(["origin", "elements"]);
  });
});
