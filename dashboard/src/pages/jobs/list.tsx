/** The list of jobs: search and filters in the address, pages by cursor, many at once. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../../api/client";
import { JOB_STATES, type JobState, type JobSummary } from "../../api/types";
import { follow } from "../../frame/paging";
import { useResource } from "../../frame/resource";
import { asked, askedAll, href, setQuery } from "../../frame/router";
import { overview } from "../../frame/live";
import { canOperate, isTenant } from "../../frame/session";
import { Badge, Button, Choice, Empty, Loaded, PageHead, Pager, Search, Skeleton, Table, Time, format } from "../../ui";
import type { Column } from "../../ui";
import { MOST, cancelJobs, retryJobs } from "./actions";

const PAGE = 50;

function isJobState(name: string): name is JobState {
  return (JOB_STATES as readonly string[]).includes(name);
}

function lasted(job: JobSummary): string {
  if (job.started_at === null || job.ended_at === null) return "–";
  return format.duration(Math.max(0, job.ended_at - job.started_at));
}

const COLUMNS: readonly Column<JobSummary>[] = [
  {
    title: "Job",
    cell: (job) => (
      <a href={href(["jobs", job.id])} class="mono" title={job.id}>
        {format.shortId(job.id)}
      </a>
    ),
  },
  { title: "Task", cell: (job) => <span class="strong" title={job.task}>{job.task}</span> },
  {
    title: "State",
    cell: (job) => (
      <>
        <Badge of={job.state} />
        {job.progress !== null && <span class="muted num"> {format.percent(job.progress)}</span>}
      </>
    ),
  },
  {
    title: "Last error",
    isWide: true,
    isVoid: (job) => job.error_name === "" && job.reason === "",
    cell: (job) =>
      job.error_name ? (
        <span title={`${job.error_name}: ${job.message}`}>
          {job.error_name} <span class="muted">{job.message}</span>
        </span>
      ) : (
        <span class="muted">{job.reason || "–"}</span>
      ),
  },
  { title: "Attempt", isNumber: true, isExtra: true, cell: (job) => job.attempt },
  { title: "Queue", isExtra: true, cell: (job) => job.queue },
  { title: "Tenant", isExtra: true, cell: (job) => (job.tenant ? <span title={job.tenant}>{job.tenant}</span> : <span class="muted">–</span>) },
  { title: "Ran for", isNumber: true, isSpare: true, cell: lasted },
  { title: "Made", isNumber: true, cell: (job) => <Time at={job.created_at} /> },
];

function Filters() {
  const tasks = useResource("tasks", (signal) => api.get("/tasks", { signal }), { isLive: false });
  const change = (patch: Record<string, string | readonly string[]>) => setQuery({ ...patch, cursor: "" });
  const states = askedAll("state");
  return (
    <div class="filters" role="search">
      <Search value={asked("q")} label="Search id, task, error, arguments" onSearch={(q) => setQuery({ q, cursor: "" }, true)} />
      <Choice
        label="State"
        value={states.length > 1 ? states.join(",") : (states[0] ?? "")}
        options={[
          ...(states.length > 1 ? [[states.join(","), states.map(format.words).join(", ")] as const] : []),
          ...JOB_STATES.map((state) => [state, format.words(state)] as const),
        ]}
        onChange={(state) => change({ state: state.split(",").filter(isJobState) })}
      />
      <Choice
        label="Task"
        value={asked("task")}
        options={(tasks.data?.items ?? []).map((task) => task.name)}
        onChange={(task) => change({ task })}
      />
      {!isTenant.value && (
        <Choice
          label="Queue"
          value={asked("queue")}
          options={(overview.value?.queues ?? []).map((queue) => queue.name)}
          onChange={(queue) => change({ queue })}
        />
      )}
      {!isTenant.value && <TenantFilter key={asked("tenant")} onChange={(tenant) => change({ tenant })} />}
    </div>
  );
}

// Tenants are not listed anywhere (there may be a million): theirs is a box to type into.
function TenantFilter({ onChange }: { readonly onChange: (tenant: string) => void }) {
  return (
    <input
      class="tenant-filter"
      aria-label="Tenant"
      placeholder="Tenant"
      maxLength={200}
      defaultValue={asked("tenant")}
      onChange={(event) => onChange(event.currentTarget.value.trim())}
    />
  );
}

export function JobList() {
  const query = {
    state: askedAll("state").filter(isJobState),
    task: asked("task"),
    queue: asked("queue"),
    tenant: asked("tenant") || undefined,
    text: asked("q"),
  };
  const cursor = asked("cursor");
  const filters = JSON.stringify(query);
  const isFiltered = query.state.length > 0 || [query.task, query.queue, query.tenant, query.text].some(Boolean);
  const isSearch = query.text !== "";
  const jobs = useResource(
    `jobs ${filters} ${cursor}`,
    (signal) =>
      follow((at, limit) => api.get("/jobs", { query: { ...query, limit, cursor: at }, signal }), cursor, PAGE),
    // A search may read far into the store: it is done once, and again when asked for.
    { isLive: !isSearch, isKept: true },
  );
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  useEffect(() => setSelected(new Set()), [filters]);

  return (
    <>
      <PageHead title="Jobs" note={isSearch ? "as they were when you searched" : undefined}>
        {isSearch && (
          <Button icon="retry" onClick={jobs.reload}>
            Search again
          </Button>
        )}
        {isFiltered && (
          <Button icon="close" onClick={() => setQuery({ state: [], task: "", queue: "", tenant: "", q: "", cursor: "" })}>
            Clear filters
          </Button>
        )}
      </PageHead>
      <Filters />
      <Loaded of={jobs} skeleton={<Skeleton lines={12} />}>
        {(page) => (
          <>
            {page.items.length === 0 ? (
              <Nothing isFiltered={isFiltered} hasMore={page.cursor !== ""} />
            ) : (
              <Table
                label="Jobs"
                rows={page.items}
                columns={COLUMNS}
                keyOf={(job) => job.id}
                hrefOf={(job) => href(["jobs", job.id])}
                {...(canOperate.value ? { selected, onSelect: setSelected } : {})}
              />
            )}
            <Pager
              shown={page.items.length}
              noun={page.items.length === 1 ? "job" : "jobs"}
              isFirst={cursor === ""}
              hasOlder={page.cursor !== ""}
              onNewest={() => setQuery({ cursor: "" })}
              onOlder={() => {
                setQuery({ cursor: page.cursor });
                scrollTo(0, 0);
              }}
            />
          </>
        )}
      </Loaded>
      {selected.size > 0 && <Bulk selected={selected} onDone={() => setSelected(new Set())} reload={jobs.reload} />}
    </>
  );
}

function Nothing({ isFiltered, hasMore }: { readonly isFiltered: boolean; readonly hasMore: boolean }) {
  if (hasMore) {
    return (
      <Empty title="Nothing found yet" icon="search">
        The newest jobs do not match. Press Older to look further back.
      </Empty>
    );
  }
  if (isFiltered) {
    return (
      <Empty title="No job matches" icon="search">
        Take a filter away, or search for something else.
      </Empty>
    );
  }
  return (
    <Empty title="No jobs yet" icon="jobs">
      Jobs appear here as soon as your code enqueues one.
    </Empty>
  );
}

function Bulk(props: {
  readonly selected: ReadonlySet<string>;
  readonly onDone: () => void;
  readonly reload: () => Promise<void>;
}) {
  const ids = [...props.selected];
  const act = async (change: (ids: readonly string[]) => Promise<boolean>) => {
    if (!(await change(ids))) return;
    props.onDone();
    await props.reload();
  };
  return (
    <div class="bulk" role="region" aria-label="Selected jobs">
      <strong>{format.plural(ids.length, "job")} selected</strong>
      {ids.length > MOST && <span class="error-text">{`at most ${format.count(MOST)} at once`}</span>}
      <Button icon="retry" isDisabled={ids.length > MOST} onClick={() => act(retryJobs)}>
        Retry
      </Button>
      <Button icon="stop" isDisabled={ids.length > MOST} onClick={() => act(cancelJobs)}>
        Cancel jobs
      </Button>
      <Button kind="quiet" icon="close" label="Select none" onClick={props.onDone} />
    </div>
  );
}
