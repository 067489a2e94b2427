/** The inbox by cause: what is wrong, how often, since when, and whom it hits. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { api } from "../api/client";
import type { Group } from "../api/types";
import { groupNews, link } from "../frame/live";
import { type Resource, useResource } from "../frame/resource";
import { canOperate } from "../frame/session";
import { useStillness } from "../frame/stillness";
import { href } from "../frame/router";
import { Badge, Button, Empty, format, Loaded, nowAt, Skeleton, Sparkline, Table, Time } from "../ui";
import { type Filters, filtersInWords, isFiltering, letterSearch } from "./filters";
import { held, type Sort, sorted, withNews } from "./order";
import { several, splitName } from "./words";

/** Rows that are drawn at once: thousands of causes are there, but nobody reads them. */
const STEP = 100;

/** The groups of some filters, from the server. */
export function useGroups(filters: Filters, group = ""): Resource<{ items: Group[]; total: number }> {
  const key = JSON.stringify(["groups", filters, group]);
  return useResource(key, (signal) =>
    api.get("/dead-letters/groups", { query: letterSearch(filters, nowAt(), group), signal }),
  );
}

export function Groups(props: {
  readonly found: Resource<{ items: Group[]; total: number }>;
  readonly filters: Filters;
  readonly sort: Sort;
  readonly query: Readonly<Record<string, string>>;
  readonly onReplay: (group: Group) => void;
}) {
  const { found, filters, sort } = props;
  return (
    <Loaded of={found} skeleton={<Skeleton lines={8} />}>
      {({ items }) => {
        if (items.length === 0) return <NoGroups filters={filters} />;
        // Events know nothing of filters, and are old as soon as they do not come any more.
        const canHear = !isFiltering(filters) && link.value === "live";
        const newest = canHear ? withNews(items, groupNews.value) : items;
        return <GroupTable key={`${sort} ${JSON.stringify(filters)}`} {...props} newest={newest} />;
      }}
    </Loaded>
  );
}

function NoGroups({ filters }: { readonly filters: Filters }) {
  if (!isFiltering(filters)) {
    return (
      <Empty title="Nothing was given up" icon="inbox">
        Every job has completed, or is still being tried. What runs out of attempts, or cannot be mended by another one,
        will wait here: by cause, with its traceback and its arguments, until you send it back.
      </Empty>
    );
  }
  return (
    <Empty title="No letters match" icon="search">
      Nothing was given up with {filtersInWords(filters)}. <a href={href("inbox")}>Show all letters</a>
    </Empty>
  );
}

/** The table holds its order while somebody points at it or walks through it, and says what waits. */
function GroupTable(props: Parameters<typeof Groups>[0] & { readonly newest: readonly Group[] }) {
  const { newest, sort } = props;
  const [isHeld, hold] = useStillness();
  const [most, setMost] = useState(STEP);
  const before = useRef<readonly Group[]>([]);
  const isMoving = !isHeld || before.current.length === 0;
  const { shown, waiting } = isMoving ? { shown: sorted(newest, sort), waiting: 0 } : held(before.current, newest);
  before.current = shown;
  return (
    <div class="groups" {...hold}>
      {waiting > 0 && (
        <button
          type="button"
          class="news"
          onClick={() => {
            before.current = [];
            hold.onPointerLeave();
          }}
        >
          {several(waiting, "new cause", "new causes")}: show
        </button>
      )}
      <Table
        label="Causes"
        rows={shown.slice(0, most)}
        keyOf={(group) => group.fingerprint || `none ${group.sample_id}`}
        hrefOf={(group) => groupHref(group, props.query)}
        rowKeys={canOperate.value ? [{ keys: "r", does: "replay the cause", run: props.onReplay }] : []}
        columns={[
          {
            title: "Cause",
            isWide: true,
            cell: (group) => <Cause group={group} link={groupHref(group, props.query)} />,
          },
          {
            title: "Letters",
            isNumber: true,
            cell: (group) => <strong class="group-count">{format.count(group.count)}</strong>,
          },
          {
            title: "Last 24 h",
            cell: (group) => <Sparkline values={group.hours} label={hoursInWords(group.hours)} />,
          },
          {
            title: "Tasks and tenants",
            cell: (group) => (
              <div class="hits">
                <Names of={group.tasks} />
                <Names of={group.tenants} most={3} />
              </div>
            ),
          },
          {
            title: "Last and first seen",
            cell: (group) => (
              <div class="seen">
                <Time at={group.last_at} />
                <span class="muted">
                  first <Time at={group.first_at} />
                </span>
              </div>
            ),
          },
        ]}
      />
      {shown.length > most && (
        <div class="pager">
          <span class="muted">
            {format.count(most)} of {several(shown.length, "cause", "causes")}
          </span>
          <Button isSmall onClick={() => setMost(most + STEP)}>
            Show more
          </Button>
        </div>
      )}
    </div>
  );
}

/** Where a group leads. Letters without a fingerprint have no page of their own: they are listed. */
export function groupHref(group: Group, query: Readonly<Record<string, string>>): string {
  if (group.fingerprint) return href(["inbox", group.fingerprint], query);
  return href("inbox", {
    ...query,
    tab: "letters",
    type: group.failure_type,
    task: group.tasks.length === 1 ? group.tasks[0] : "",
  });
}

function Cause({ group, link }: { readonly group: Group; readonly link: string }) {
  const name = splitName(group.error_name);
  return (
    <div class="cause">
      <a href={link} class="cause-name" title={`${group.error_name}: ${group.message}`}>
        {name.module && <span class="cause-module">{name.module}</span>}
        {name.short || "No error was recorded"}
      </a>
      <span class="cause-message">{group.message || "without a message"}</span>
      <span class="row cause-badges">
        <Badge of={group.failure_type} />
        <Badge of={group.severity} />
      </span>
    </div>
  );
}

/** A few names as tags, and how many more there are. */
export function Names({ of, most = 2 }: { readonly of: readonly string[]; readonly most?: number }): ComponentChildren {
  const names = of.filter(Boolean);
  if (names.length === 0) return null;
  return (
    <span class="tags names" title={names.join(", ")}>
      {names.slice(0, most).map((name) => (
        <span key={name} class="tag">
          {name}
        </span>
      ))}
      {names.length > most && <span class="muted">+{names.length - most}</span>}
    </span>
  );
}

/** What a sparkline of hours says. */
export function hoursInWords(hours: readonly number[]): string {
  const all = hours.reduce((sum, one) => sum + one, 0);
  return `${several(all, "letter", "letters")} in the last 24 hours, ${format.count(hours.at(-1) ?? 0)} in the last one`;
}
