import { describe, expect, test } from "vitest";
import { href, parseHash } from "../src/frame/router";
import { addressOf } from "../src/api/address";

describe("a route", () => {
  test.each(["", "#", "#/", "#//", "/"])("of %j is the inbox", (hash) => {
    expect(parseHash(hash).parts).toEqual(["inbox"]);
  });

  test("comes back as it was made, whatever the names hold", () => {
    const id = "a/b?c#d %é";
    const made = href(["jobs", id], { state: ["running", "queued"], q: "x&y=z + 1", task: "", tenant: null });
    const read = parseHash(made);
    expect(read.parts).toEqual(["jobs", id]);
    expect({ ...read.query }).toEqual({ state: ["running", "queued"], q: ["x&y=z + 1"] });
  });

  test("that is broken is still a route", () => {
    expect(parseHash("#/jobs/%E0%A4%A").parts).toEqual(["jobs", "%E0%A4%A"]);
    expect(parseHash("#/jobs?__proto__=1&constructor=2").query["constructor"]).toEqual(["2"]);
  });

  test("leaves nothing but the hash to say where it leads", () => {
    expect(href("javascript:alert(1)")).toBe("#/javascript%3Aalert(1)");
    expect(href(["..", "//evil.example"])).toBe("#/../%2F%2Fevil.example");
  });
});

describe("an address of the API", () => {
  test("is relative, so that the page works under any prefix", () => {
    expect(addressOf("/overview")).toBe("./overview");
  });
  test("carries any name as one part of the path", () => {
    expect(addressOf("/breakers/{key}/reset", { key: "a/b?c#d" })).toBe("./breakers/a%2Fb%3Fc%23d/reset");
  });
  test("repeats lists and leaves out what is empty", () => {
    expect(addressOf("/jobs", {}, { state: ["running", "queued"], task: "", limit: 0, text: undefined, tenant: null })).toBe(
      "./jobs?state=running&state=queued&limit=0",
    );
  });
  test("is refused without its parameters", () => {
    expect(() => addressOf("/jobs/{id}")).toThrow("/jobs/{id} needs id");
    expect(() => addressOf("/jobs/{id}", { id: "" })).toThrow("needs id");
  });
});
