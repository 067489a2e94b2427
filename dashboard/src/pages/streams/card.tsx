/** One stream: how it is, how far behind and how quick it has been, what went wrong last, and its partitions. */
import { useMemo } from "preact/hooks";
import type { Stream } from "../../api/types";
import { href } from "../../frame/router";
import { Badge, Chart, Icon, Stat, Time, format, nowAt } from "../../ui";
import { conditionOf, saidOf } from "./condition";
import { AllPartitions, SomePartitions } from "./partitions";
import { history } from "./watch";

/** The scale of the charts is at least so long. */
const SHORTEST_S = 60;
const FRESH_S = 600;

export function StreamCard({ stream, isAlone }: { readonly stream: Stream; readonly isAlone: boolean }) {
  const [word, tone] = saidOf(conditionOf(stream));
  const Title = isAlone ? "h1" : "h2";
  return (
    <article class={`stream tone-${tone}`} aria-label={`Stream ${stream.name}`}>
      <header>
        <Title title={stream.name}>{isAlone ? stream.name : <a href={href(["streams", stream.name])}>{stream.name}</a>}</Title>
        <Badge of={word} tone={tone} />
        <p class="stream-where">
          topic <b>{stream.topic}</b>, group <b>{stream.group}</b> <span class="mono">{stream.location}</span>
        </p>
      </header>
      <Notice stream={stream} />
      <Numbers stream={stream} />
      <Lines name={stream.name} />
      {stream.last_error !== "" && <LastError stream={stream} />}
      {isAlone ? <AllPartitions stream={stream} /> : <SomePartitions stream={stream} />}
    </article>
  );
}

/** One of long ago is history, and not alarming any more. */
function LastError({ stream }: { readonly stream: Stream }) {
  const isFresh = stream.last_error_at === null || nowAt() - stream.last_error_at < FRESH_S;
  return (
    <p class={`stream-error tone-${isFresh ? "bad" : "neutral"}`}>
      <strong>
        Last error <Time at={stream.last_error_at} none="" />
      </strong>
      <span class="mono" title={stream.last_error}>
        {stream.last_error}
      </span>
    </p>
  );
}

/** What keeps all of it from going on. */
function Notice({ stream }: { readonly stream: Stream }) {
  if (stream.away !== "") {
    return (
      <div class="banner tone-bad" role="alert">
        <Icon name="warning" />
        <span>
          <strong>Its server cannot be reached.</strong> Messages wait there, and workers go on by themselves when it is back.
          Numbers below are as they were before. <span class="muted">{stream.away}</span>
        </span>
      </div>
    );
  }
  if (stream.workers > 0) return null;
  return (
    <div class="banner tone-bad" role="alert">
      <Icon name="warning" />
      <span>
        <strong>No worker reads it.</strong> Messages wait in the topic until one is started, for example with{" "}
        <code>holdfast worker tasks:app</code>.
      </span>
    </div>
  );
}

function Numbers({ stream }: { readonly stream: Stream }) {
  return (
    <div class="stats">
      <Stat name="Lag" value={stream.lag === null ? "–" : format.shortCount(stream.lag)} note={lagInWords(stream)} />
      <Stat name="Rate" value={format.rate(stream.rate_per_s)} note="in the last full minute" />
      <Stat name="In flight" value={format.count(stream.in_flight)} note="begun, not finished" />
      <Stat
        name="Workers"
        value={format.count(stream.workers)}
        note={format.plural(stream.partitions.length, "partition")}
        href={href("workers")}
        {...(stream.workers === 0 ? { tone: "bad" } : {})}
      />
      <Stat
        name="Dead letters"
        value={format.shortCount(stream.dead_letters)}
        note="in the inbox"
        href={href("inbox", { task: stream.name })}
        {...(stream.dead_letters > 0 ? { tone: "grave" } : {})}
      />
    </div>
  );
}

/** How long the lag takes at the rate of now, which says more than its size. */
function lagInWords({ lag, rate_per_s: rate }: Stream): string {
  if (lag === null) return "not known yet";
  if (lag === 0) return "up to date";
  return rate > 0 ? `${format.duration(lag / rate)} of work` : "messages not finished";
}

function Lines({ name }: { readonly name: string }) {
  const samples = history.value.get(name);
  const times = useMemo(() => (samples ?? []).map((one) => one.at), [samples]);
  const lag = useMemo(
    () => [{ name: "lag", color: "chart-busy", values: (samples ?? []).map((one) => one.lag) }],
    [samples],
  );
  const rate = useMemo(
    () => [{ name: "rate", color: "chart-good", values: (samples ?? []).map((one) => one.rate) }],
    [samples],
  );
  const shape = { times, shortest_s: SHORTEST_S, height: 96 };
  return (
    <div class="charts">
      <Chart {...shape} label={`Messages of ${name} that are not finished`} series={lag} format={format.shortCount} />
      <Chart {...shape} label={`Messages of ${name} that were finished, a second`} series={rate} format={format.rate} />
    </div>
  );
}
