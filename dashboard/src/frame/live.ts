/** News from the server: server-sent events while they work, a look every five seconds while they do not. */
import { batch, signal } from "@preact/signals";
import { api, isAborted, problemOf } from "../api/client";
import { addressOf } from "../api/address";
import type { Crawl, Overview, Replay, Ring, Stream } from "../api/types";
import { askAgain, isTenant } from "./session";

/** live: events come; polling: they do not, but looks are answered; connecting: neither yet; away: the store cannot be reached. */
export type Link = "connecting" | "live" | "polling" | "away";

/** What `groups` events carry: enough to see that the inbox has changed. */
export interface GroupNews {
  readonly fingerprint: string;
  readonly count: number;
  readonly last_at: number;
}

export const link = signal<Link>("connecting");
export const awayReason = signal("");
export const overview = signal<Overview | null>(null);
export const groupNews = signal<readonly GroupNews[]>([]);
export const replays = signal<readonly Replay[]>([]);
/** Every stream as the last event had it; null while no events come. */
export const streams = signal<readonly Stream[] | null>(null);
/** Every ring, in each process that has it, in the same way. */
export const rings = signal<readonly Ring[] | null>(null);
/** Every crawl, without its domains, in the same way. */
export const crawls = signal<readonly Crawl[] | null>(null);

/** Rises with every piece of news; lists look again when it does. */
export const pulse = signal(0);

/** Store's clock minus this machine's, in seconds: countdowns and ages follow the store. */
export const clockOffsetS = signal(0);

const POLL_MS = 5_000;
/** Without news for so long, one look: heartbeats and clocks go on while nothing else changes. */
const IDLE_MS = 10_000;
const HIDDEN_MS = 30_000;
const RECONNECT_MS = [1_000, 2_000, 5_000, 10_000, 30_000];

let source: EventSource | null = null;
let failures = 0;
let reconnecting: ReturnType<typeof setTimeout> | undefined;
let polling: ReturnType<typeof setInterval> | undefined;
let hiding: ReturnType<typeof setTimeout> | undefined;
let idling: ReturnType<typeof setInterval> | undefined;
let look: AbortController | null = null;
let lastNews = 0;

// An event tells of a change, and whoever comes later is told it again: its time may be long ago. Delay only ever makes
// the offset too small, so of events the largest is believed, and the answer to a look as it is.
function learn(news: Overview, isFresh: boolean): void {
  const offset = news.now_at - Date.now() / 1000;
  batch(() => {
    overview.value = news;
    if (isFresh || offset > clockOffsetS.value) clockOffsetS.value = offset;
    lastNews = performance.now();
    pulse.value += 1;
  });
}

function listOf<T>(told: unknown): readonly T[] {
  if (Array.isArray(told)) return told as T[];
  const items = (told as { items?: unknown } | null)?.items;
  return Array.isArray(items) ? (items as T[]) : [];
}

function away(reason: string): void {
  batch(() => {
    link.value = "away";
    awayReason.value = reason;
  });
}

function isHere(): void {
  batch(() => {
    link.value = source?.readyState === EventSource.OPEN ? "live" : "polling";
    awayReason.value = "";
  });
}

async function lookOnce(): Promise<void> {
  look?.abort();
  look = new AbortController();
  try {
    if (isTenant.value) {
      await askAgain(look.signal);
      lastNews = performance.now();
      pulse.value += 1;
    } else learn(await api.get("/overview", { signal: look.signal }), true);
    isHere();
  } catch (error) {
    if (isAborted(error)) return;
    const problem = problemOf(error);
    if (problem.status === 503 || problem.status === 507) away(problem.message);
    else link.value = "connecting";
  }
}

function startPolling(): void {
  if (polling !== undefined) return;
  polling = setInterval(() => void lookOnce(), POLL_MS);
  void lookOnce();
}

function stopPolling(): void {
  clearInterval(polling);
  polling = undefined;
  look?.abort();
}

function on(stream: EventSource, name: string, take: (told: unknown) => void): void {
  stream.addEventListener(name, (event) => {
    try {
      take(JSON.parse((event as MessageEvent<string>).data));
    } catch (error) {
      console.error(`an event "${name}" could not be read`, error);
    }
  });
}

/** What only events tell is not known while none come. */
function forgetTold(): void {
  batch(() => {
    streams.value = null;
    rings.value = null;
    crawls.value = null;
  });
}

function connect(): void {
  clearTimeout(reconnecting);
  source?.close();
  const stream = new EventSource(addressOf("/events"), { withCredentials: false });
  source = stream;
  stream.addEventListener("open", () => {
    failures = 0;
    stopPolling();
    isHere();
    void lookOnce();
  });
  stream.addEventListener("error", () => {
    if (source !== stream) return;
    if (link.value !== "away") link.value = "connecting";
    forgetTold();
    startPolling();
    if (stream.readyState !== EventSource.CLOSED) return;
    const wait = RECONNECT_MS[Math.min(failures, RECONNECT_MS.length - 1)] ?? 30_000;
    failures += 1;
    reconnecting = setTimeout(connect, wait);
  });
  on(stream, "overview", (told) => {
    learn(told as Overview, false);
    isHere();
  });
  on(stream, "groups", (told) => {
    batch(() => {
      groupNews.value = listOf<GroupNews>(told);
      pulse.value += 1;
    });
    isHere();
  });
  on(stream, "replays", (told) => {
    replays.value = listOf<Replay>(told);
    isHere();
  });
  on(stream, "streams", (told) => {
    streams.value = listOf<Stream>(told);
    isHere();
  });
  on(stream, "rings", (told) => {
    rings.value = listOf<Ring>(told);
    isHere();
  });
  on(stream, "crawls", (told) => {
    batch(() => {
      crawls.value = listOf<Crawl>(told);
      pulse.value += 1; // the page of one crawl asks for its domains
    });
    isHere();
  });
  on(stream, "back", isHere);
  on(stream, "away", (told) => {
    const reason = typeof told === "string" ? told : (told as { reason?: unknown } | null)?.reason;
    away(typeof reason === "string" ? reason : "");
  });
}

function disconnect(): void {
  clearTimeout(reconnecting);
  clearTimeout(hiding);
  source?.close();
  source = null;
  forgetTold();
  stopPolling();
}

// A tab in the background gives its connection back: browsers allow six a host, and a forgotten tab should cost nothing.
function onVisibility(): void {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(disconnect, HIDDEN_MS);
  else if (source === null) connect();
}

/** Starts listening, and returns what ends it. */
export function startLive(): () => void {
  document.addEventListener("visibilitychange", onVisibility);
  connect();
  idling = setInterval(() => {
    if (link.value === "live" && !document.hidden && performance.now() - lastNews >= IDLE_MS) void lookOnce();
  }, IDLE_MS / 2);
  return () => {
    document.removeEventListener("visibilitychange", onVisibility);
    clearInterval(idling);
    disconnect();
    batch(() => {
      link.value = "connecting";
      overview.value = null;
      groupNews.value = [];
      replays.value = [];
    });
  };
}
