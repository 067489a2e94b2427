/** Throughput and latency over the last hour. */
import { useMemo } from "preact/hooks";
import type { Minute } from "../../api/types";
import { Chart, Panel, type Series, format } from "../../ui";

function seriesOf(minutes: readonly Minute[], parts: readonly (readonly [keyof Minute, string, string])[]): Series[] {
  return parts.map(([field, name, color]) => ({ name, color, values: minutes.map((minute) => minute[field]) }));
}

const OUTCOMES = [
  ["completed", "completed", "chart-good"],
  ["retried", "retried", "chart-warn"],
  ["failed", "failed", "chart-bad"],
] as const;
const RUN = [
  ["run_p50_s", "median", "chart-busy"],
  ["run_p95_s", "95th percentile", "chart-odd"],
] as const;
const WAIT = [
  ["wait_p50_s", "median", "chart-busy"],
  ["wait_p95_s", "95th percentile", "chart-odd"],
] as const;

export function Charts({ minutes }: { readonly minutes: readonly Minute[] }) {
  const times = useMemo(() => minutes.map((minute) => minute.at), [minutes]);
  const outcomes = useMemo(() => seriesOf(minutes, OUTCOMES), [minutes]);
  const run = useMemo(() => seriesOf(minutes, RUN), [minutes]);
  const wait = useMemo(() => seriesOf(minutes, WAIT), [minutes]);
  return (
    <div class="charts">
      <Panel title="Attempts a minute" class="broad">
        <Chart label="Attempts that ended, a minute, by outcome" times={times} series={outcomes} format={format.shortCount} isStacked height={190} />
      </Panel>
      <Panel title="Run time">
        <Chart label="How long attempts ran" times={times} series={run} format={format.duration} isTime height={150} />
      </Panel>
      <Panel title="Time in the queue">
        <Chart label="How long jobs waited once due" times={times} series={wait} format={format.duration} isTime height={150} />
      </Panel>
    </div>
  );
}
