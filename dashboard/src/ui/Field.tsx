/** Inputs with a label, a hint and an error that screen readers find. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { useKeys } from "../frame/keys";
import { Icon } from "./Icon";

/** Wraps one input: `<Field label="Rate" hint="letters a second">{(own) => <input {...own} …/>}</Field>`. */
export function Field(props: {
  readonly label: string;
  readonly hint?: ComponentChildren;
  readonly error?: string | undefined;
  readonly isRequired?: boolean;
  readonly children: (own: {
    id: string;
    "aria-describedby": string | undefined;
    "aria-invalid": boolean;
  }) => ComponentChildren;
}) {
  const id = useId();
  const note = `${id}-note`;
  const hasNote = Boolean(props.error) || props.hint !== undefined;
  return (
    <div class={`field ${props.error ? "has-error" : ""}`}>
      <label for={id}>
        {props.label}
        {props.isRequired && (
          <span class="required" title="needed">
            {" "}
            *
          </span>
        )}
      </label>
      {props.children({ id, "aria-describedby": hasNote ? note : undefined, "aria-invalid": Boolean(props.error) })}
      {hasNote && (
        <small id={note} class={props.error ? "error-text" : "muted"} role={props.error ? "alert" : undefined}>
          {props.error ?? props.hint}
        </small>
      )}
    </div>
  );
}

/** A choice of few in a filter bar; "" means any. */
export function Choice(props: {
  readonly label: string;
  readonly value: string;
  readonly options: readonly (string | readonly [value: string, text: string])[];
  readonly any?: string;
  readonly onChange: (value: string) => void;
}) {
  const options = props.options.map((each) => (typeof each === "string" ? ([each, each] as const) : each));
  const isKnown = props.value === "" || options.some(([value]) => value === props.value);
  return (
    <select
      class="choice"
      aria-label={props.label}
      data-set={props.value !== ""}
      value={props.value}
      onChange={(event) => props.onChange(event.currentTarget.value)}
    >
      <option value="">{props.any ?? `Any ${props.label.toLowerCase()}`}</option>
      {!isKnown && <option value={props.value}>{props.value}</option>}
      {options.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  );
}

const TYPING_MS = 250;

/** A search box that `/` focuses; it tells what was typed once the typing rests. */
export function Search(props: {
  readonly value: string;
  readonly label: string;
  readonly onSearch: (text: string) => void;
}) {
  const own = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState(props.value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const told = useRef(props.value);
  useEffect(() => {
    // The address changed by itself (back, a bookmark): show what it says.
    if (props.value !== told.current) {
      told.current = props.value;
      setTyped(props.value);
    }
  }, [props.value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const tell = (text: string) => {
    clearTimeout(timer.current);
    if (text === told.current) return;
    told.current = text;
    props.onSearch(text);
  };
  useKeys([
    {
      keys: "/",
      does: "search",
      run: () => {
        own.current?.focus();
        own.current?.select();
      },
    },
  ]);
  return (
    <div class="search">
      <Icon name="search" />
      <input
        ref={own}
        type="search"
        maxLength={200}
        autocomplete="off"
        spellcheck={false}
        placeholder={props.label}
        aria-label={props.label}
        value={typed}
        onInput={(event) => {
          const text = event.currentTarget.value;
          setTyped(text);
          clearTimeout(timer.current);
          timer.current = setTimeout(() => tell(text.trim()), TYPING_MS);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            tell(typed.trim());
            own.current?.blur();
          }
          if (event.key === "Escape") own.current?.blur();
        }}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
