import { describe, expect, it } from "vitest";
import type { Crawl, CrawlProcess } from "../src/api/types";
import {
  byUrgency,
  conditionOf,
  etaInWords,
  holdOf,
  isDomainMeant,
  isMeant,
  needsALook,
  shareOf,
} from "../src/pages/crawls/condition";

const process = (said: Partial<CrawlProcess> = {}): CrawlProcess => ({
  worker: "w",
  host: "mill",
  pid: 7,
  seen_at: 0,
  in_flight: 0,
  fetched: 0,
  failed: 0,
  skipped: 0,
  items: 0,
  found: 0,
  bytes: 0,
  rate_per_s: 0,
  held: 0,
  output: "",
  output_error: "",
  ...said,
});

const crawl = (name: string, said: Partial<Crawl> = {}): Crawl => ({
  name,
  state: "running",
  task: `crawl:${name}`,
  started_at: null,
  finished_at: null,
  done: 0,
  pending: 0,
  waiting: 0,
  dead: 0,
  skipped: 0,
  in_flight: 0,
  rate_per_s: 0,
  eta_s: null,
  processes: [process()],
  ...said,
});

const full = process({ output_error: "disk full" });

describe("how a crawl is", () => {
  it("is its state, unless its items cannot be written", () => {
    for (const state of ["running", "stopped", "finished"] as const) expect(conditionOf(crawl("a", { state }))).toBe(state);
    expect(conditionOf(crawl("a", { processes: [process(), full] }))).toBe("unwritten");
  });

  it("needs no look for sites that are down", () => {
    expect(needsALook(crawl("a", { dead: 9, waiting: 9, processes: [process({ held: 9 })] }))).toBe(false);
    expect(needsALook(crawl("a", { processes: [full] }))).toBe(true);
  });

  it("decides the order, then names do", () => {
    const all = [
      crawl("d", { state: "finished" }),
      crawl("c", { state: "stopped" }),
      crawl("b"),
      crawl("a"),
      crawl("z", { processes: [full] }),
    ];
    expect(byUrgency(all).map((one) => one.name)).toEqual(["z", "a", "b", "c", "d"]);
  });

  it("has a share of what is known, and none of nothing", () => {
    expect(shareOf(crawl("a"))).toBeNull();
    expect(shareOf(crawl("a", { done: 5, dead: 1, skipped: 1, pending: 3 }))).toBe(0.7);
  });

  it("says how long it takes, or why nobody can say", () => {
    expect(etaInWords(crawl("a"))).toBe("nothing is left");
    expect(etaInWords(crawl("a", { state: "stopped", pending: 1 }))).toBe("no process is on it");
    expect(etaInWords(crawl("a", { pending: 1 }))).toBe("nobody can say yet");
    expect(etaInWords(crawl("a", { pending: 9, eta_s: 125 }))).toBe("about 2 min 5 s at this rate");
  });

  it("is found by its name", () => {
    expect(isMeant(crawl("Shop"), "sho")).toBe(true);
    expect(isMeant(crawl("Shop"), "news")).toBe(false);
  });
});

describe("a domain", () => {
  const domain = { held_until_at: null, breaker_state: "closed" as const, in_flight: 0 };

  it("is held until its time is over, then what its breaker and requests say", () => {
    expect(holdOf({ ...domain, held_until_at: 10, breaker_state: "open" }, 9)).toBe("held");
    expect(holdOf({ ...domain, held_until_at: 10 }, 10)).toBe("idle");
    expect(holdOf({ ...domain, breaker_state: "open", in_flight: 1 }, 0)).toBe("breaker");
    expect(holdOf({ ...domain, breaker_state: "forced_open" }, 0)).toBe("breaker");
    expect(holdOf({ ...domain, breaker_state: "half_open", in_flight: 1 }, 0)).toBe("busy");
  });

  it("is found by its name and by why it is held", () => {
    const one = { domain: "example.org", why: "Retry-After" };
    expect([isDomainMeant(one, "EXAMPLE"), isDomainMeant(one, "retry"), isDomainMeant(one, "other")]).toEqual([true, true, false]);
  });
});
