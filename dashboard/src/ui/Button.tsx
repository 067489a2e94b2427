/** Buttons; one that runs something asynchronous shows it and cannot be pressed twice. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Icon, type IconName } from "./Icon";
import { failed } from "./Toast";

export interface ButtonProps {
  readonly children?: ComponentChildren;
  readonly onClick?: () => void | Promise<unknown>;
  readonly kind?: "plain" | "main" | "danger" | "quiet";
  readonly icon?: IconName;
  /** Needed where there is no text. */
  readonly label?: string;
  readonly type?: "button" | "submit";
  readonly isDisabled?: boolean;
  readonly isBusy?: boolean;
  readonly isSmall?: boolean;
  readonly class?: string;
}

export function Button(props: ButtonProps) {
  const [isRunning, setRunning] = useState(false);
  const isBusy = isRunning || props.isBusy === true;
  const press = (event: Event) => {
    if (isBusy) {
      event.preventDefault();
      return;
    }
    const running = props.onClick?.();
    if (!(running instanceof Promise)) return;
    setRunning(true);
    running.catch(failed).finally(() => setRunning(false));
  };
  const isIconOnly = props.children === undefined;
  return (
    <button
      type={props.type ?? "button"}
      class={`button ${props.kind ?? "plain"} ${props.isSmall ? "small" : ""} ${isIconOnly ? "icon-only" : ""} ${props.class ?? ""}`}
      disabled={props.isDisabled === true}
      // Not `disabled` while busy: that would drop the focus, and a question's dialog could not give it back.
      aria-disabled={isBusy}
      aria-busy={isBusy}
      aria-label={props.label}
      title={isIconOnly ? props.label : undefined}
      onClick={press}
    >
      {isBusy ? <span class="spinner" aria-hidden="true" /> : props.icon && <Icon name={props.icon} />}
      {props.children}
    </button>
  );
}
