import { describe, expect, test } from "vitest";
import { count, duration, heading, percent, plural, rate, relative, roughly, shortCount, shortId } from "../src/ui/format";

describe("lengths of time", () => {
  test.each([
    [0, "0 s"],
    [0.0004, "< 1 ms"],
    [0.0823, "82 ms"],
    [0.9996, "1 s"],
    [1.25, "1.3 s"],
    [5, "5 s"],
    [9.96, "10 s"],
    [59.6, "1 min"],
    [75, "1 min 15 s"],
    [3600, "1 h"],
    [3605, "1 h"],
    [90061, "1 d 1 h"],
    [-2, "−2 s"],
    [Number.NaN, "–"],
  ])("%d s reads %s", (seconds, text) => expect(duration(seconds)).toBe(text));

  test("only the largest unit is said of how long ago", () => {
    expect(roughly(59.9)).toBe("59 s");
    expect(roughly(7300)).toBe("2 h");
    expect(roughly(0.2)).toBe("0 s");
  });

  test("instants stand before and after now", () => {
    expect(relative(100, 100.4)).toBe("now");
    expect(relative(100, 290)).toBe("3 min ago");
    expect(relative(100, 70)).toBe("in 30 s");
  });
});

describe("numbers", () => {
  test("are grouped, and shortened where there is little room", () => {
    expect(count(48211)).toBe("48,211");
    expect(shortCount(9999)).toBe("9,999");
    expect(shortCount(48211)).toBe("48.2K");
  });
  test("a share never reads 100 % when something failed", () => {
    expect(percent(0.962)).toBe("96.2 %");
    expect(percent(1)).toBe("100 %");
    expect(percent(0.99999)).toBe("99.9 %");
    expect(percent(0)).toBe("0 %");
    expect(percent(0.00001)).toBe("0.1 %");
  });
  test("rates have the digits they need", () => {
    expect(rate(0)).toBe("0/s");
    expect(rate(0.3)).toBe("0.3/s");
    expect(rate(15.2)).toBe("15/s");
    expect(rate(1234)).toBe("1,234/s");
  });
  test("one is not many", () => {
    expect(plural(1, "job")).toBe("1 job");
    expect(plural(0, "job")).toBe("0 jobs");
    expect(plural(2, "reply", "replies")).toBe("2 replies");
  });
});

test("names are put into words", () => expect(heading("dead_letter")).toBe("Dead letter"));

test("an id is shown by its end, where ids of one instant differ", () => {
  expect(shortId("0192f3a4-0001-7c11-9d2e-1e2f414c343c")).toBe("…2f414c343c");
  expect(shortId("short")).toBe("short");
});
