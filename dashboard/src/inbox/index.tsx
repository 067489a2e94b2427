/** The inbox: #/inbox (by cause, or single letters), #/inbox/FINGERPRINT, #/letter/ID and #/replays. */
import { useRef, useState } from "preact/hooks";
import { FAILURE_TYPES, type Group, type LetterFilter } from "../api/types";
import { replays } from "../frame/live";
import { asked, go, href, route, setQuery } from "../frame/router";
import { canOperate, isTenant } from "../frame/session";
import { Button, Choice, Empty, format, nowAt, PageHead, Search, Tabs } from "../ui";
import { type Filters, filtersInWords, filtersOf, isFiltering, letterFilter, RANGES } from "./filters";
import { GroupPage } from "./group_page";
import { groupHref, Groups, useGroups } from "./groups";
import { LetterPage } from "./letter_page";
import { Letters } from "./letters";
import type { Sort } from "./order";
import { ReplayDialog } from "./ReplayDialog";
import { ReplaysPage } from "./replays_page";
import { isUnderWay, several } from "./words";

export function InboxPage({ rest, first }: { readonly rest: readonly string[]; readonly first: string }) {
  const [part] = rest;
  if (first === "replays") return <ReplaysPage />;
  if (first === "letter") {
    return part ? <LetterPage key={part} id={part} /> : <Empty title="Which letter?">The address has no id.</Empty>;
  }
  return part ? <GroupPage key={part} fingerprint={part} /> : <ListPage />;
}

interface Asked {
  readonly filter: LetterFilter;
  readonly what: string;
}

/** What stays in the address when a cause is opened. */
const KEPT = ["task", "tenant", "type", "q", "range", "since", "until"];

function ListPage() {
  const { query } = route.value;
  const filters = filtersOf(query);
  const found = useGroups(filters);
  const [replaying, setReplaying] = useState<Asked | null>(null);
  const kept = Object.fromEntries(KEPT.map((name) => [name, query[name]?.[0] ?? ""]));
  const total = found.data?.total ?? 0;
  const running = replays.value.filter(isUnderWay).length;
  const only = isFiltering(filters) ? ` with ${filtersInWords(filters)}` : "";
  const replayAll = () =>
    setReplaying({
      filter: letterFilter(filters, nowAt()),
      what: only ? `Letters${only}` : "Every letter in the inbox, whatever its cause",
    });
  const replayGroup = (group: Group) => {
    // Without a fingerprint a filter by cause would mean every letter there is.
    if (group.fingerprint === "") go(groupHref(group, kept));
    else
      setReplaying({
        filter: letterFilter(filters, nowAt(), group.fingerprint),
        what: `Letters of the cause ${group.error_name}${only}`,
      });
  };
  return (
    <>
      <PageHead
        title="Inbox"
        {...(total > 0 && {
          note: `${several(total, "letter", "letters")}, ${several(found.data?.items.length ?? 0, "cause", "causes")}`,
        })}
      >
        <a class="button plain" href={href("replays")}>
          Replays{running > 0 && ` · ${format.count(running)} running`}
        </a>
        {canOperate.value && total > 0 && (
          <Button icon="play" onClick={replayAll}>
            {only ? "Replay these…" : "Replay all…"}
          </Button>
        )}
      </PageHead>
      <FilterBar filters={filters} groups={found.data?.items ?? []} />
      <Tabs
        label="How letters are shown"
        chosen={asked("tab") === "letters" ? "letters" : "causes"}
        onChoose={(id) => setQuery({ tab: id === "causes" ? null : id, cursor: null })}
        tabs={[
          {
            id: "causes",
            title: "By cause",
            body: () => <Groups found={found} filters={filters} sort={sortOf()} query={kept} onReplay={replayGroup} />,
          },
          {
            id: "letters",
            title: "Letters",
            body: () => <Letters filters={filters} hasCause onChange={() => void found.reload()} />,
          },
        ]}
      />
      {replaying && (
        <ReplayDialog
          filter={replaying.filter}
          isSearch={filters.text !== ""}
          what={replaying.what}
          onClose={() => {
            setReplaying(null);
            void found.reload();
          }}
        />
      )}
    </>
  );
}

function sortOf(): Sort {
  return asked("sort") === "last" ? "last" : "count";
}

function FilterBar({ filters, groups }: { readonly filters: Filters; readonly groups: readonly Group[] }) {
  const tasks = useSeen(groups.flatMap((group) => group.tasks));
  const tenants = useSeen(groups.flatMap((group) => group.tenants));
  const set = (name: string) => (value: string) => setQuery({ [name]: value, cursor: null });
  return (
    <div class="filters inbox-filters" role="search">
      <Search
        label="Search letters"
        value={filters.text}
        onSearch={(text) => setQuery({ q: text, cursor: null }, filters.text !== "" && text !== "")}
      />
      <Choice label="Task" value={filters.task} options={tasks} onChange={set("task")} />
      {!isTenant.value && tenants.length + filters.tenant.length > 0 && (
        <Choice label="Tenant" value={filters.tenant} options={tenants} onChange={set("tenant")} />
      )}
      <Choice
        label="Failure type"
        any="Any type"
        value={filters.type}
        options={FAILURE_TYPES.map((type) => [type, format.words(type)] as const)}
        onChange={set("type")}
      />
      <Choice
        label="Time"
        value={filters.range}
        any="Any time"
        options={RANGES.map(([name, words]) => [name, words] as const)}
        onChange={set("range")}
      />
      {asked("tab") !== "letters" && (
        <Choice
          label="Order"
          value={asked("sort")}
          any="Largest first"
          options={[["last", "Last seen first"]]}
          onChange={(sort) => setQuery({ sort })}
        />
      )}
      {isFiltering(filters) && (
        <Button
          kind="quiet"
          isSmall
          onClick={() => setQuery(Object.fromEntries([...KEPT, "cursor"].map((name) => [name, null])))}
        >
          Clear
        </Button>
      )}
    </div>
  );
}

/** Every name that has been there since the page was opened: a filter must not take away the other choices. */
function useSeen(names: readonly string[]): readonly string[] {
  const seen = useRef(new Set<string>());
  for (const name of names) if (name) seen.current.add(name);
  return [...seen.current].sort();
}
