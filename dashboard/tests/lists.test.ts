import { describe, expect, test } from "vitest";
import { match, type Binding } from "../src/frame/keys";
import { follow } from "../src/frame/paging";
import { stacked } from "../src/ui/stack";

describe("following short pages", () => {
  const all = Array.from({ length: 100 }, (_, at) => at);
  // Like the server: looks at ten rows a call, and answers with those that match.
  const server = (matches: (row: number) => boolean) => {
    const asked: string[] = [];
    const load = async (cursor: string, limit: number) => {
      asked.push(cursor);
      const from = Number(cursor || 0);
      const items = all.slice(from, from + 10).filter(matches).slice(0, limit);
      const next = items.length === limit ? (items.at(-1) ?? 0) + 1 : from + 10;
      return { items, cursor: next < all.length ? String(next) : "" };
    };
    return { asked, load };
  };

  test("goes on until the page is full, and the next one begins right after it", async () => {
    const { load } = server((row) => row % 5 === 0);
    const first = await follow(load, "", 7);
    const second = await follow(load, first.cursor, 7);
    expect(first.items).toEqual([0, 5, 10, 15, 20, 25, 30]);
    expect(second.items).toEqual([35, 40, 45, 50, 55, 60, 65]);
  });

  test("ends with the list", async () => {
    const { load } = server((row) => row === 99);
    expect(await follow(load, "", 50, 20)).toEqual({ items: [99], cursor: "" });
  });

  test("gives up after so many rounds, with a cursor to go on from", async () => {
    const { load, asked } = server(() => false);
    expect(await follow(load, "", 50, 3)).toEqual({ items: [], cursor: "30" });
    expect(asked).toEqual(["", "10", "20"]);
  });

  test("does not ask for ever when a cursor leads to itself", async () => {
    let calls = 0;
    const load = async () => {
      calls += 1;
      return { items: [], cursor: "same" };
    };
    await follow(load, "same", 50);
    expect(calls).toBe(1);
  });
});

describe("keys", () => {
  const binding = (keys: string): Binding => ({ keys, does: "", run: () => undefined });
  const known = [binding("j"), binding("g i"), binding("g j")];

  test("one key, or two in a row", () => {
    expect(match(known, "j", "").binding?.keys).toBe("j");
    expect(match(known, "g", "")).toEqual({ binding: undefined, waiting: "g" });
    expect(match(known, "i", "g").binding?.keys).toBe("g i");
    expect(match(known, "j", "g").binding?.keys).toBe("g j");
  });
  test("a key that does not follow stands for itself", () => {
    expect(match([binding("x"), binding("g i")], "x", "g").binding?.keys).toBe("x");
    expect(match(known, "i", "")).toEqual({ binding: undefined, waiting: "" });
    expect(match(known, "g", "g")).toEqual({ binding: undefined, waiting: "g" });
  });
  test("the newest registration wins", () => {
    const newer = binding("j");
    expect(match([...known, newer], "j", "").binding).toBe(newer);
  });
});

test("stacked series stand on each other, and a gap adds nothing", () => {
  expect(stacked([[1, 2, 3], [1, null, 1], [0, 5, 1]])).toEqual([[1, 2, 3], [2, 2, 4], [2, 7, 5]]);
});
