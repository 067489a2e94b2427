/** One letter: what happened, why it was given up, and how to send it back. */
import { useMemo, useState } from "preact/hooks";
import { api } from "../api/client";
import { useKeys } from "../frame/keys";
import { useResource } from "../frame/resource";
import { go, href } from "../frame/router";
import { canOperate } from "../frame/session";
import {
  Badge,
  Button,
  CodeBlock,
  confirmed,
  done,
  Empty,
  Facts,
  failed,
  format,
  Icon,
  Loaded,
  PageHead,
  Panel,
  Skeleton,
  Time,
} from "../ui";
import { Changes } from "./Changes";
import { changesBetween } from "./diff";
import { type Exact, exactText, isObject } from "./exact";
import { type Letter, loadLetter, retryLetter } from "./letter";
import { editable, isGone, messageOf, partsOf, payloadWith, sentTo, targetOf, toOf } from "./message";
import { dataIn, pageOf } from "./page";
import { Payload } from "./Payload";
import { elementsIn, ringOf } from "./ring";
import { Timeline } from "./Timeline";
import { Traceback } from "./Traceback";
import { askWhere } from "./WhereTo";
import { causeOf, failureInWords, reasonInWords, several } from "./words";

export function LetterPage({ id }: { readonly id: string }) {
  const found = useResource(`letter ${id}`, (signal) => loadLetter(id, signal));
  return (
    <>
      <a class="crumb" href={href("inbox")}>
        <Icon name="back" size={13} /> Inbox
      </a>
      {found.problem?.status === 404 ? (
        <Empty title="This letter is not here any more" icon="search">
          It was removed, or completed so long ago that it was cleared away. Its id: <span class="mono">{id}</span>
        </Empty>
      ) : (
        <Loaded of={found} skeleton={<Skeleton lines={3} isTall />}>
          {(letter) => <Shown key={id} letter={letter} reload={found.reload} />}
        </Loaded>
      )}
    </>
  );
}

function Shown({ letter, reload }: { readonly letter: Letter; readonly reload: () => Promise<void> }) {
  const { job } = letter;
  const isDead = job.state === "dead_letter";
  const canRetry = isDead && canOperate.value;
  const [picked, setPicked] = useState<number | null>(null);
  const last = job.attempts.findLast((attempt) => attempt.error_name !== "") ?? job.attempts.at(-1);
  const chosen = job.attempts.find((attempt) => attempt.number === picked) ?? last;
  // Only another attempt makes another letter of it; a refresh must not take away what was typed.
  const edited = useMemo(() => letter, [job.id, job.attempt, job.state]);

  const [isEdited, setEdited] = useState(false);
  const message = messageOf(job);
  const ring = ringOf(job);
  const page = pageOf(job);
  const home = ring ? "ring" : page ? "crawl" : "queue";
  const hasNothing = message !== null && isGone(letter.arguments);
  const shown = partsShown(letter);
  const what = message ? "Message" : ring ? "Elements" : page ? "Data" : "Arguments";

  const retry = async () => {
    if (message) return sendBack();
    const isSure =
      !isEdited ||
      (await confirmed({
        title: "Retry without your edits?",
        text: `It goes back to the ${home} with the ${what.toLowerCase()} as stored. “Edit and retry” sends what you typed.`,
        action: "Retry as stored",
      }));
    if (!isSure) return;
    const { is_done } = await retryLetter(job.id, null);
    done(is_done ? `Sent back to the ${home}` : "It is no dead letter any more");
    await reload();
  };
  const sendBack = async () => {
    if (message === null) return;
    const title = isEdited ? "Send it back without your edits?" : "Send this message back?";
    const to = await askWhere(message, { title, action: isEdited ? "Send as stored" : "Send back" });
    if (to === null) return;
    const { arguments: payload } = letter;
    const isAsStored = to === toOf(payload) || !isObject(payload);
    const { is_done } = await retryLetter(job.id, isAsStored ? null : payloadWith(payload, {}, to));
    done(is_done ? `On its way to ${targetOf(message, to)}` : "It is no dead letter any more");
    await reload();
  };
  const remove = async () => {
    const isSure = await confirmed({
      title: "Remove this letter?",
      text: "It is deleted for good, with its arguments and every attempt. Nobody can send it back after that.",
      action: "Remove the letter",
      isDanger: true,
    });
    if (!isSure) return;
    await api.delete("/dead-letters/{id}", { path: { id: job.id } });
    done("Removed");
    go(job.fingerprint ? href(["inbox", job.fingerprint]) : href("inbox"));
  };
  useKeys(canRetry && !hasNothing ? [{ keys: "r", does: "retry the letter", run: () => void retry().catch(failed) }] : []);

  return (
    <>
      <PageHead
        title={job.error_name || job.task}
        note={
          <span class="row">
            <Badge of={job.state} />
            {job.failure_type && <Badge of={job.failure_type} />}
            {job.severity && <Badge of={job.severity} />}
          </span>
        }
      >
        {canRetry && (
          <>
            <Button icon="trash" kind="quiet" onClick={remove}>
              Remove
            </Button>
            {!hasNothing && (
              <Button icon="retry" kind="main" onClick={retry}>
                Retry
              </Button>
            )}
          </>
        )}
      </PageHead>
      <p class="group-message">{job.message || causeOf(job)}</p>
      {isDead ? (
        <div class="why tone-grave">
          <strong>
            Given up <Time at={job.ended_at ?? job.last_failed_at} />
          </strong>
          <span>
            {reasonInWords(job.reason)} {failureInWords(job.failure_type)}
          </span>
        </div>
      ) : (
        <Elsewhere job={job} />
      )}
      <Panel title="Letter">
        <Facts
          of={[
            message ? ["Stream", <a href={href(["streams", job.task])}>{job.task}</a>] : ["Task", ring || page ? "" : job.task],
            ["Crawl", page && <a href={href(["crawls", page.crawl])}>{page.crawl}</a>],
            ["URL", page && <span class="mono user-made address">{page.url}</span>],
            ["Domain", page && <span class="user-made">{page.domain}</span>],
            ["Depth", page && format.count(page.depth)],
            ["Found on", page && page.referrer && <span class="mono user-made address">{page.referrer}</span>],
            ["Ring", ring && <a href={href(["rings", ring.ring])}>{ring.ring}</a>],
            ["Consumer", ring?.consumer],
            ["Batch", ring && format.count(ring.batch)],
            ["First offset", ring && ring.offset && <span class="mono">{ring.offset}</span>],
            ["Elements", ring && format.count(ring.count)],
            ["Topic", message?.topic],
            ["Partition", message && `${message.partition}`],
            ["Offset", message && <span class="mono">{message.offset}</span>],
            ["Group", message?.group],
            ["Id", <span class="mono">{job.id}</span>],
            [
              "Cause",
              job.fingerprint && (
                <a class="mono" href={href(["inbox", job.fingerprint])}>
                  {job.fingerprint}
                </a>
              ),
            ],
            ["Queue", message || ring || page ? "" : job.queue],
            ["Tenant", job.tenant],
            ["User", job.user],
            ["Project", page ? "" : job.project],
            [message || ring ? "Given up first" : "Enqueued", <Time at={job.created_at} />],
            ["First failed", job.first_failed_at && <Time at={job.first_failed_at} />],
            ["Last failed", job.last_failed_at && <Time at={job.last_failed_at} />],
            ["Attempts", `${job.attempt}`],
            ["Sent back before", job.replays > 0 ? several(job.replays, "time", "times") : ""],
            ["Idempotency key", job.idempotency_key && <span class="mono">{job.idempotency_key}</span>],
            ["Trace", job.trace && <span class="mono">{traceId(job.trace)}</span>],
          ]}
        />
      </Panel>
      <Panel title={several(job.attempts.length, "attempt", "attempts")}>
        <Timeline
          attempts={job.attempts}
          createdAt={job.created_at}
          chosen={chosen?.number ?? 0}
          onChoose={setPicked}
        />
      </Panel>
      {chosen && (
        <Panel
          title={`Traceback of attempt ${chosen.number}`}
          aside={
            picked !== null && last && picked !== last.number ? (
              <Button isSmall kind="quiet" onClick={() => setPicked(null)}>
                Newest
              </Button>
            ) : null
          }
        >
          <Traceback key={chosen.number} of={chosen} />
        </Panel>
      )}
      <Panel title={what}>
        {letter.original !== null && isObject(letter.arguments) && (
          <div class="was-edited">
            <strong>Edited since it was {message ? "received" : ring ? "given up" : "enqueued"}</strong>
            <Changes
              of={
                message
                  ? changesBetween(editable(letter.original), editable(letter.arguments))
                  : ring
                    ? changesBetween(elementsIn(letter.original), elementsIn(letter.arguments))
                    : page
                      ? changesBetween(dataIn(letter.original), dataIn(letter.arguments))
                    : changesBetween(letter.original, letter.arguments)
              }
            />
          </div>
        )}
        {hasNothing && (
          <p class="note">
            <Icon name="warning" />
            <span>
              The server had deleted it before anybody read it: only its place is known. It can be sent once you have written
              a value.
            </span>
          </p>
        )}
        {canRetry && isObject(edited.arguments) ? (
          <Payload key={`${job.attempt} ${job.state}`} letter={edited} onEdited={setEdited} onRetried={reload} />
        ) : (
          <>
            {canRetry && (
              <p class="note">
                <Icon name="warning" />
                <span>These arguments are no JSON object, so they cannot be edited here.</span>
              </p>
            )}
            <CodeBlock
              label={what}
              text={typeof shown === "string" ? shown : exactText(shown, 2)}
            />
          </>
        )}
      </Panel>
    </>
  );
}

/** What is shown of its payload: of a message, a ring's letter or a page, what is not the library's own. */
function partsShown({ job, arguments: payload }: Letter): Exact {
  if (!isObject(payload)) return payload;
  if (ringOf(job)) return elementsIn(payload);
  if (pageOf(job)) return dataIn(payload);
  return messageOf(job) ? partsOf(payload) : payload;
}

/** A letter that was sent back: where it is now. */
function Elsewhere({ job }: { readonly job: Letter["job"] }) {
  const topic = sentTo(job);
  const group = messageOf(job)?.group;
  return (
    <div class="why tone-busy" role="status">
      <strong>{topic ? "Sent back" : "No dead letter any more"}</strong>
      <span>
        {topic ? (
          <>
            It was sent to <b>{topic}</b>, and waits there for the group {group} to take it. It is completed when the handler
            is done with it, and comes back to the inbox if it is given up again.
          </>
        ) : (
          <>
            It is {job.state.replace("_", " ")} now. What is below is what is known of it so far; it goes on being updated.
          </>
        )}{" "}
        <a href={href(["jobs", job.id])}>Open the job</a>
      </span>
    </div>
  );
}

/** The trace id of a W3C traceparent; what is none stays as it is. */
function traceId(trace: string): string {
  return /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(trace)?.[1] ?? trace;
}
