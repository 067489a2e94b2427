import { describe, expect, test } from "vitest";
import { attentionOf } from "../src/pages/overview/attention";

const well = {
  workers: 1,
  queues: [],
  open_breakers: [],
  alerts: [],
  health: "healthy" as const,
  reasons: [],
  is_durable: true,
  durability: "all",
  warnings: [],
};
const due = { name: "mail", is_paused: false, depth: 1, states: {}, lag_s: 0 };
const textsOf = (of: Partial<Parameters<typeof attentionOf>[0]>) => attentionOf({ ...well, ...of }).map((line) => line[1]);

describe("what needs attention", () => {
  test("is nothing where all is well", () => {
    expect(textsOf({})).toEqual([]);
  });

  test("is a missing worker, and that jobs wait only where some are due and not paused", () => {
    expect(textsOf({ workers: 0 })).toEqual(["No worker is alive."]);
    expect(textsOf({ workers: 0, queues: [{ ...due, lag_s: null }] })).toEqual(["No worker is alive."]);
    expect(textsOf({ workers: 0, queues: [{ ...due, is_paused: true }] })).toEqual(["No worker is alive."]);
    expect(textsOf({ workers: 0, queues: [due] })).toEqual(["No worker is alive: jobs wait."]);
    expect(textsOf({ workers: 0, queues: [{ ...due, name: "crawl:shop" }] })).toEqual(["No worker is alive."]);
  });

  test("has the reasons of a low score, and none that has a line already", () => {
    const reasons = ["check vendor failed", "breaker pay\nments is open", "jobs are due and no worker is alive"];
    const of = { health: "unhealthy" as const, reasons, open_breakers: ["pay\nments"], workers: 0, queues: [due] };
    expect(attentionOf({ ...well, ...of }).map(([tone, text]) => [tone, text])).toEqual([
      ["bad", "No worker is alive: jobs wait."],
      ["bad", "The breaker pay\nments is open."],
      ["bad", "Check vendor failed."],
    ]);
    expect(attentionOf({ ...well, health: "degraded", reasons })[0]?.[0]).toBe("warn");
  });

  test("leads to the streams, rings or crawls where these are the reason", () => {
    const reasons = ["check streams failed", "check rings failed", "check crawls failed", "check vendor failed"];
    const lines = attentionOf({ ...well, health: "unhealthy", reasons });
    expect(lines.map(([, , target]) => target)).toEqual(["#/streams", "#/rings", "#/crawls", ""]);
  });

  test("is no reason of a score that is healthy", () => {
    expect(textsOf({ reasons: ["less than 1 % of attempts failed in 5 minutes"] })).toEqual([]);
  });
});
