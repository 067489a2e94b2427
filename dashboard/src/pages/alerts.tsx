/** Alert rules: those that fire first. */
import { api } from "../api/client";
import type { Alert } from "../api/types";
import { useResource } from "../frame/resource";
import { Badge, Empty, Loaded, PageHead, Table, Time } from "../ui";

/** A value as it is, without digits that say nothing. */
function number(value: number | null): string {
  return value === null ? "–" : String(Number(value.toPrecision(4)));
}

export function AlertsPage() {
  const alerts = useResource("alerts", (signal) => api.get("/alerts", { signal }));
  const sorted = (items: readonly Alert[]) =>
    [...items].sort((one, two) => Number(two.is_firing) - Number(one.is_firing) || one.name.localeCompare(two.name));
  return (
    <>
      <PageHead title="Alerts" />
      <Loaded of={alerts}>
        {(found) =>
          found.items.length === 0 ? (
            <Empty title="No alert rules" icon="alerts">
              The app has none. With rules for error rate, lag or dead letters it tells you before your users do.
            </Empty>
          ) : (
            <Table
              label="Alert rules"
              rows={sorted(found.items)}
              keyOf={(alert) => alert.name}
              columns={[
                { title: "Rule", cell: (alert) => <span class="strong">{alert.name}</span> },
                { title: "Status", cell: (alert) => <Badge of={alert.is_firing ? "firing" : "ok"} /> },
                { title: "What it sees", isWide: true, cell: (alert) => <span title={alert.text}>{alert.text}</span> },
                { title: "Value", isNumber: true, cell: (alert) => number(alert.value) },
                { title: "Threshold", isNumber: true, cell: (alert) => number(alert.threshold) },
                { title: "Since", cell: (alert) => <Time at={alert.since_at} /> },
              ]}
            />
          )
        }
      </Loaded>
    </>
  );
}
