import { describe, expect, it } from "vitest";
import type { PageOrigin } from "../../src/api/types";
import { dataIn, hiddenData, misfitsInData, pageOf } from "../../src/inbox/page";

const origin: PageOrigin = {
  kind: "page",
  crawl: "shop",
  url: "https://example.org/a",
  domain: "example.org",
  depth: 2,
  referrer: "https://example.org/",
};

describe("a letter that is a page", () => {
  it("says which page it is", () => {
    expect(pageOf({ origin })).toBe(origin);
    expect(pageOf({ origin: { kind: "job" } })).toBeNull();
  });

  it("shows its data alone, and none where there is none", () => {
    expect(dataIn({ url: "https://example.org/a", data: { sku: 1 } })).toEqual({ data: { sku: 1 } });
    expect(dataIn({ url: "https://example.org/a" })).toEqual({ data: {} });
    expect(dataIn("no object")).toEqual({ data: {} });
    expect(hiddenData(["/url", "/data/token", "/database"])).toEqual(["/data/token"]);
  });

  it("takes an object as data, and nothing beside it", () => {
    expect([...misfitsInData({ data: {} })]).toEqual([]);
    for (const data of [[], null, "text", 1]) expect([...misfitsInData({ data }).keys()]).toEqual(["data"]);
    expect([...misfitsInData({ data: {}, url: "https://elsewhere.example/" }).keys()]).toEqual(["url"]);
    expect([...misfitsInData({}).keys()]).toEqual(["data"]);
  });
});
