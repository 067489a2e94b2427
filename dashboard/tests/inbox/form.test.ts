import { describe, expect, it } from "vitest";
import { type ExactObject, exactText, parseExact } from "../../src/inbox/exact";
import {
  type Entry,
  entryOf,
  fieldOfProblem,
  fieldsOf,
  mismatchOf,
  problemsByField,
  readForm,
} from "../../src/inbox/form";
import { HIDDEN } from "../../src/inbox/secrets";

const SCHEMA = parseExact(`{
  "type": "object",
  "properties": {
    "order": {"type": "integer", "minimum": 1},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": null},
    "rush": {"type": "boolean", "default": false},
    "plan": {"$ref": "#/$defs/Plan"},
    "lines": {"type": "array", "items": {"type": "integer"}},
    "who": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "api_token": {"type": "string"},
    "any": {}
  },
  "required": ["order", "plan"],
  "$defs": {"Plan": {"enum": ["free", "paid"]}}
}`);

function formOf(stored: string, redacted: string[] = [], edits: Record<string, Partial<Entry>> = {}) {
  const values = parseExact(stored) as ExactObject;
  const fields = fieldsOf(SCHEMA, values, redacted);
  const entries = new Map(
    fields.map((field) => [
      field.name,
      { ...entryOf(field), ...(edits[field.name] && { isTouched: true, ...edits[field.name] }) },
    ]),
  );
  return { fields, reading: readForm(fields, entries, values) };
}

const field = (name: string, stored = "{}") => formOf(stored).fields.find((one) => one.name === name);

describe("a form from a schema", () => {
  it("knows how each argument is typed in", () => {
    const kinds = Object.fromEntries(formOf("{}").fields.map((one) => [one.name, one.kind]));
    expect(kinds).toEqual({
      order: "integer",
      note: "text",
      rush: "boolean",
      plan: "choice",
      lines: "json",
      who: "json",
      api_token: "text",
      any: "json",
    });
    expect(field("note")?.modes).toEqual(["value", "null", "absent"]);
    expect(field("order", '{"order":1}')?.modes).toEqual(["value"]);
    expect(field("order")?.type).toBe("whole number, at least 1");
    expect(field("plan")?.choices).toEqual(["free", "paid"]);
  });

  it("shows arguments that the task does not know, and says so", () => {
    expect(field("old_name", '{"old_name":1}')).toMatchObject({ isKnown: false, kind: "json" });
    expect(fieldsOf(null, { a: 1 }, [])[0]).toMatchObject({ isKnown: true, kind: "json" });
  });

  it("gives back what is stored to the last digit when nobody touched it", () => {
    const stored = '{"order":"12","plan":"gone","who":12345678901234567890,"any":{"x":1.0},"rush":"yes"}';
    expect(exactText(formOf(stored).reading.arguments)).toBe(
      '{"order":"12","rush":"yes","plan":"gone","who":12345678901234567890,"any":{"x":1.0}}',
    );
  });

  it("says when a stored value is not what the input makes it look like", () => {
    expect(mismatchOf(field("order", '{"order":"12"}')!)).toBe('stored as text: "12"');
    expect(mismatchOf(field("order", '{"order":12}')!)).toBe("");
    expect(mismatchOf(field("plan", '{"plan":"gone"}')!)).toBe('stored as text: "gone"');
  });

  it("reads what was typed by the kind of the field", () => {
    const edits = {
      order: { text: " 98765432109876543210 " },
      note: { mode: "null" as const },
      rush: { mode: "value" as const, text: "true" },
      lines: { mode: "value" as const, text: "[1, 2]" },
      plan: { text: '"paid"' },
    };
    const { reading } = formOf('{"order":1,"plan":"free","note":"x"}', [], edits);
    expect(reading.errors.size).toBe(0);
    expect(exactText(reading.arguments)).toBe(
      '{"order":98765432109876543210,"note":null,"rush":true,"plan":"paid","lines":[1,2]}',
    );
  });

  it("names the fields that cannot be read", () => {
    const { reading } = formOf('{"order":1}', [], { order: { text: "1.5" }, lines: { mode: "value", text: "[1," } });
    expect([...reading.errors.keys()].sort()).toEqual(["lines", "order", "plan"]);
    expect(reading.errors.get("plan")).toBe("it is required");
  });

  it("keeps a hidden value unless it is replaced", () => {
    const stored = `{"order":1,"plan":"free","api_token":"${HIDDEN}"}`;
    const kept = formOf(stored, ["/api_token"]);
    expect(kept.fields.find((one) => one.name === "api_token")?.modes[0]).toBe("stored");
    expect(kept.reading.arguments["api_token"]).toBe(HIDDEN);
    const replaced = formOf(stored, ["/api_token"], { api_token: { mode: "value", text: "new" } });
    expect(replaced.reading.arguments["api_token"]).toBe("new");
    const inside = formOf('{"order":1,"plan":"free","note":"http://a:[redacted]@b"}', ["/note"]);
    expect(inside.reading.arguments["note"]).toBe("http://a:[redacted]@b");
    expect(inside.reading.errors.size).toBe(0);
  });

  it("refuses [redacted] where nothing is hidden", () => {
    const { reading } = formOf('{"order":1,"plan":"free"}', [], { note: { mode: "value", text: HIDDEN } });
    expect(reading.errors.get("note")).toContain("no hidden value is stored here");
  });

  it("puts the server's problems next to their fields", () => {
    const names = ["order", "a.b", "a", "lines", "a/b"];
    expect(fieldOfProblem("arguments.order", names)).toBe("order");
    expect(fieldOfProblem("order", names)).toBe("order");
    expect(fieldOfProblem("/lines/0", names)).toBe("lines");
    expect(fieldOfProblem("lines[0]", names)).toBe("lines");
    expect(fieldOfProblem("a.b", names)).toBe("a.b");
    expect(fieldOfProblem("/a~1b", names)).toBe("a/b");
    expect(fieldOfProblem("arguments", names)).toBe("");
    expect(fieldOfProblem("orders", names)).toBe("");
  });

  it("finds the fields that a message is about when the server names no place", () => {
    const told = (message: string) => [...problemsByField([{ where: "arguments", message }], ["a", "b"])];
    expect(told("pay(): argument 'a': expected int, got str 'x'")).toEqual([["a", "expected int, got str 'x'"]]);
    expect(told("pay(): argument 'a', at a[0]: expected int")).toEqual([["a", "at a[0]: expected int"]]);
    expect(told("pay() is missing the arguments 'a' and 'b'").map(([name]) => name)).toEqual(["a", "b"]);
    expect(told("pay() has no argument 'z'")).toEqual([["", "pay() has no argument 'z'"]]);
  });
});
