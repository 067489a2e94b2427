/** A letter's arguments, its message, its elements or a page's data, as a form, checked before it is sent back. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { problemOf } from "../api/client";
import { Button, confirmed, done, format, Icon, Tabs } from "../ui";
import { Argument } from "./Argument";
import { Changes } from "./Changes";
import { changesBetween } from "./diff";
import { type ExactObject, exactText, isObject, isSame, NotJson, parseExact } from "./exact";
import { type Entry, entryOf, fieldsOf, problemsByField, readForm } from "./form";
import { checkArguments, type Letter, retryLetter } from "./letter";
import { hiddenParts, messageOf, misfitsIn, partsOf, payloadWith, schemaOf, targetOf } from "./message";
import { DATA_SCHEMA, dataIn, hiddenData, misfitsInData, pageOf } from "./page";
import { ELEMENTS_SCHEMA, elementsIn, hiddenElements, misfitsInElements, ringOf } from "./ring";
import { misplacedIn } from "./secrets";
import { askWhere } from "./WhereTo";
import { several } from "./words";

interface Reading {
  readonly values: ExactObject | null;
  readonly errors: ReadonlyMap<string, string>;
}

/** `letter` is as it was when the page was opened: news must not change what somebody is typing. */
export function Payload(props: {
  readonly letter: Letter;
  readonly onEdited: (isEdited: boolean) => void;
  readonly onRetried: () => Promise<void>;
}) {
  const { letter, onEdited, onRetried } = props;
  const whole: ExactObject = isObject(letter.arguments) ? letter.arguments : {};
  const { task, id } = letter.job;
  const message = messageOf(letter.job);
  const ring = ringOf(letter.job);
  const page = pageOf(letter.job);
  const { redacted, stored, schema } = partsOfLetter(letter, whole);
  const isJob = message === null && ring === null && page === null;
  const isKnownTask = isJob && letter.schema !== null;
  const what = message ? "message" : ring ? "elements" : page ? "data" : "arguments";
  const fields = useMemo(() => fieldsOf(schema, stored, redacted), [letter]);
  const begin = () => new Map(fields.map((field) => [field.name, entryOf(field)]));
  const [entries, setEntries] = useState<ReadonlyMap<string, Entry>>(begin);
  const [raw, setRaw] = useState<string | null>(null);
  const [told, setTold] = useState<ReadonlyMap<string, string>>(new Map());
  const [hasAsked, setAsked] = useState(false);
  const top = useRef<HTMLDivElement>(null);

  const read = raw === null ? fromForm() : fromRaw(raw, stored);
  const judge = message ? misfitsIn : ring ? misfitsInElements : page ? misfitsInData : null;
  const misfits = judge !== null && read.values ? judge(read.values) : [];
  const reading: Reading = { ...read, errors: new Map([...misfits, ...read.errors]) };
  const changes = reading.values === null ? [] : changesBetween(stored, reading.values);
  const errors = hasAsked || raw !== null ? new Map([...told, ...reading.errors]) : told;
  const isEdited =
    raw !== null ? reading.values === null || changes.length > 0 : changes.length > 0 || reading.errors.size > 0;

  useEffect(() => {
    onEdited(isEdited);
    return () => onEdited(false);
  }, [isEdited]);

  /** Arguments that only the text has: they have no field, so that the way back to the form is closed. */
  const strangers =
    raw === null
      ? []
      : Object.keys(reading.values ?? {}).filter((name) => !fields.some((field) => field.name === name));

  function fromForm(): Reading {
    const read = readForm(fields, entries, stored);
    return { values: read.arguments, errors: read.errors };
  }

  const forget = () => {
    setTold(new Map());
    setAsked(false);
  };

  const reset = () => {
    setEntries(begin());
    setRaw(raw === null ? null : exactText(stored, 2));
    forget();
  };

  /** What is sent, once nothing is known to be wrong with it; null when something is, which is shown then. */
  const checked = async (): Promise<ExactObject | null> => {
    setAsked(true);
    if (reading.values === null || reading.errors.size > 0) {
      focusFirst();
      return null;
    }
    if (isKnownTask) {
      const check = await checkArguments(task, reading.values);
      if (check.is === "wrong") {
        const found = problemsByField(
          check.errors,
          fields.map((field) => field.name),
        );
        // The server checks what it is sent, and cannot know that a hidden value of another type is only kept.
        for (const [name] of found) if (entries.get(name)?.mode === "stored" && raw === null) found.delete(name);
        setTold(found);
        if (found.size > 0) {
          focusFirst();
          return null;
        }
      } else setTold(new Map());
    }
    return reading.values;
  };

  const focusFirst = () =>
    requestAnimationFrame(() => top.current?.querySelector<HTMLElement>("[aria-invalid=true], .error-text")?.focus());

  const check = async () => {
    if ((await checked()) === null) return;
    if (message) done("A message can be made of it; whether the handler takes it shows when it is sent");
    else if (ring) done("They are elements; whether the consumer takes them shows when they are sent");
    else if (page) done("It is JSON; whether the handler takes it shows when the page is fetched again");
    else done(isKnownTask ? "The arguments fit the task" : "They are JSON; this server does not know the task");
  };

  const editAndRetry = async () => {
    const values = await checked();
    if (values === null) return;
    const sent = await asked(values);
    if (sent === null) return;
    try {
      await retryLetter(id, sent.values);
    } catch (error) {
      const problem = problemOf(error);
      if (problem.status !== 422) throw error;
      setTold(
        problemsByField(
          problem.errors.length > 0 ? problem.errors : [{ where: "", message: problem.message }],
          fields.map((field) => field.name),
        ),
      );
      return;
    }
    done(sent.told);
    await onRetried();
  };

  /** What is sent if it is wanted so, and what is said then; null when it is not. */
  const asked = async (values: ExactObject): Promise<{ readonly values: ExactObject; readonly told: string } | null> => {
    const shown = { title: `Retry with ${message ? "this" : "these"} ${what}?`, action: "Edit and retry" };
    const edits = changesBetween(stored, values);
    if (message === null) {
      const told = `Sent back to the ${ring ? "ring" : page ? "crawl" : "queue"} with the new ${what}; the original ones are kept beside them`;
      const sent = isJob ? values : { ...whole, ...values };
      return (await confirmed({ ...shown, text: <Changes of={edits} /> })) ? { values: sent, told } : null;
    }
    const to = await askWhere(message, { ...shown, changes: edits });
    if (to === null) return null;
    const told = `On its way to ${targetOf(message, to)}, edited; the original is kept beside it`;
    return { values: payloadWith(whole, values, to), told };
  };

  const form = () => (
    <div class="form">
      {fields.length === 0 && <p class="muted">The task takes no arguments.</p>}
      {fields.map((field) => (
        <Argument
          key={field.name}
          field={field}
          entry={entries.get(field.name) ?? entryOf(field)}
          error={errors.get(field.name)}
          onChange={(entry) => {
            setEntries(new Map(entries).set(field.name, entry));
            if (told.has(field.name)) setTold(new Map([...told].filter(([name]) => name !== field.name)));
          }}
        />
      ))}
    </div>
  );

  const text = () => (
    <div class="form">
      <textarea
        class="raw"
        rows={Math.min(24, Math.max(8, (raw ?? "").split("\n").length + 1))}
        spellcheck={false}
        aria-label={`${format.heading(what)} as JSON`}
        aria-invalid={errors.size > 0}
        value={raw ?? ""}
        onInput={(event) => {
          setRaw(event.currentTarget.value);
          forget();
        }}
      />
      {[...errors].map(([name, message]) => (
        <small key={name} class="error-text" role="alert">
          {name ? `${name}: ` : ""}
          {message}
        </small>
      ))}
    </div>
  );

  const stateInWords = () => {
    if (!isEdited) return "As stored";
    if (reading.errors.size > 0)
      return `Not readable yet: ${[...reading.errors.keys()].filter(Boolean).join(", ") || "the JSON"}`;
    return `${several(changes.length, "change", "changes")}: ${changes.map((one) => one.path).join(", ")}`;
  };

  const choose = (tab: string) => {
    if (tab === "json" && raw === null) {
      // What cannot be read yet is not carried over: the text begins with what is stored.
      setRaw(exactText(reading.errors.size === 0 && reading.values !== null ? reading.values : stored, 2));
      forget();
    } else if (tab === "form" && raw !== null) {
      if (reading.values === null || strangers.length > 0) return;
      setEntries(entriesFrom(reading.values));
      setRaw(null);
      forget();
    }
  };

  function entriesFrom(values: ExactObject): Map<string, Entry> {
    return new Map(
      fields.map((field) => {
        const value = Object.hasOwn(values, field.name) ? values[field.name] : undefined;
        const isAsStored = value === undefined ? field.stored === undefined : isSame(value, field.stored);
        if (isAsStored) return [field.name, entryOf(field)];
        const entry = entryOf({ ...field, stored: value, modes: field.modes.filter((mode) => mode !== "stored") });
        return [field.name, { ...entry, isTouched: true }];
      }),
    );
  }

  return (
    <div ref={top} class="payload">
      {redacted.length > 0 && (
        <p class="note">
          <Icon name="key" />
          <span>
            {several(redacted.length, "value is", "values are")} hidden. What still reads [redacted] is kept as stored.
          </span>
        </p>
      )}
      {isJob && !isKnownTask && (
        <p class="note">
          <Icon name="warning" />
          <span>This server does not know the task {task}, so its arguments cannot be checked here.</span>
        </p>
      )}
      <Tabs
        label="How to edit"
        chosen={raw === null ? "form" : "json"}
        onChoose={choose}
        tabs={[
          { id: "form", title: "Form", body: form },
          { id: "json", title: "JSON", body: text },
        ]}
      />
      {strangers.length > 0 && (
        <small class="muted">The form has no field for {strangers.join(", ")}: take that out to go back to it.</small>
      )}
      {raw === null && errors.has("") && (
        <small class="error-text" role="alert" tabIndex={-1}>
          {errors.get("")}
        </small>
      )}
      <div class="row form-actions">
        <span class="muted" role="status">
          {stateInWords()}
        </span>
        <Button kind="quiet" isSmall isDisabled={!isEdited} onClick={reset}>
          Undo edits
        </Button>
        <Button isSmall icon="check" onClick={check}>
          Check
        </Button>
        <Button isSmall kind="main" icon="retry" isDisabled={!isEdited} onClick={editAndRetry}>
          Edit and retry
        </Button>
      </div>
    </div>
  );
}

/** What of a letter is edited: all arguments of a job, but only what people made of a message or of elements. */
function partsOfLetter({ job, schema }: Letter, whole: ExactObject) {
  if (messageOf(job)) {
    const stored = partsOf(whole);
    return { redacted: hiddenParts(job.redacted), stored, schema: schemaOf(stored) };
  }
  if (ringOf(job)) return { redacted: hiddenElements(job.redacted), stored: elementsIn(whole), schema: ELEMENTS_SCHEMA };
  if (pageOf(job)) return { redacted: hiddenData(job.redacted), stored: dataIn(whole), schema: DATA_SCHEMA };
  return { redacted: job.redacted, stored: whole, schema };
}

function fromRaw(text: string, stored: ExactObject): Reading {
  try {
    const values = parseExact(text);
    if (!isObject(values))
      return { values: null, errors: new Map([["", "an object is expected: { … }"]]) };
    const misplaced = misplacedIn(values, stored);
    return { values, errors: new Map(misplaced.map(({ pointer, message }) => [pointer, message])) };
  } catch (error) {
    if (!(error instanceof NotJson)) throw error;
    return { values: null, errors: new Map([["", error.message]]) };
  }
}
