/** One cause: what is wrong, whom it hits, where in the code, and all of its letters. */
import { useState } from "preact/hooks";
import type { Group, LetterFilter } from "../api/types";
import { useResource } from "../frame/resource";
import { href, route } from "../frame/router";
import { canOperate } from "../frame/session";
import {
  Badge,
  Button,
  Empty,
  Facts,
  format,
  Icon,
  Loaded,
  nowAt,
  PageHead,
  Panel,
  Skeleton,
  Sparkline,
  Time,
} from "../ui";
import { filtersInWords, filtersOf, isFiltering, letterFilter } from "./filters";
import { culpritOf, placeOf } from "./frames";
import { hoursInWords, Names, useGroups } from "./groups";
import { loadLetter } from "./letter";
import { Letters } from "./letters";
import { ReplayCard } from "./ReplayCard";
import { ReplayDialog } from "./ReplayDialog";
import { useReplays } from "./replaying";
import { Traceback } from "./Traceback";
import { failureInWords, isUnderWay, several } from "./words";

export function GroupPage({ fingerprint }: { readonly fingerprint: string }) {
  const filters = filtersOf(route.value.query);
  const found = useGroups({ ...filters, text: "" }, fingerprint); // a text here is looked for in its letters
  const replays = useReplays();
  const own = replays.data?.filter((replay) => replay.group === fingerprint) ?? [];
  // What "the last hour" means is settled when the dialog opens.
  const [replaying, setReplaying] = useState<LetterFilter | null>(null);
  const replay = () => setReplaying(letterFilter(filters, nowAt(), fingerprint));
  const group = found.data?.items.find((one) => one.fingerprint === fingerprint) ?? null;
  return (
    <>
      <a class="crumb" href={href("inbox", { ...route.value.query, cursor: null })}>
        <Icon name="back" size={13} /> Inbox
      </a>
      <Loaded of={found} skeleton={<Skeleton lines={3} isTall />}>
        {() =>
          group === null ? (
            <Empty title="No letters of this cause are left">
              {isFiltering(filters) ? `None with ${filtersInWords(filters)}. ` : "They were sent back or removed. "}
              {isFiltering(filters) && <a href={href(["inbox", fingerprint])}>Show the cause without filters</a>}
            </Empty>
          ) : (
            <>
              <PageHead
                title={group.error_name || "No error was recorded"}
                note={
                  <span class="row">
                    <Badge of={group.failure_type} />
                    <Badge of={group.severity} />
                  </span>
                }
              >
                {canOperate.value && (
                  <Button kind="main" icon="play" onClick={replay}>
                    Replay {several(group.count, "letter", "letters")}…
                  </Button>
                )}
              </PageHead>
              <p class="group-message">{group.message || "The error has no message."}</p>
              {isFiltering(filters) && (
                <p class="note">
                  <Icon name="search" />
                  <span>
                    Only letters with {filtersInWords(filters)}.{" "}
                    <a href={href(["inbox", fingerprint])}>Show all of this cause</a>
                  </span>
                </p>
              )}
              <Head group={group} />
            </>
          )
        }
      </Loaded>
      {own
        .filter((one, at) => isUnderWay(one) || at === 0)
        .map((one) => (
          <ReplayCard key={one.id} replay={one} onChange={replays.reload} />
        ))}
      {group && <Where first={group.sample_id} />}
      {group && (
        <section class="stack" aria-label="Letters of this cause">
          <h2>Letters</h2>
          <Letters
            filters={filters}
            group={fingerprint}
            hasCause={false}
            onChange={() => void found.reload()}
            onReplay={replay}
          />
        </section>
      )}
      {replaying && (
        <ReplayDialog
          filter={replaying}
          isSearch={filters.text !== ""}
          what={`Letters of the cause ${group?.error_name ?? fingerprint}${isFiltering(filters) ? ` with ${filtersInWords(filters)}` : ""}`}
          onClose={() => {
            setReplaying(null);
            void found.reload();
            void replays.reload();
          }}
        />
      )}
    </>
  );
}

function Head({ group }: { readonly group: Group }) {
  return (
    <div class="group-head">
      <Facts
        of={[
          ["Letters", <strong class="group-count">{format.count(group.count)}</strong>],
          ["First seen", <Time at={group.first_at} />],
          ["Last seen", <Time at={group.last_at} />],
          [group.tasks.length === 1 ? "Task" : "Tasks", <Names of={group.tasks} most={6} />],
          [
            group.tenants.length === 1 ? "Tenant" : "Tenants",
            group.tenants.some(Boolean) ? <Names of={group.tenants} most={6} /> : "",
          ],
          ["What helps", failureInWords(group.failure_type)],
        ]}
      />
      <figure>
        <Sparkline values={group.hours} label={hoursInWords(group.hours)} width={240} height={48} />
        <figcaption class="muted">{hoursInWords(group.hours)}</figcaption>
      </figure>
    </div>
  );
}

/** The traceback of the letter that stood for the group when the page was opened: it must not change while it is read. */
function Where({ first }: { readonly first: string }) {
  const [id] = useState(first);
  const found = useResource(`where ${id}`, (signal) => loadLetter(id, signal), { isLive: false });
  return (
    <Loaded of={found} skeleton={<Skeleton lines={1} isTall />}>
      {({ job }) => {
        const attempt = job.attempts.findLast((one) => one.error_name !== "") ?? job.attempts.at(-1);
        if (attempt === undefined) return null;
        const culprit = culpritOf(attempt.frames);
        const place = culprit && placeOf(culprit);
        return (
          <Panel
            title="Where it fails"
            aside={
              <a href={href(["letter", job.id])}>
                from letter <span class="mono">{format.shortId(job.id)}</span>
              </a>
            }
          >
            {place && (
              <p class="culprit">
                <strong class="mono">{place.name || "module"}</strong>
                <span class="muted mono">
                  {place.file}:{place.line}
                </span>
              </p>
            )}
            <Traceback of={attempt} />
          </Panel>
        );
      }}
    </Loaded>
  );
}
