import { describe, expect, it } from "vitest";
import { exactText, isSame, NotJson, parseExact } from "../../src/inbox/exact";

describe("exact JSON", () => {
  it.each([
    '{"id":9007199254740993}',
    "[1.0,1e400,-0,0.1]",
    '{"__proto__":1,"constructor":{"a":[]}}',
    '"\\u2028<img>"',
    "{}",
  ])("comes back as it was: %s", (text) => {
    expect(JSON.parse(exactText(parseExact(text)))).toEqual(JSON.parse(text));
    expect(exactText(parseExact(text)).replaceAll("\u2028", "\\u2028")).toBe(text);
  });

  it.each(["", "{", '{"a":1,}', "[1,]", "01", "1.", "nul", '"a', '"\n"', "{a:1}", "1 2", "[".repeat(500), "NaN"])(
    "refuses what is no JSON: %s",
    (text) => {
      expect(() => parseExact(text)).toThrow(NotJson);
    },
  );

  it("says where it went wrong", () => {
    expect(() => parseExact('{\n  "a": x\n}')).toThrow("line 2, column 8: a value is expected");
  });

  it("writes with an indent that reads back the same", () => {
    const value = parseExact('{"a":[1,{"b":12345678901234567890}],"c":{}}');
    expect(exactText(value, 2)).toContain('\n  "a": [\n    1,');
    expect(isSame(parseExact(exactText(value, 2)), value)).toBe(true);
  });

  it("compares by value, whatever the order of keys, and tells a missing key from another", () => {
    expect(isSame(parseExact('{"a":1,"b":2.0}'), parseExact('{"b":2.0,"a":1}'))).toBe(true);
    expect(isSame(parseExact('{"a":1}'), parseExact('{"constructor":1}'))).toBe(false);
    expect(isSame(parseExact("9007199254740993"), parseExact("9007199254740992"))).toBe(false);
  });
});
