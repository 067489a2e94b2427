/** A word with a colour; the word says it all, the colour only helps. */
import { words } from "./format";

export type Tone = "neutral" | "good" | "busy" | "warn" | "bad" | "grave" | "odd" | "muted";

const TONES: Readonly<Record<string, Tone>> = {
  // states of jobs
  queued: "neutral",
  running: "busy",
  retrying: "warn",
  waiting: "odd",
  completed: "good",
  failed: "bad",
  dead_letter: "grave",
  cancelled: "muted",
  // outcomes of attempts
  retried: "warn",
  // breakers
  closed: "good",
  open: "bad",
  half_open: "warn",
  forced_open: "bad",
  disabled: "muted",
  // severities
  low: "neutral",
  medium: "warn",
  high: "bad",
  critical: "grave",
  // failure types
  transient: "warn",
  rate_limited: "warn",
  network: "busy",
  system: "bad",
  permanent: "bad",
  validation: "odd",
  authentication: "grave",
  structural: "odd",
  // health, replays, checks, what became of an action
  healthy: "good",
  degraded: "warn",
  unhealthy: "bad",
  firing: "bad",
  paused: "warn",
  stopped: "muted",
  done: "good",
  ok: "good",
  passed: "good",
  timeout: "warn",
  refused: "bad",
};

/** The colour that a state, type or severity has everywhere. */
export function toneOf(name: string): Tone {
  return TONES[name] ?? "neutral";
}

/** `of` is a state, failure type, severity… as the server says it; `text` replaces the word. */
export function Badge({ of, text, tone }: { readonly of: string; readonly text?: string; readonly tone?: Tone }) {
  return (
    <span class={`badge tone-${tone ?? toneOf(of)}`}>
      <i class="dot" aria-hidden="true" />
      {text ?? words(of)}
    </span>
  );
}

/** A number in a small pill, for navigation. */
export function Pill({ children, tone = "neutral" }: { readonly children: string | number; readonly tone?: Tone }) {
  return <span class={`pill tone-${tone}`}>{children}</span>;
}
