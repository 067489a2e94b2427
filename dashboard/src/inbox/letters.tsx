/** Single letters, page by page, with what can be done to many of them. */
import { useEffect, useState } from "preact/hooks";
import { api } from "../api/client";
import type { JobPage, JobSummary } from "../api/types";
import { useResource } from "../frame/resource";
import { asked, href, setQuery } from "../frame/router";
import { canOperate } from "../frame/session";
import { Badge, Button, Empty, failed, format, Loaded, nowAt, Pager, Skeleton, Table, Time } from "../ui";
import { useKeys } from "../frame/keys";
import { remove, retry } from "./bulk";
import { type Filters, filtersInWords, isFiltering, letterSearch } from "./filters";
import { messageOf, placeOf } from "./message";
import { pageOf } from "./page";
import { ringOf, spotOf } from "./ring";
import { causeOf, several } from "./words";

const LIMIT = 50;
/** A search may answer with short pages; so many are followed before they are shown as they are. */
const FOLLOWED = 5;

/** A page of letters, with short pages followed until it is full. */
async function loadPage(filters: Filters, group: string, cursor: string, signal: AbortSignal): Promise<JobPage> {
  const items: JobSummary[] = [];
  let next = cursor;
  for (let i = 0; i < FOLLOWED; i += 1) {
    const query = { ...letterSearch(filters, nowAt(), group), limit: LIMIT - items.length, cursor: next };
    const page = await api.get("/dead-letters", { query, signal });
    items.push(...page.items);
    next = page.cursor;
    if (next === "" || items.length >= LIMIT) break;
  }
  return { items, cursor: next };
}

export function Letters(props: {
  readonly filters: Filters;
  readonly group?: string;
  /** In a group all have one cause: it need not be said in every row. */
  readonly hasCause: boolean;
  readonly onChange?: () => void;
  /** What `r` does while nothing is selected. */
  readonly onReplay?: () => void;
}) {
  const { filters, group = "", hasCause } = props;
  const cursor = asked("cursor");
  const found = useResource(JSON.stringify(["letters", filters, group, cursor]), (signal) =>
    loadPage(filters, group, cursor, signal),
  );
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const shown = found.data?.items ?? [];
  useEffect(() => {
    // What has left the page cannot be meant any more.
    const here = new Set(shown.map((letter) => letter.id));
    if ([...selected].some((id) => !here.has(id))) setSelected(new Set([...selected].filter((id) => here.has(id))));
  }, [found.data]);
  const changed = async (isDone: boolean) => {
    if (!isDone) return;
    setSelected(new Set());
    await found.reload();
    props.onChange?.();
  };
  useKeys(
    canOperate.value
      ? [
          {
            keys: "r",
            does: props.onReplay ? "retry what is selected, or replay all" : "retry what is selected",
            run: () => {
              if (selected.size > 0)
                retry([...selected])
                  .then(changed)
                  .catch(failed);
              else props.onReplay?.();
            },
          },
        ]
      : [],
  );
  return (
    <Loaded of={found} skeleton={<Skeleton lines={6} />}>
      {({ items, cursor: older }) =>
        items.length === 0 && older === "" && cursor === "" ? (
          <NoLetters filters={filters} isGroup={group !== ""} />
        ) : (
          <>
            <Table
              label="Letters"
              rows={items}
              keyOf={(letter) => letter.id}
              hrefOf={(letter) => href(["letter", letter.id])}
              {...(canOperate.value && { selected, onSelect: setSelected })}
              columns={[
                {
                  title: "Letter",
                  cell: (letter) => (
                    <a class="mono" href={href(["letter", letter.id])} title={letter.id}>
                      {format.shortId(letter.id)}
                    </a>
                  ),
                },
                {
                  title: "Task",
                  cell: (letter) => (
                    <span class="tag letter-name" title={titleOf(letter)}>
                      {pageOf(letter)?.url ?? letter.task}
                    </span>
                  ),
                },
                {
                  title: hasCause ? "Cause" : "Message",
                  isWide: true,
                  cell: (letter) => (
                    <span title={causeOf(letter)}>
                      {hasCause ? causeOf(letter) : letter.message || causeOf(letter)}
                    </span>
                  ),
                },
                ...(hasCause
                  ? [
                      {
                        title: "Type",
                        cell: (letter: JobSummary) => (letter.failure_type ? <Badge of={letter.failure_type} /> : "–"),
                      },
                    ]
                  : []),
                ...(hasCause
                  ? []
                  : [
                      {
                        title: "Why given up",
                        isExtra: true,
                        cell: (letter: JobSummary) => <span class="muted">{letter.reason || "–"}</span>,
                      },
                    ]),
                { title: "Tenant", cell: (letter) => <Tenant of={letter.tenant} /> },
                { title: "Attempts", isNumber: true, cell: (letter) => format.count(letter.attempt) },
                { title: "Given up", cell: (letter) => <Time at={letter.ended_at ?? letter.last_failed_at} /> },
              ]}
            />
            <Pager
              shown={items.length}
              noun={items.length === 1 ? "letter" : "letters"}
              isFirst={cursor === ""}
              hasOlder={older !== ""}
              onNewest={() => setQuery({ cursor: null })}
              onOlder={() => setQuery({ cursor: older })}
            />
            {selected.size > 0 && (
              <div class="bulk" role="region" aria-label="What is selected">
                <strong>{several(selected.size, "letter", "letters")} selected</strong>
                <Button isSmall icon="retry" kind="main" onClick={() => retry([...selected]).then(changed)}>
                  Retry
                </Button>
                <Button isSmall icon="trash" kind="danger" onClick={() => remove([...selected]).then(changed)}>
                  Remove
                </Button>
                <Button isSmall kind="quiet" onClick={() => setSelected(new Set())}>
                  Clear
                </Button>
              </div>
            )}
          </>
        )
      }
    </Loaded>
  );
}

/** The task's name, or the stream's and which message it is, or the ring's and which batch, or which page. */
function titleOf(letter: JobSummary): string {
  const message = messageOf(letter);
  const ring = ringOf(letter);
  if (ring) return spotOf(ring);
  const page = pageOf(letter);
  if (page) return page.url;
  return message ? `${letter.task}: ${placeOf(message)} of group ${message.group}` : letter.task;
}

function Tenant({ of }: { readonly of: string }) {
  return of ? (
    <span class="letter-name" title={of}>
      {of}
    </span>
  ) : (
    <span class="muted">–</span>
  );
}

function NoLetters({ filters, isGroup }: { readonly filters: Filters; readonly isGroup: boolean }) {
  if (isGroup) return <Empty title="No letters of this cause are left">They were sent back or removed.</Empty>;
  if (!isFiltering(filters)) {
    return (
      <Empty title="Nothing was given up" icon="inbox">
        Every job has completed, or is still being tried.
      </Empty>
    );
  }
  return (
    <Empty title="No letters match" icon="search">
      Nothing was given up with {filtersInWords(filters)}.{" "}
      <a href={href("inbox", { tab: "letters" })}>Show all letters</a>
    </Empty>
  );
}
