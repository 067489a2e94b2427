/** Queues: what waits in each, for how long, and whether it is paused. */
import { api } from "../api/client";
import { JOB_STATES, type Queue } from "../api/types";
import { useResource } from "../frame/resource";
import { href } from "../frame/router";
import { canOperate } from "../frame/session";
import { Badge, Button, Empty, Loaded, PageHead, Table, confirmed, done, format } from "../ui";
import { StateBar } from "../ui/StateBar";

async function toggle(queue: Queue, reload: () => Promise<void>): Promise<void> {
  const call = { path: { name: queue.name } };
  if (queue.is_paused) {
    await api.post("/queues/{name}/resume", call);
    done(`Queue ${queue.name} goes on`);
  } else {
    const text = "Workers start no job of this queue until it is resumed. Jobs that run now go on; new ones are still taken in.";
    if (!(await confirmed({ title: `Pause the queue ${queue.name}?`, text, action: "Pause" }))) return;
    await api.post("/queues/{name}/pause", call);
    done(`Queue ${queue.name} is paused`);
  }
  await reload();
}

function State({ queue, state }: { readonly queue: Queue; readonly state: string }) {
  const many = queue.states[state] ?? 0;
  if (many === 0) return <span class="muted">0</span>;
  return <a href={href("jobs", { queue: queue.name, state })}>{format.shortCount(many)}</a>;
}

export function QueuesPage() {
  const queues = useResource("queues", (signal) => api.get("/queues", { signal }));
  return (
    <>
      <PageHead title="Queues" />
      <Loaded of={queues}>
        {(found) =>
          found.items.length === 0 ? (
            <Empty title="No queues yet" icon="queues">
              A queue is there from its first job on.
            </Empty>
          ) : (
            <Table
              label="Queues"
              rows={found.items}
              keyOf={(queue) => queue.name}
              hrefOf={(queue) => href("jobs", { queue: queue.name })}
              columns={[
                {
                  title: "Queue",
                  cell: (queue) => (
                    <a class="strong" href={href("jobs", { queue: queue.name })} title={queue.name}>
                      {queue.name}
                    </a>
                  ),
                },
                {
                  title: "Status",
                  cell: (queue) => (queue.is_paused ? <Badge of="paused" /> : <Badge of="ok" text="open" />),
                },
                {
                  title: "Unfinished",
                  isNumber: true,
                  cell: (queue) => <span class="strong">{format.count(queue.depth)}</span>,
                },
                {
                  title: "Oldest due",
                  isNumber: true,
                  cell: (queue) =>
                    queue.lag_s === null ? <span class="muted">–</span> : `${format.duration(queue.lag_s)} ago`,
                },
                { title: "States", isWide: true, isExtra: true, cell: (queue) => <StateBar states={queue.states} /> },
                ...(["running", "retrying", "dead_letter"] as const).map((state) => ({
                  title: format.heading(state),
                  isNumber: true,
                  cell: (queue: Queue) => <State queue={queue} state={state} />,
                })),
                {
                  title: "All",
                  isNumber: true,
                  isExtra: true,
                  cell: (queue) => format.shortCount(JOB_STATES.reduce((sum, state) => sum + (queue.states[state] ?? 0), 0)),
                },
                ...(canOperate.value
                  ? [
                      {
                        title: "",
                        isNumber: true,
                        cell: (queue: Queue) => (
                          <Button isSmall icon={queue.is_paused ? "play" : "pause"} onClick={() => toggle(queue, queues.reload)}>
                            {queue.is_paused ? "Resume" : "Pause"}
                          </Button>
                        ),
                      },
                    ]
                  : []),
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
