/** Replays as the page knows them: asked for, then followed. */

import { useEffect } from "preact/hooks";
import { api, apiText } from "../api/client";
import type { LetterFilter, Preview, Replay } from "../api/types";
import { replays as news } from "../frame/live";
import { type Resource, useResource } from "../frame/resource";
import { type Exact, type ExactObject, exactText, isObject, NotJson, own, parseExact } from "./exact";
import { problemsByField } from "./form";
import { checkArguments } from "./letter";
import { hiddenIn, stepsOf } from "./secrets";
import { isUnderWay } from "./words";

const FOLLOW_MS = 2_000;

/** Every replay, newest first; those under way as the last event had them. */
export function useReplays(): Resource<readonly Replay[]> {
  const found = useResource("replays", async (signal) => (await api.get("/replays", { signal })).items);
  const latest = new Map(news.value.map((replay) => [replay.id, replay]));
  const data = found.data?.map((replay) => newer(replay, latest.get(replay.id))) ?? null;
  const isFollowed = data?.some(isUnderWay) ?? false;
  useEffect(() => {
    // Events tell of those that run; that one has ended, or was paused elsewhere, is asked for.
    if (!isFollowed) return;
    const timer = setInterval(() => {
      if (!document.hidden) void found.reload();
    }, FOLLOW_MS);
    return () => clearInterval(timer);
  }, [isFollowed, found.reload]);
  return { ...found, data };
}

/** Of two looks at one replay, the later: it never sends back, and never runs again once it has ended. */
export function newer(one: Replay, other: Replay | undefined): Replay {
  if (other === undefined || !isUnderWay(one)) return one;
  return !isUnderWay(other) || other.sent > one.sent ? other : one;
}

/** What is asked of a replay. */
export interface Plan {
  readonly filter: LetterFilter;
  readonly edit: ExactObject | null;
  readonly canary: number;
  readonly rate: number | null;
}

/** A sample of a preview: the letter and what the edit makes of its arguments. */
export interface Sampled {
  readonly job: Preview["sample"][number];
  readonly before: Exact;
  readonly after: Exact;
  /** Why the edited arguments would not fit the task; "" when they do, or were not edited, or nobody knows. */
  readonly misfit: string;
}

/** What a replay would do; nothing is changed. */
export async function preview(
  plan: Plan,
  signal: AbortSignal,
): Promise<{ readonly total: number; readonly sample: readonly Sampled[] }> {
  const text = await apiText.post("/replays/preview", { text: bodyOf(plan), signal });
  const plain = JSON.parse(text) as Preview;
  const exact = parseExact(text);
  const items = isObject(exact) ? own(exact, "sample") : undefined;
  const sampled = plain.sample.map(async (job, i) => {
    const one = Array.isArray(items) ? items[i] : undefined;
    const after = isObject(one) ? (own(one, "arguments") ?? null) : null;
    const original = isObject(one) ? (own(one, "original_arguments") ?? null) : null;
    const misfit = plan.edit === null ? "" : await misfitOf(job, after);
    return { job, after, before: plan.edit !== null && original !== null ? original : after, misfit };
  });
  return { total: plain.total, sample: await Promise.all(sampled) };
}

/** An edit of all letters at once deserves a look at whether it fits, before it is known only from the failures. */
async function misfitOf(job: Sampled["job"], values: Exact): Promise<string> {
  if (job.arguments_schema === null || !isObject(values)) return "";
  const check = await checkArguments(job.task, values);
  const hidden = new Set(job.redacted.map((pointer) => stepsOf(pointer)[0] ?? ""));
  if (check.is === "fine") return "";
  const found = [...problemsByField(check.errors, Object.keys(values))].filter(([name]) => !hidden.has(name));
  return found.map(([name, message]) => (name ? `${name}: ${message}` : message)).join("; ");
}

/** Begin a replay. Sent twice with one id it is one replay. */
export async function start(plan: Plan, replayId: string): Promise<Replay> {
  return JSON.parse(await apiText.post("/replays", { text: bodyOf(plan, replayId) })) as Replay;
}

/** The body of a request, in which no number has changed. */
export function bodyOf(plan: Plan, replayId: string | null = null): string {
  const filter = Object.fromEntries(Object.entries(plan.filter).map(([name, value]) => [name, value ?? null]));
  const { edit, canary, rate } = plan;
  return exactText({ filter, edit, canary, rate, ...(replayId !== null && { replay_id: replayId }) });
}

/** A new id for a replay. `crypto.randomUUID` is not there on plain http, where this page may well be. */
export function newReplayId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** A merge patch out of a text; "" is none. Throws NotJson. */
export function patchOf(text: string): ExactObject | null {
  if (text.trim() === "") return null;
  const patch = parseExact(text);
  if (!isObject(patch)) throw new NotJson("an object of arguments by name is expected: { … }");
  if (hiddenIn(patch).length > 0)
    throw new NotJson("a value in it reads [redacted]; leave out what is to stay as it is");
  return patch;
}

/** A whole number from 0 to 1000 out of a text; null when it is none. */
export function canaryOf(text: string): number | null {
  const value = /^\s*\d{1,4}\s*$/.test(text) ? Number(text) : Number.NaN;
  return value <= 1000 ? value : null;
}

/** Letters a second out of a text: null is no limit, undefined when it is no rate. */
export function rateOf(text: string): number | null | undefined {
  if (text.trim() === "") return null;
  const value = /^\s*\d*\.?\d+\s*$/.test(text) ? Number(text) : Number.NaN;
  return value > 0 && value <= 1e6 ? value : undefined;
}

/** How many canaries to propose: enough to learn something, few enough to risk. */
export function properCanaries(total: number): number {
  if (total < 2) return 0;
  return total < 10 ? 1 : total < 1_000 ? 3 : 10;
}
