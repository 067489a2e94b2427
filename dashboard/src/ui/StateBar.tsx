/** Jobs by state as one bar; states that are done for are left out, or they would hide the rest. */
import { toneOf } from "./Badge";
import { count, words } from "./format";

const SHOWN = ["running", "queued", "retrying", "waiting", "failed", "dead_letter"] as const;

export function StateBar({ states }: { readonly states: Readonly<Record<string, number>> }) {
  const parts = SHOWN.map((state) => [state, states[state] ?? 0] as const).filter(([, many]) => many > 0);
  const all = parts.reduce((sum, [, many]) => sum + many, 0);
  if (all === 0) return <span class="muted">nothing open</span>;
  const text = parts.map(([state, many]) => `${count(many)} ${words(state)}`).join(", ");
  return (
    <span class="state-bar" role="img" aria-label={text} title={text}>
      {parts.map(([state, many]) => (
        <i key={state} class={`color-chart-${toneOf(state)}`} style={{ flexGrow: many / all }} />
      ))}
    </span>
  );
}
