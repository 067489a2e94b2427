/** Workers that are alive, and how much each does. */
import { api } from "../api/client";
import type { Worker } from "../api/types";
import { useResource } from "../frame/resource";
import { Badge, Empty, Loaded, PageHead, Table, Time, format, nowAt } from "../ui";

/** A worker whose lease is half over without a sign of life is late; its jobs go to others when it is over. */
function Standing({ worker }: { readonly worker: Worker }) {
  const silence = nowAt() - worker.seen_at;
  if (silence > worker.lease_s) return <Badge of="failed" text="gone" />;
  if (silence > worker.lease_s / 2) return <Badge of="retrying" text="late" />;
  return <Badge of="ok" text="alive" />;
}

export function WorkersPage() {
  const workers = useResource("workers", (signal) => api.get("/workers", { signal }));
  const all = workers.data?.items ?? [];
  const running = all.reduce((sum, worker) => sum + worker.running, 0);
  const speed = all.reduce((sum, worker) => sum + worker.tasks_per_second, 0);
  return (
    <>
      <PageHead
        title="Workers"
        note={all.length > 0 ? `${format.plural(running, "job")} running, ${format.rate(speed)}` : undefined}
      />
      <Loaded of={workers}>
        {(found) =>
          found.items.length === 0 ? (
            <Empty title="No worker is alive" icon="warning">
              Jobs wait until one is started, for example with <code>holdfast worker tasks:app</code>.
            </Empty>
          ) : (
            <Table
              label="Workers"
              rows={found.items}
              keyOf={(worker) => worker.id}
              columns={[
                {
                  title: "Host and process",
                  cell: (worker) => (
                    <span title={worker.id}>
                      <span class="strong">{worker.host}</span> <span class="muted num">{worker.pid}</span>
                    </span>
                  ),
                },
                { title: "Status", cell: (worker) => <Standing worker={worker} /> },
                { title: "Seen", cell: (worker) => <Time at={worker.seen_at} /> },
                { title: "Running", isNumber: true, cell: (worker) => format.count(worker.running) },
                { title: "Jobs/s", isNumber: true, cell: (worker) => format.rate(worker.tasks_per_second) },
                { title: "Completed", isNumber: true, cell: (worker) => format.shortCount(worker.completed) },
                { title: "Retried", isNumber: true, isExtra: true, cell: (worker) => format.shortCount(worker.retried) },
                { title: "Failed", isNumber: true, cell: (worker) => format.shortCount(worker.failed) },
                {
                  title: "Queues",
                  isWide: true,
                  isExtra: true,
                  cell: (worker) =>
                    worker.queues.length === 0 ? (
                      <span class="muted">all</span>
                    ) : (
                      <span title={worker.queues.join(", ")}>{worker.queues.join(", ")}</span>
                    ),
                },
                { title: "Started", isNumber: true, cell: (worker) => <Time at={worker.started_at} /> },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
