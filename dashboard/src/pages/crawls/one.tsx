/** One crawl: how far it is, where it began, its processes, and what each of its domains is at. */
import type { CrawlDetail, CrawlProcess, Domain } from "../../api/types";
import { useKeys } from "../../frame/keys";
import { asked, go, href, setQuery } from "../../frame/router";
import {
  Badge,
  type Column,
  Countdown,
  Empty,
  Facts,
  Icon,
  Loaded,
  PageHead,
  Panel,
  Search,
  Skeleton,
  Stat,
  Table,
  Time,
  format,
  nowAt,
} from "../../ui";
import { conditionOf, etaInWords, holdOf, isDomainMeant, saidOf, shareOf } from "./condition";
import { useCrawl } from "./watch";

/** A domains' search is there from so many on. */
const MANY = 8;

export function CrawlPage({ name }: { readonly name: string }) {
  const found = useCrawl(name);
  useKeys([{ keys: "u", does: "back to all crawls", run: () => go(href("crawls")) }]);
  return (
    <>
      <a class="crumb" href={href("crawls")}>
        <Icon name="back" size={13} /> Crawls
      </a>
      {found.data === null && found.problem?.status === 404 ? (
        <Empty title="There is no such crawl" icon="search">
          The store knows of none named <span class="mono user-made">{name}</span>: it may have been removed.
        </Empty>
      ) : (
        <Loaded of={found} skeleton={<Skeleton lines={4} isTall />}>
          {(crawl) => <Shown crawl={crawl} />}
        </Loaded>
      )}
    </>
  );
}

function Shown({ crawl }: { readonly crawl: CrawlDetail }) {
  const [word, tone] = saidOf(conditionOf(crawl));
  return (
    <>
      <PageHead title={<span class="user-made">{crawl.name}</span>} note={<Badge of={word} tone={tone} />} />
      <Failing of={crawl.processes} />
      <Progress crawl={crawl} />
      <Numbers crawl={crawl} />
      <Panel title="Crawl">
        <Facts
          of={[
            ["Began at", crawl.seeds.length > 0 && <Lines of={crawl.seeds} />],
            ["Started", crawl.started_at && <Time at={crawl.started_at} />],
            ["Finished", crawl.finished_at && <Time at={crawl.finished_at} />],
            ["Output", outputsOf(crawl).length > 0 && <Lines of={outputsOf(crawl)} />],
            ["Items", crawl.processes.length > 0 && `${format.count(sumOf(crawl, "items"))} since its processes began`],
            ["Received", crawl.processes.length > 0 && format.bytes(sumOf(crawl, "bytes"))],
            ["Pages", <a href={href("jobs", { queue: crawl.task })}>all of them</a>],
          ]}
        />
      </Panel>
      {crawl.processes.length > 0 && (
        <Panel title={format.plural(crawl.processes.length, "process", "processes")}>
          <Table
            label={`Processes of ${crawl.name}`}
            rows={crawl.processes}
            keyOf={(one) => one.worker}
            columns={PROCESSES}
            isKeyless
          />
        </Panel>
      )}
      <Domains crawl={crawl} />
    </>
  );
}

function sumOf(crawl: CrawlDetail, field: "items" | "bytes"): number {
  return crawl.processes.reduce((sum, one) => sum + one[field], 0);
}

function outputsOf(crawl: CrawlDetail): readonly string[] {
  return [...new Set(crawl.processes.map((one) => one.output).filter((one) => one !== ""))];
}

/** What users made, a line each; addresses are text and lead nowhere. */
function Lines({ of }: { readonly of: readonly string[] }) {
  return (
    <>
      {of.map((one) => (
        <div key={one} class="mono user-made">
          {one}
        </div>
      ))}
    </>
  );
}

function Failing({ of }: { readonly of: readonly CrawlProcess[] }) {
  return (
    <>
      {of
        .filter((one) => one.output_error !== "")
        .map((one) => (
          <div key={one.worker} class="why tone-bad" role="alert">
            <strong>
              {one.host} {one.pid} cannot write its items
            </strong>
            <span class="user-made">
              {one.output}: {one.output_error}
            </span>
            <span>Items are kept with their pages until they can be written.</span>
          </div>
        ))}
    </>
  );
}

function Progress({ crawl }: { readonly crawl: CrawlDetail }) {
  const share = shareOf(crawl);
  if (share === null) return null;
  const known = crawl.done + crawl.dead + crawl.skipped + crawl.pending;
  const text = `${format.percent(share)} of ${format.plural(known, "page")} known so far; ${etaInWords(crawl)}`;
  return (
    <div class="crawl-progress">
      <div
        class="meter"
        role="progressbar"
        aria-label="Pages that have ended"
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.floor(share * 100)}
        aria-valuetext={text}
      >
        <i style={{ width: `${share * 100}%` }} />
      </div>
      <span class="muted num">{text}</span>
    </div>
  );
}

function Numbers({ crawl }: { readonly crawl: CrawlDetail }) {
  return (
    <div class="stats">
      <Stat name="Done" value={format.count(crawl.done)} note={format.rate(crawl.rate_per_s)} />
      <Stat
        name="Pending"
        value={format.count(crawl.pending)}
        note={`${format.count(crawl.waiting)} wait for a time, ${format.count(crawl.in_flight)} in flight`}
      />
      <Stat
        name="Dead letters"
        value={format.count(crawl.dead)}
        note="in the inbox"
        href={href("inbox", { task: crawl.task })}
        {...(crawl.dead > 0 && { tone: "grave" })}
      />
      <Stat name="Skipped" value={format.count(crawl.skipped)} note="by robots.txt, a handler or a person" />
    </div>
  );
}

const PROCESSES: readonly Column<CrawlProcess>[] = [
  {
    title: "Process",
    cell: (one) => (
      <span title={one.worker}>
        <span class="strong">{one.host}</span> <span class="muted num">{one.pid}</span>
      </span>
    ),
  },
  { title: "Rate", isNumber: true, cell: (one) => format.rate(one.rate_per_s) },
  { title: "In flight", isNumber: true, cell: (one) => format.count(one.in_flight) },
  { title: "Done", isNumber: true, cell: (one) => format.shortCount(one.fetched) },
  { title: "Failed", isNumber: true, cell: (one) => format.shortCount(one.failed) },
  { title: "Skipped", isNumber: true, isExtra: true, cell: (one) => format.shortCount(one.skipped) },
  { title: "New URLs", isNumber: true, isExtra: true, cell: (one) => format.shortCount(one.found) },
  { title: "Held domains", isNumber: true, cell: (one) => format.count(one.held) },
  { title: "Seen", cell: (one) => <Time at={one.seen_at} /> },
];

const DOMAINS: readonly Column<Domain>[] = [
  { title: "Domain", cell: (one) => <span class="strong user-made domain">{one.domain}</span> },
  { title: "In flight", isNumber: true, cell: (one) => format.count(one.in_flight) },
  { title: "Good", isNumber: true, cell: (one) => format.shortCount(one.fetched) },
  { title: "Failed", isNumber: true, isExtra: true, cell: (one) => format.shortCount(one.failed) },
  { title: "Refusals", isNumber: true, cell: (one) => format.shortCount(one.refused) },
  {
    title: "Latency",
    isNumber: true,
    cell: (one) => (one.latency_s === null ? <span class="muted">–</span> : format.duration(one.latency_s)),
  },
  { title: "Delay", isNumber: true, cell: (one) => format.duration(one.interval_s) },
  {
    title: "Breaker",
    cell: (one) => (
      <a href={href("breakers", { q: one.breaker })}>
        <Badge of={one.breaker_state} />
      </a>
    ),
  },
  { title: "State", isWide: true, cell: (one) => <Hold of={one} /> },
];

function Hold({ of }: { readonly of: Domain }) {
  const hold = holdOf(of, nowAt());
  switch (hold) {
    case "held":
      return (
        <div class="hold">
          <Badge of="held" tone="warn" />
          <span>
            for <Countdown to={of.held_until_at ?? 0} />
          </span>
          {of.why !== "" && <p class="user-made">{of.why}</p>}
        </div>
      );
    case "breaker":
      return <Badge of="parked" tone="bad" text="parked by its breaker" />;
    case "busy":
      return <Badge of="busy" tone="busy" />;
    case "idle":
      return <Badge of="idle" tone="neutral" />;
  }
}

function Domains({ crawl }: { readonly crawl: CrawlDetail }) {
  const text = asked("q");
  const shown = crawl.domains.filter((one) => isDomainMeant(one, text));
  if (crawl.domains.length === 0) return null;
  return (
    <Panel title={format.plural(crawl.domains.length, "domain")} aside={<span class="muted">those held, then the busiest</span>}>
      {(crawl.domains.length >= MANY || text !== "") && (
        <div class="filters domain-search" role="search">
          <Search
            label="Find a domain"
            value={text}
            onSearch={(typed) => setQuery({ q: typed }, text !== "" && typed !== "")}
          />
        </div>
      )}
      {shown.length === 0 ? (
        <Empty title="No domain matches" icon="search">
          <a href={href(["crawls", crawl.name])}>Show all domains</a>
        </Empty>
      ) : (
        <Table
          label={`Domains of ${crawl.name}`}
          rows={shown}
          keyOf={(one) => `${one.worker} ${one.domain}`}
          columns={DOMAINS}
        />
      )}
    </Panel>
  );
}
