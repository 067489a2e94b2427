/** A replay, from the dry run to its end: count first, a few letters first, then the rest. */
import { useEffect, useRef, useState } from "preact/hooks";
import { type ApiProblem, isAborted, problemOf } from "../api/client";
import type { LetterFilter, Replay } from "../api/types";
import { Button, Dialog, ErrorBox, Field, format, Icon, Skeleton } from "../ui";
import { type ExactObject, exactText, NotJson } from "./exact";
import { messagesOf, type MessagesOf } from "./message";
import { ReplayCard } from "./ReplayCard";
import { canaryOf, newReplayId, patchOf, preview, properCanaries, rateOf, start, useReplays } from "./replaying";
import { Sample } from "./Sample";
import { WhereTo } from "./WhereTo";
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
  const [toTopicOf, setToTopicOf] = useState<MessagesOf | null>(null);
  const [isLost, setLost] = useState(false);
  const [asks, setAsks] = useState(0);
  // One id for this dialog, so that a double click or a lost answer cannot make two replays.
  const id = useRef(newReplayId());

  const messages = messagesOf(dry?.sample ?? []);
  const stream = toTopicOf ?? messages.only;
  // Only messages know what `to` means: a letter of another task that comes meanwhile must not get it.
  const filter = toTopicOf ? { ...props.filter, task: toTopicOf.task } : props.filter;
  const { patch: typed, wrong } = read(edit);
  const patch: ExactObject | null = toTopicOf ? { ...typed, to: "topic" } : typed;
  const patchText = patch === null ? "" : exactText(patch);
  useEffect(() => {
    if (wrong) return;
    const own = new AbortController();
    const timer = setTimeout(
      () => {
        preview({ filter, edit: patch, canary: 0, rate: null }, own.signal).then(
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
  // In the original topic nobody hears how a canary ended, so there is none.
  const canaryText = toTopicOf ? "0" : (canary ?? (dry === null ? "1" : String(properCanaries(total))));
  const canaries = canaryOf(canaryText);
  const perSecond = rateOf(rate);
  const isReady = dry !== null && total > 0 && canaries !== null && perSecond !== undefined && !wrong;

  const begin = async () => {
    if (canaries === null || perSecond === undefined) return;
    try {
      props.onBegun(await start({ filter, edit: patch, canary: canaries, rate: perSecond }, id.current));
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
              : `would go back to the ${messages.areAll ? "stream" : "queue"}. Nothing has been changed yet.`}
          </span>
        </div>
      )}
      {stream && (
        <fieldset disabled={isLost}>
          <WhereTo
            origin={stream.origin}
            isOne={total === 1}
            to={toTopicOf ? "topic" : "retry"}
            onChange={(to) => setToTopicOf(to === "topic" ? stream : null)}
          />
        </fieldset>
      )}
      {messages.areSome && stream === null && (
        <p class="note">
          <Icon name="streams" />
          <span>
            The messages among them go to the retry topics of their groups. To send some to their original topic instead,
            filter by one stream’s name as task.
          </span>
        </p>
      )}
      <fieldset class="replay-options" disabled={isLost}>
        <Field
          label="Canaries"
          hint={
            toTopicOf
              ? "none: nobody hears how they end in the original topic"
              : "go first; the rest follows only when they complete"
          }
          error={canaries === null ? "a whole number from 0 to 1000 is expected" : undefined}
        >
          {(own) => (
            <input
              {...own}
              inputMode="numeric"
              disabled={Boolean(toTopicOf)}
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
        <summary>{messages.areAll ? "Edit all messages" : "Edit the arguments of all"}</summary>
        <fieldset disabled={isLost}>
          <Field
            label="JSON merge patch"
            hint={
              messages.areAll
                ? "of key, value and headers: null takes a name out, objects are merged, all else replaces"
                : "null takes an argument out, objects are merged, all else replaces"
            }
            error={wrong || undefined}
          >
            {(own) => (
              <textarea
                {...own}
                rows={3}
                spellcheck={false}
                placeholder={messages.areAll ? '{"value": {"currency": "EUR"}}' : '{"currency": "EUR"}'}
                value={edit}
                onInput={(event) => setEdit(event.currentTarget.value)}
              />
            )}
          </Field>
        </fieldset>
      </details>
      {dry !== null && dry.sample.length > 0 && <Sample of={dry} isEdited={typed !== null} />}
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
