/** Schedules: when each fires next, when it last did, and whether it is paused. */
import { api } from "../api/client";
import type { Schedule } from "../api/types";
import { useResource } from "../frame/resource";
import { href } from "../frame/router";
import { canOperate } from "../frame/session";
import { Badge, Button, Empty, Loaded, PageHead, Table, Time, confirmed, done } from "../ui";

async function toggle(schedule: Schedule, reload: () => Promise<void>): Promise<void> {
  const call = { path: { name: schedule.name } };
  if (schedule.is_paused) {
    await api.post("/schedules/{name}/resume", call);
    done(`Schedule ${schedule.name} goes on`);
  } else {
    const text = "It makes no jobs until it is resumed. Jobs that it has made already stay.";
    if (!(await confirmed({ title: `Pause the schedule ${schedule.name}?`, text, action: "Pause" }))) return;
    await api.post("/schedules/{name}/pause", call);
    done(`Schedule ${schedule.name} is paused`);
  }
  await reload();
}

export function SchedulesPage() {
  const schedules = useResource("schedules", (signal) => api.get("/schedules", { signal }));
  return (
    <>
      <PageHead title="Schedules" />
      <Loaded of={schedules}>
        {(found) =>
          found.items.length === 0 ? (
            <Empty title="No schedules" icon="schedules">
              The app has none. Give a task an interval or a cron line, and it shows here.
            </Empty>
          ) : (
            <Table
              label="Schedules"
              rows={found.items}
              keyOf={(schedule) => schedule.name}
              hrefOf={(schedule) => href("jobs", { task: schedule.task })}
              columns={[
                { title: "Schedule", cell: (schedule) => <span class="strong">{schedule.name}</span> },
                { title: "Task", cell: (schedule) => <a href={href("jobs", { task: schedule.task })}>{schedule.task}</a> },
                { title: "When", isWide: true, cell: (schedule) => <span class="mono">{schedule.timing}</span> },
                {
                  title: "Status",
                  cell: (schedule) => <Badge of={schedule.is_paused ? "paused" : "ok"} text={schedule.is_paused ? "paused" : "on"} />,
                },
                { title: "Next", cell: (schedule) => <Time at={schedule.is_paused ? null : schedule.next_at} /> },
                { title: "Last", cell: (schedule) => <Time at={schedule.last_at} none="never" /> },
                ...(canOperate.value
                  ? [
                      {
                        title: "",
                        isNumber: true,
                        cell: (schedule: Schedule) => (
                          <Button
                            isSmall
                            icon={schedule.is_paused ? "play" : "pause"}
                            onClick={() => toggle(schedule, schedules.reload)}
                          >
                            {schedule.is_paused ? "Resume" : "Pause"}
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
