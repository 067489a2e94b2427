/** One job: where it stands, what it was given, every attempt, and what came of it. */
import { useState } from "preact/hooks";
import { api } from "../../api/client";
import type { Job } from "../../api/types";
import { useKeys } from "../../frame/keys";
import { useResource } from "../../frame/resource";
import { asked, go, href, setQuery } from "../../frame/router";
import { canOperate } from "../../frame/session";
import { messageOf, placeOf } from "../../inbox/message";
import { pageOf } from "../../inbox/page";
import { ringOf, spotOf } from "../../inbox/ring";
import { Timeline } from "../../inbox/Timeline";
import { Traceback } from "../../inbox/Traceback";
import { Badge, Button, CodeBlock, CopyButton, Empty, Facts, Icon, Loaded, Panel, Skeleton, Tabs, Time, format } from "../../ui";
import { canCancel, canRetry, cancelJobs, retryJobs } from "./actions";

export function JobView({ id }: { readonly id: string }) {
  const job = useResource(`job ${id}`, (signal) => api.get("/jobs/{id}", { path: { id }, signal }));
  useKeys([{ keys: "u", does: "back to the list", run: () => go(href("jobs")) }]);
  return (
    <>
      <a class="crumb" href={href("jobs")}>
        <Icon name="back" size={13} /> Jobs
      </a>
      {job.data === null && job.problem?.status === 404 ? (
        <Empty title="There is no such job" icon="search">
          It may have been removed after its time: jobs that have ended are kept for as long as the app says.
        </Empty>
      ) : (
        <Loaded of={job} skeleton={<Skeleton lines={6} isTall />}>
          {(found) => <JobBody job={found} reload={job.reload} />}
        </Loaded>
      )}
    </>
  );
}

function Actions({ job, reload }: { readonly job: Job; readonly reload: () => Promise<void> }) {
  if (!canOperate.value) return null;
  const act = async (change: (ids: readonly string[]) => Promise<boolean>) => {
    if (await change([job.id])) await reload();
  };
  return (
    <>
      {canRetry(job.state) && (
        <Button kind="main" icon="retry" onClick={() => act(retryJobs)}>
          Retry
        </Button>
      )}
      {canCancel(job.state) && (
        <Button icon="stop" onClick={() => act(cancelJobs)}>
          Cancel job
        </Button>
      )}
    </>
  );
}

function JobBody({ job, reload }: { readonly job: Job; readonly reload: () => Promise<void> }) {
  const message = messageOf(job);
  const ring = ringOf(job);
  const page = pageOf(job);
  return (
    <>
      <div class="page-head">
        <div class="page-title">
          <h1>{job.task}</h1>
          <Badge of={job.state} />
          <span class="row muted mono">
            {job.id} <CopyButton text={job.id} label="Copy the id" />
          </span>
        </div>
        <div class="page-actions">
          {job.state === "dead_letter" && (
            <a class="button plain" href={href(["letter", job.id])}>
              <Icon name="inbox" /> Open in the inbox
            </a>
          )}
          <Actions job={job} reload={reload} />
        </div>
      </div>
      {job.progress !== null && job.state === "running" && (
        <div class="meter" role="progressbar" aria-label="Progress" aria-valuenow={Math.round(job.progress * 100)}>
          <i style={{ width: `${job.progress * 100}%` }} />
        </div>
      )}
      <Panel title="Where it stands">
        <Facts
          of={[
            ["Queue", <a href={href("jobs", { queue: job.queue })}>{job.queue}</a>],
            ["Message", message && <span class="mono">{placeOf(message)}</span>],
            ["Group", message?.group],
            ["Crawl", page && <a href={href(["crawls", page.crawl])}>{page.crawl}</a>],
            ["Page", page && <span class="mono user-made address">{page.url}</span>],
            ["Depth", page && format.count(page.depth)],
            ["Found on", page && page.referrer && <span class="mono user-made address">{page.referrer}</span>],
            ["Ring", ring && <span class="mono">{spotOf(ring)}</span>],
            ["Made", <Time at={job.created_at} />],
            ["Due", job.ended_at === null ? <Time at={job.due_at} /> : null],
            ["Started", job.started_at === null ? null : <Time at={job.started_at} />],
            ["Ended", job.ended_at === null ? null : <Time at={job.ended_at} />],
            ["Attempt", format.count(job.attempt)],
            ["Priority", format.count(job.priority)],
            ["Tenant", job.tenant && <a href={href("jobs", { tenant: job.tenant })}>{job.tenant}</a>],
            ["User", job.user],
            ["Project", job.project],
            ["Worker", job.worker && <span class="mono">{job.worker}</span>],
            ["Replayed", job.replays > 0 ? format.plural(job.replays, "time") : null],
            ["Idempotency key", job.idempotency_key && <span class="mono">{job.idempotency_key}</span>],
            ["Reason", job.reason],
            ["Trace", job.trace && <span class="mono">{job.trace}</span>],
          ]}
        />
      </Panel>
      <Tabs
        label="Parts of the job"
        chosen={asked("tab")}
        onChoose={(tab) => setQuery({ tab }, true)}
        tabs={[
          { id: "attempts", title: `Attempts (${job.attempts.length})`, body: () => <Attempts job={job} /> },
          { id: "arguments", title: "Arguments", body: () => <Arguments job={job} /> },
          { id: "result", title: "Result", body: () => <Result job={job} /> },
        ]}
      />
    </>
  );
}

function Attempts({ job }: { readonly job: Job }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const shown = job.attempts.find((each) => each.number === chosen) ?? job.attempts.at(-1);
  return (
    <>
      <Timeline attempts={job.attempts} createdAt={job.created_at} chosen={shown?.number ?? 0} onChoose={setChosen} />
      {shown && shown.error_name !== "" && (
        <Panel
          title={`Attempt ${shown.number}: ${shown.error_name}`}
          aside={shown.failure_type && <Badge of={shown.failure_type} />}
        >
          <Traceback of={shown} />
        </Panel>
      )}
    </>
  );
}

function Arguments({ job }: { readonly job: Job }) {
  return (
    <>
      {job.redacted.length > 0 && (
        <p class="muted">
          {format.plural(job.redacted.length, "value")} {job.redacted.length === 1 ? "is" : "are"} hidden by name.
        </p>
      )}
      <CodeBlock label="Arguments" text={format.json(job.arguments)} />
      {job.original_arguments !== null && job.original_arguments !== undefined && (
        <Panel title="As it was enqueued, before it was edited">
          <CodeBlock label="Original arguments" text={format.json(job.original_arguments)} />
        </Panel>
      )}
    </>
  );
}

function Result({ job }: { readonly job: Job }) {
  if (job.state !== "completed") return <p class="muted">A job has a result once it has completed.</p>;
  return <CodeBlock label="Result" text={format.json(job.result)} />;
}
