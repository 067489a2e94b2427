/** Where messages are sent back to: to the group that gave them up, or to everybody. */
import { type Signal, signal } from "@preact/signals";
import { useId } from "preact/hooks";
import type { MessageOrigin } from "../api/types";
import { confirmed } from "../ui";
import { Changes } from "./Changes";
import type { changesBetween } from "./diff";
import { targetOf, type To } from "./message";

/** In words for one message, or for several, which may be of several partitions. */
function choicesOf(origin: MessageOrigin, isOne: boolean): Readonly<Record<To, readonly [title: string, means: string]>> {
  const it = isOne ? "it" : "them";
  return {
    retry: [
      `To the group’s retry topic ${targetOf(origin, "retry")}`,
      `Only the group ${origin.group} sees ${it}, at once. What other groups have done with ${it} is not done again.`,
    ],
    topic: [
      `To the original topic ${targetOf(origin, "topic")}`,
      `Every group that reads the topic sees ${it}, as ${isOne ? "a new message" : "new messages"} at its end.`,
    ],
  };
}

export function WhereTo(props: {
  readonly origin: MessageOrigin;
  readonly isOne: boolean;
  readonly to: To;
  readonly onChange: (to: To) => void;
}) {
  const name = useId();
  const choices = choicesOf(props.origin, props.isOne);
  return (
    <fieldset class="where-to">
      <legend>Where {props.isOne ? "it goes" : "they go"}</legend>
      {(["retry", "topic"] as const).map((to) => {
        const [title, means] = choices[to];
        return (
          <label key={to} class={to === props.to ? "chosen" : ""}>
            <input
              type="radio"
              name={name}
              value={to}
              checked={to === props.to}
              aria-describedby={`${name}-${to}`}
              onChange={() => props.onChange(to)}
            />
            <span>
              <b>{title}</b>
              <small id={`${name}-${to}`} class="muted">
                {means}
              </small>
            </span>
          </label>
        );
      })}
    </fieldset>
  );
}

function Asked({ origin, to }: { readonly origin: MessageOrigin; readonly to: Signal<To> }) {
  return (
    <WhereTo
      origin={origin}
      isOne
      to={to.value}
      onChange={(chosen) => {
        to.value = chosen;
      }}
    />
  );
}

/** Asks where a message goes, with what was edited in it; null when it is to stay where it is. */
export async function askWhere(
  origin: MessageOrigin,
  asked: { readonly title: string; readonly action: string; readonly changes?: ReturnType<typeof changesBetween> },
): Promise<To | null> {
  const to = signal<To>("retry");
  const isSure = await confirmed({
    title: asked.title,
    action: asked.action,
    text: (
      <>
        {asked.changes && <Changes of={asked.changes} />}
        <Asked origin={origin} to={to} />
      </>
    ),
  });
  return isSure ? to.value : null;
}
