import { describe, expect, it } from "vitest";
import type { JobSummary, MessageOrigin } from "../../src/api/types";
import { parseExact, type ExactObject } from "../../src/inbox/exact";
import { entryOf, fieldsOf } from "../../src/inbox/form";
import {
  editable,
  hiddenParts,
  isGone,
  messageOf,
  messagesOf,
  misfitsIn,
  partsOf,
  payloadWith,
  placeOf,
  schemaOf,
  sentTo,
  targetOf,
  toOf,
} from "../../src/inbox/message";

const ORIGIN: MessageOrigin = { kind: "message", group: "billing", topic: "orders", partition: 3, offset: "1042" };
const PAYLOAD = parseExact(
  '{"origin": {"kind": "message"}, "value": {"id": 12345678901234567890}, "headers": [["a", "b"]], "timestamp": 1.5, "to": "retry", "exact_secret": "[redacted]"}',
) as ExactObject;
const letter = (task: string, origin: JobSummary["origin"] = ORIGIN) => ({ job: { task, origin } });

describe("a message as a letter", () => {
  it("is named and sent by where it came from", () => {
    expect(placeOf(ORIGIN)).toBe("orders/3/1042");
    expect(placeOf({ ...ORIGIN, offset: "1700000000000-0" })).toBe("orders/1700000000000-0");
    expect(targetOf(ORIGIN, "retry")).toBe("orders.billing.retry.0");
    expect(targetOf(ORIGIN, "topic")).toBe("orders");
    expect(messageOf({ origin: { kind: "job" } })).toBeNull();
  });

  it("shows its key, value and headers, and sends all the rest back as it was", () => {
    const parts = partsOf(PAYLOAD);
    expect(Object.keys(parts)).toEqual(["key", "value", "headers"]);
    expect(parts["key"]).toBeNull();
    const sent = payloadWith(PAYLOAD, { ...parts, key: "k" }, "topic");
    expect(sent).toEqual({ ...PAYLOAD, key: "k", to: "topic" });
    expect([toOf(PAYLOAD), toOf(sent), toOf("spoiled")]).toEqual(["retry", "topic", "retry"]);
    expect(editable(sent)).toEqual({ ...parts, key: "k", to: "topic" });
    expect(partsOf(null)).toEqual({ key: null, value: null, headers: [] });
  });

  it("tells of hidden values that somebody sees", () => {
    expect(hiddenParts(["/value/password", "/exact_secret", "/key"])).toEqual(["/value/password", "/key"]);
  });

  it("has texts typed as they are, and all else as JSON", () => {
    const kinds = (parts: ExactObject) => fieldsOf(schemaOf(parts), parts, []).map((field) => field.kind);
    expect(kinds({ key: "k", value: "v", headers: [] })).toEqual(["text", "text", "json"]);
    expect(kinds({ key: null, value: { a: 1 }, headers: [] })).toEqual(["text", "json", "json"]);
    expect(kinds({ key: { base64: "/w==" }, value: null, headers: [] })).toEqual(["json", "json", "json"]);
    const [key] = fieldsOf(schemaOf(partsOf(PAYLOAD)), partsOf(PAYLOAD), []);
    expect(key && entryOf(key).mode).toBe("null");
  });

  it("is refused when no message can be made of it", () => {
    const fine = { key: "k", value: 1, headers: [["a", null], ["b", { base64: "/w==" }], ["b", "again"]] };
    expect(misfitsIn(fine).size).toBe(0);
    expect(misfitsIn({ ...fine, key: { base64: "/w==" } }).size).toBe(0);
    const wrong = (parts: ExactObject) => [...misfitsIn(parts).keys()];
    expect(wrong({ ...fine, key: 7 })).toEqual(["key"]);
    expect(wrong({ ...fine, key: { base64: 1 } })).toEqual(["key"]);
    expect(wrong({ key: null, value: 1 })).toEqual(["headers"]);
    for (const headers of [{}, ["a"], [["a"]], [[1, "b"]], [["a", 1]], [["a", "b", "c"]]]) {
      expect(wrong({ ...fine, headers })).toEqual(["headers"]);
    }
    expect(wrong({ ...fine, to: "topic" })).toEqual(["to"]);
  });

  it("has nothing to send when it was deleted before anybody read it", () => {
    expect([isGone({ ...PAYLOAD, is_gone: true }), isGone({ value: null, is_gone: true }), isGone({ value: null })]).toEqual([false, true, false]);
  });

  it("says where it was sent while it waits there", () => {
    const job = { state: "waiting", reason: "sent to orders.billing.retry.0", origin: ORIGIN } as const;
    expect(sentTo(job)).toBe("orders.billing.retry.0");
    expect(sentTo({ ...job, state: "completed" })).toBe("");
    expect(sentTo({ ...job, reason: "breaker open" })).toBe("");
    expect(sentTo({ ...job, origin: { kind: "job" } })).toBe("");
  });

  it("may go to its topic with others of one stream, and not beside jobs", () => {
    expect(messagesOf([letter("bill"), letter("bill")]).only).toEqual({ task: "bill", origin: ORIGIN });
    expect(messagesOf([letter("bill"), letter("ship")])).toEqual({ areSome: true, areAll: true, only: null });
    expect(messagesOf([letter("bill"), letter("charge", { kind: "job" })])).toEqual({ areSome: true, areAll: false, only: null });
    expect(messagesOf([])).toEqual({ areSome: false, areAll: false, only: null });
  });
});
