/** A replay, from the dry run to its end: count first, a few letters first, then the rest. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiProblem, isAborted, problemOf } from "../api/client";
import type { LetterFilter, Replay } from "../api/types";
import { Button, Dialog, ErrorBox, Field, format, Skeleton } from "../ui";
import { changesBetween } from "./diff";
import { type ExactObject, exactText, NotJson } from "./exact";
import { Changes } from "./Payload";
import { ReplayCard } from "./ReplayCard";
import { canaryOf, newReplayId, patchOf, preview, properCanaries, rateOf, start, useReplays } from "./replaying";
import { isUnderWay, several } from "./words";

type Dry = Awaited<ReturnType<typeof preview>>;
const TYPING_MS = 400;

export function ReplayDialog(props: {
  readonly filter: LetterFilter;
  /** Whether a text is searched for: those letters cannot be replayed, as the store does not know them by it. */
  readonly isSearch: boolean;
  /** Which letters, in words. */
  readonly what: string;
  readonly onClose: () => void;
}) {
  const [begun, setBegun] = useState<Replay | null>(null);
  if (props.isSearch && begun === null) return <SearchIsNoReplay {...props} />;
  return begun === null ? (
    <Asking {...props} onBegun={setBegun} />
  ) : (
    <Following begun={begun} onClose={props.onClose} />
  );
}

function Asking(props: Parameters<typeof ReplayDialog>[0] & { readonly onBegun: (replay: Replay) => void }) {
  const [canary, setCanary] = useState<string | null>(null);
  const [rate, setRate] = useState("");
  const [edit, setEdit] = useState("");
  const [dry, setDry] = useState<Dry | null>(null);
  const [problem, setProblem] = useState<ApiProblem | null>(null);
  const [isLost, setLost] = useState(false);
  const [asks, setAsks] = useState(0);
  // One id for this dialog, so that a double click or a lost answer cannot make two replays.
  const id = useRef(newReplayId());

  const { patch, wrong } = read(edit);
  const patchText = patch === null ? "" : exactText(patch);
  useEffect(() => {
    if (wrong) return;
    const own = new AbortController();
    const timer = setTimeout(
      () => {
        preview({ filter: props.filter, edit: patch, canary: 0, rate: null }, own.signal).then(
          (found) => {
            setDry(found);
            setProblem(null);
          },
          (error: unknown) => {
            if (!isAborted(error)) setProblem(problemOf(error));
          },
        );
      },
      dry === null ? 0 : TYPING_MS,
    );
    return () => {
      clearTimeout(timer);
      own.abort();
    };
  }, [patchText, wrong, asks]);

  const total = dry?.total ?? 0;
  const canaryText = canary ?? (dry === null ? "1" : String(properCanaries(total)));
  const canaries = canaryOf(canaryText);
  const perSecond = rateOf(rate);
  const isReady = dry !== null && total > 0 && canaries !== null && perSecond !== undefined && !wrong;

  const begin = async () => {
    if (canaries === null || perSecond === undefined) return;
    try {
      props.onBegun(await start({ filter: props.filter, edit: patch, canary: canaries, rate: perSecond }, id.current));
    } catch (error) {
      const found = problemOf(error);
      setProblem(found);
      // Whether it was begun is not known now: what it was asked for must stay as it is.
      setLost(found.status === 0 || found.status >= 500);
    }
  };

  return (
    <Dialog
      title="Replay letters"
      isWide
      onClose={props.onClose}
      actions={
        <>
          <Button onClick={props.onClose}>Close</Button>
          <Button kind="main" icon="play" isDisabled={!isReady} onClick={begin}>
            {isLost ? "Ask again" : dry === null ? "Replay" : `Replay ${several(total, "letter", "letters")}`}
          </Button>
        </>
      }
    >
      <p class="muted">{props.what}</p>
      {problem && <ErrorBox problem={problem} {...(!isLost && { onRetry: () => setAsks(asks + 1) })} />}
      {isLost && (
        <p role="status">
          The answer was lost, so nobody knows yet whether it has begun. Asking again begins it at most once.
        </p>
      )}
      {dry === null && problem === null && <Skeleton lines={3} />}
      {dry !== null && !isLost && (
        <div class="dry">
          <strong class="dry-total">{several(total, "letter", "letters")}</strong>
          <span class="muted">
            {total === 0
              ? "Nothing is left to be sent back."
              : "would go back to the queue. Nothing has been changed yet."}
          </span>
        </div>
      )}
      <fieldset class="replay-options" disabled={isLost}>
        <Field
          label="Canaries"
          hint="go first; the rest follows only when they complete"
          error={canaries === null ? "a whole number from 0 to 1000 is expected" : undefined}
        >
          {(own) => (
            <input
              {...own}
              inputMode="numeric"
              value={canaryText}
              onInput={(event) => setCanary(event.currentTarget.value)}
            />
          )}
        </Field>
        <Field
          label="Letters a second"
          hint={
            perSecond && total > 0
              ? `about ${format.duration(total / perSecond)} in all`
              : "empty: as fast as the workers take them"
          }
          error={perSecond === undefined ? "a number above 0 is expected" : undefined}
        >
          {(own) => (
            <input
              {...own}
              inputMode="decimal"
              value={rate}
              placeholder="no limit"
              onInput={(event) => setRate(event.currentTarget.value)}
            />
          )}
        </Field>
      </fieldset>
      <details class="replay-edit">
        <summary>Edit the arguments of all</summary>
        <fieldset disabled={isLost}>
          <Field
            label="JSON merge patch"
            hint="null takes an argument out, objects are merged, all else replaces"
            error={wrong || undefined}
          >
            {(own) => (
              <textarea
                {...own}
                rows={3}
                spellcheck={false}
                placeholder={'{"currency": "EUR"}'}
                value={edit}
                onInput={(event) => setEdit(event.currentTarget.value)}
              />
            )}
          </Field>
        </fieldset>
      </details>
      {dry !== null && dry.sample.length > 0 && <Sample of={dry} isEdited={patch !== null} />}
    </Dialog>
  );
}

function SearchIsNoReplay({ what, onClose }: { readonly what: string; readonly onClose: () => void }) {
  return (
    <Dialog
      title="Replay letters"
      onClose={onClose}
      actions={
        <Button kind="main" onClick={onClose}>
          Close
        </Button>
      }
    >
      <p class="muted">{what}</p>
      <p role="status">
        A search by text cannot be replayed. Clear the search, and choose by cause, task, tenant, failure type or time; or
        tick letters in the list and send those back.
      </p>
    </Dialog>
  );
}

function read(text: string): { readonly patch: ExactObject | null; readonly wrong: string } {
  try {
    return { patch: patchOf(text), wrong: "" };
  } catch (error) {
    if (!(error instanceof NotJson)) throw error;
    return { patch: null, wrong: error.message };
  }
}

function Sample({ of, isEdited }: { readonly of: Dry; readonly isEdited: boolean }) {
  return (
    <section class="sample" aria-label="A sample">
      <h3>How {of.sample.length === of.total ? "they" : `the newest ${of.sample.length}`} would run</h3>
      <ul>
        {of.sample.map(({ job, before, after, misfit }) => (
          <li key={job.id}>
            <span class="row">
              <span class="tag">{job.task}</span>
              {job.tenant && <span class="tag">{job.tenant}</span>}
              <span class="mono muted" title={job.id}>
                {format.shortId(job.id)}
              </span>
            </span>
            {misfit && (
              <small class="error-text" role="alert">
                Would not fit the task: {misfit}
              </small>
            )}
            {isEdited ? (
              <Changes of={changesBetween(before, after)} />
            ) : (
              <code class="sample-arguments">{exactText(after)}</code>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Following({ begun, onClose }: { readonly begun: Replay; readonly onClose: () => void }) {
  const found = useReplays();
  const replay = found.data?.find((one) => one.id === begun.id) ?? begun;
  return (
    <Dialog
      title="Replay"
      isWide
      onClose={onClose}
      actions={
        <Button kind="main" onClick={onClose}>
          Close
        </Button>
      }
    >
      <ReplayCard replay={replay} onChange={found.reload} />
      {isUnderWay(replay) && (
        <p class="muted">The workers do it: it goes on when this page is closed, and is found again under Replays.</p>
      )}
    </Dialog>
  );
}
