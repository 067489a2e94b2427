/** One argument of a task: how it is typed in, null, left out, or kept as stored. */
import { useId } from "preact/hooks";
import { Button, Icon } from "../ui";
import { exactText } from "./exact";
import { type Entry, type Field, mismatchOf, type Mode } from "./form";

const MODES: Readonly<Record<Mode, string>> = {
  value: "a value",
  null: "null",
  absent: "left out",
  stored: "kept as stored",
};

export function Argument(props: {
  readonly field: Field;
  readonly entry: Entry;
  readonly error: string | undefined;
  readonly onChange: (entry: Entry) => void;
}) {
  const { field, entry, error, onChange } = props;
  const id = useId();
  const note = `${id}-note`;
  const notes = [
    !field.isKnown && "the task has no such argument",
    !entry.isTouched && mismatchOf(field),
    field.hasHidden && entry.mode === "value" && "what reads [redacted] is kept as stored",
    entry.mode === "absent" && field.standard !== undefined && `the task's own value is ${exactText(field.standard)}`,
  ].filter(Boolean);
  const own = { id, "aria-describedby": note, "aria-invalid": error !== undefined };
  const isLocked = entry.mode === "stored";
  return (
    <div class={`field argument ${error ? "has-error" : ""}`}>
      <div class="argument-head">
        <label for={id} class="mono">
          {field.name}
          {field.isRequired && <span class="required"> *</span>}
        </label>
        <span class="muted">{field.type}</span>
        {field.modes.length > 1 && !isLocked && (
          <select
            class="mode"
            aria-label={`${field.name} is`}
            value={entry.mode}
            onChange={(event) => onChange({ ...entry, mode: event.currentTarget.value as Mode, isTouched: true })}
          >
            {field.modes.map((mode) => (
              <option key={mode} value={mode}>
                {MODES[mode]}
              </option>
            ))}
          </select>
        )}
      </div>
      {isLocked && (
        <div class="locked">
          <Icon name="key" />
          <input {...own} class="mono" readOnly value={typeof field.stored === "string" ? field.stored : ""} />
          <span class="muted">kept as stored</span>
          <Button isSmall kind="quiet" onClick={() => onChange({ mode: "value", text: "", isTouched: true })}>
            Replace
          </Button>
        </div>
      )}
      {entry.mode === "value" && <Input {...props} own={own} />}
      {(entry.mode === "null" || entry.mode === "absent") && (
        <input {...own} class="mono" disabled value={entry.mode === "null" ? "null" : "not given"} />
      )}
      <small id={note} class={error ? "error-text" : "muted"} role={error ? "alert" : undefined}>
        {error ?? notes.join("; ")}
      </small>
    </div>
  );
}

const LONG = 70;

function Input(props: {
  readonly field: Field;
  readonly entry: Entry;
  readonly onChange: (entry: Entry) => void;
  readonly own: { readonly id: string };
}) {
  const { field, entry, own } = props;
  const change = (text: string) => props.onChange({ mode: "value", text, isTouched: true });
  if (field.kind === "boolean" || field.kind === "choice") {
    const options =
      field.kind === "boolean"
        ? [
            ["true", "yes"],
            ["false", "no"],
          ]
        : field.choices.map((one) => [exactText(one), labelOf(one)]);
    return (
      <select {...own} value={entry.text} onChange={(event) => change(event.currentTarget.value)}>
        {!options.some(([value]) => value === entry.text) && <option value={entry.text}>{entry.text}</option>}
        {options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    );
  }
  const lines = entry.text.split("\n").length;
  if (field.kind === "json" || (field.kind === "text" && (lines > 1 || entry.text.length > LONG))) {
    const rows = Math.min(14, Math.max(lines, Math.ceil(entry.text.length / 90)));
    return (
      <textarea
        {...own}
        rows={rows}
        spellcheck={false}
        value={entry.text}
        onInput={(event) => change(event.currentTarget.value)}
      />
    );
  }
  return (
    <input
      {...own}
      class="mono"
      inputMode={field.kind === "text" ? "text" : field.kind === "integer" ? "numeric" : "decimal"}
      autocomplete="off"
      spellcheck={false}
      value={entry.text}
      onInput={(event) => change(event.currentTarget.value)}
    />
  );
}

function labelOf(choice: Field["choices"][number]): string {
  return typeof choice === "string" ? choice : exactText(choice);
}
