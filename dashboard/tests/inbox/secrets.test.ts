import { describe, expect, it } from "vitest";
import { parseExact } from "../../src/inbox/exact";
import { hiddenIn, misplacedIn, pointerOf, stepsOf } from "../../src/inbox/secrets";

const STORED = parseExact(
  '{"users":[{"n":1,"pin":"[redacted]"},{"n":2,"pin":"[redacted]"}],"a/b":{"key":"[redacted]"}}',
);
const REDACTED = ["/users/0/pin", "/users/1/pin", "/a~1b/key"];
const problems = (edited: string) => misplacedIn(parseExact(edited), STORED).map((one) => one.pointer);

describe("hidden values", () => {
  it("are found by their pointers", () => {
    expect(hiddenIn(STORED)).toEqual(REDACTED);
    expect(stepsOf("/a~1b/~0x")).toEqual(["a/b", "~x"]);
    expect(pointerOf(["a/b", "~x", 0])).toBe("/a~1b/~0x/0");
  });

  it("can stay, go, or be replaced, and what is beside them can change", () => {
    expect(misplacedIn(STORED, STORED)).toEqual([]);
    expect(problems('{"users":[],"a/b":{"key":"new"}}')).toEqual([]);
    expect(problems('{"users":[{"n":9,"pin":"[redacted]"},{"n":2,"pin":"1234"}]}')).toEqual([]);
  });

  it("cannot be moved to another place of a list", () => {
    expect(problems('{"users":[{"n":2,"pin":"[redacted]"}]}')).toEqual(["/users"]);
    expect(problems('{"users":[{"n":2,"pin":"[redacted]"},{"n":1,"pin":"[redacted]"}]}')).toEqual(["/users"]);
  });

  it("cannot be made up", () => {
    expect(problems('{"other":"[redacted]"}')).toEqual(["/other"]);
    expect(problems('{"a/b":{"key":"x [redacted]"}}')).toEqual(["/a~1b/key"]);
    expect(problems('{"users":[[{"pin":"[redacted]"}]]}')).toEqual(["/users"]);
  });
});
