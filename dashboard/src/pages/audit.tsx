/** Who did what: the latest actions over HTTP. */
import { api } from "../api/client";
import type { AuditEntry } from "../api/types";
import { useResource } from "../frame/resource";
import { asked, setQuery } from "../frame/router";
import { Badge, Empty, Loaded, PageHead, Search, Table, Time } from "../ui";

/** Whether every word is somewhere in the entry. */
export function matches(entry: AuditEntry, text: string): boolean {
  const all = `${entry.who} ${entry.role} ${entry.address} ${entry.action} ${entry.target} ${entry.outcome}`.toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => all.includes(word));
}

export function AuditPage() {
  const audit = useResource("audit", (signal) => api.get("/audit", { signal }));
  const text = asked("q");
  return (
    <>
      <PageHead title="Audit" note="The latest actions; the log has all of them" />
      <div class="filters">
        <Search value={text} label="Search who, action, target" onSearch={(q) => setQuery({ q }, true)} />
      </div>
      <Loaded of={audit}>
        {(found) => {
          const rows = found.items.map((entry, at) => ({ ...entry, key: `${entry.at} ${found.items.length - at}` }));
          const shown = rows.filter((entry) => matches(entry, text));
          if (shown.length === 0) {
            return <Empty title={rows.length === 0 ? "Nobody has done anything yet" : "No entry matches"} icon="audit" />;
          }
          return (
            <Table
              label="Audit log"
              rows={shown}
              keyOf={(entry) => entry.key}
              columns={[
                { title: "When", cell: (entry) => <Time at={entry.at} /> },
                { title: "Who", cell: (entry) => <span class="strong">{entry.who}</span> },
                { title: "Role", isExtra: true, cell: (entry) => entry.role },
                { title: "Action", cell: (entry) => <span class="mono">{entry.action}</span> },
                { title: "Target", isWide: true, cell: (entry) => <span class="mono" title={entry.target}>{entry.target}</span> },
                {
                  title: "Outcome",
                  cell: (entry) => <Badge of={entry.outcome} tone={entry.outcome.startsWith("refused") ? "bad" : "good"} text={entry.outcome} />,
                },
                { title: "From", isExtra: true, cell: (entry) => <span class="mono muted">{entry.address}</span> },
              ]}
            />
          );
        }}
      </Loaded>
    </>
  );
}
