/** The overview: is all well, and if not, where to look. */
import { api } from "../../api/client";
import { FAILURE_TYPES, JOB_STATES, type Overview } from "../../api/types";
import { overview as live } from "../../frame/live";
import { useResource } from "../../frame/resource";
import { href } from "../../frame/router";
import { Badge, Empty, Facts, Icon, Loaded, PageHead, Panel, Skeleton, Stat, format, nowAt, toneOf } from "../../ui";
import { attentionOf } from "./attention";
import { Charts } from "./charts";

const MOST_LINES = 6;

function Attention({ of }: { readonly of: Overview }) {
  const all = attentionOf(of);
  const list = all.slice(0, MOST_LINES);
  if (list.length === 0) return null;
  return (
    <ul class="attention" aria-label="What needs attention">
      {list.map(([tone, text, target]) => (
        <li key={text} class={`tone-${tone}`}>
          <Icon name="warning" />
          {target ? <a href={target}>{text}</a> : <span>{text}</span>}
        </li>
      ))}
      {all.length > MOST_LINES && <li class="muted">and {all.length - MOST_LINES} more</li>}
    </ul>
  );
}

function Numbers({ of }: { readonly of: Overview }) {
  return (
    <div class="stats">
      <Stat
        name="Health"
        tone={toneOf(of.health)}
        value={of.score === null ? "–" : `${Math.round(of.score * 100)}`}
        note={of.score === null ? "not known yet" : <span title={of.reasons.join("\n")}>{`of 100, ${of.health}`}</span>}
      />
      <Stat name="Throughput" value={format.rate(of.per_second)} note="attempts that ended" />
      <Stat
        name="Success"
        value={of.success_rate === null ? "–" : format.percent(of.success_rate)}
        note="of the last hour's attempts"
      />
      <Stat name="Workers" value={format.count(of.workers)} note="alive" href={href("workers")} {...(of.workers === 0 ? { tone: "bad" } : {})} />
      <Stat
        name="Dead letters"
        value={format.shortCount(of.dead_letters)}
        note="in the inbox"
        href={href("inbox")}
        {...(of.dead_letters > 0 ? { tone: "grave" } : {})}
      />
    </div>
  );
}

function States({ of }: { readonly of: Overview }) {
  return (
    <div class="stats states" role="group" aria-label="Jobs by state">
      {JOB_STATES.map((state) => (
        <Stat
          key={state}
          name={format.heading(state)}
          value={format.shortCount(of.states[state] ?? 0)}
          href={state === "dead_letter" ? href("inbox") : href("jobs", { state })}
        />
      ))}
    </div>
  );
}

function Failures({ of }: { readonly of: Overview }) {
  const rows = FAILURE_TYPES.map((type) => [type, of.failures_by_type[type] ?? 0] as const)
    .filter(([, many]) => many > 0)
    .sort((one, two) => two[1] - one[1]);
  const most = Math.max(1, ...rows.map(([, many]) => many));
  return (
    <Panel title="Failures by type">
      {rows.length === 0 ? (
        <Empty title="No failures" />
      ) : (
        <ul class="bars">
          {rows.map(([type, many]) => (
            <li key={type} class={`tone-${toneOf(type)}`}>
              <a href={href("inbox", { type })}>{format.words(type)}</a>
              <span class="meter" aria-hidden="true">
                <i style={{ width: `${(many / most) * 100}%` }} />
              </span>
              <b class="num">{format.count(many)}</b>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Queues({ of }: { readonly of: Overview }) {
  return (
    <Panel title="Queues" aside={<a href={href("queues")}>All queues</a>}>
      {of.queues.length === 0 ? (
        <Empty title="No queues yet" icon="queues" />
      ) : (
        <ul class="lines">
          {[...of.queues]
            .sort((one, two) => (two.lag_s ?? -1) - (one.lag_s ?? -1))
            .slice(0, 8)
            .map((queue) => (
              <li key={queue.name}>
                <a class="cut" href={href("jobs", { queue: queue.name })}>
                  {queue.name}
                </a>
                {queue.is_paused && <Badge of="paused" />}
                <span class="num">{format.count(queue.depth)} unfinished</span>
                <span class="num muted">{queue.lag_s === null ? "no lag" : `${format.duration(queue.lag_s)} lag`}</span>
              </li>
            ))}
        </ul>
      )}
    </Panel>
  );
}

function Store({ of }: { readonly of: Overview }) {
  return (
    <Panel title="Store" aside={<Badge of={of.is_durable ? "ok" : "timeout"} text={of.is_durable ? "durable" : "not durable"} />}>
      <Facts
        of={[
          ["Kind", of.store_name],
          ["Where", <span class="mono">{of.store}</span>],
          ["Durability", of.durability],
          ["Clock", `${format.fullTime(nowAt())}; every time on this page is by it`],
        ]}
      />
    </Panel>
  );
}

export function OverviewPage() {
  const asked = useResource("overview", (signal) => api.get("/overview", { signal }), { isLive: false });
  // The live one is newer as soon as it is there, and once it is, a refusal of the first look is old news.
  const now = live.value === null ? asked : { ...asked, data: live.value, problem: null };
  return (
    <>
      <PageHead title="Overview" />
      <Loaded of={now} skeleton={<Skeleton lines={5} isTall />}>
        {(of) => (
          <>
            <Attention of={of} />
            <Numbers of={of} />
            <Charts minutes={of.minutes} />
            <States of={of} />
            <div class="columns">
              <Failures of={of} />
              <Queues of={of} />
              <Store of={of} />
            </div>
          </>
        )}
      </Loaded>
    </>
  );
}
