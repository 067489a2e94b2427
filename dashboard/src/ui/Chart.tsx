/** A chart over time in the page's colours; its legend shows the values under the pointer. */
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { shown } from "../frame/theme";
import { TIME_STEPS, clockTime, scaleDuration } from "./format";
import { stacked } from "./stack";

export interface Series {
  readonly name: string;
  readonly values: readonly (number | null)[];
  /** A colour of style/tokens.css: "chart-good" is --chart-good. */
  readonly color: string;
}

export interface ChartProps {
  readonly label: string;
  /** Seconds since 1970, rising. */
  readonly times: readonly number[];
  readonly series: readonly Series[];
  readonly format: (value: number) => string;
  /** The values are seconds, and the scale goes in steps of time. */
  readonly isTime?: boolean;
  /** Bars on top of each other instead of lines. */
  readonly isStacked?: boolean;
  /** The scale of time is at least so many seconds long, and ends with the newest value. */
  readonly shortest_s?: number;
  readonly height?: number;
}

/** "12:05", and with seconds where the steps are shorter than a minute. */
function timeOf(at: number, step_s: number): string {
  return clockTime(at).slice(0, step_s < 60 ? 8 : 5);
}

function colorOf(probe: HTMLElement, name: string): string {
  probe.style.color = `var(--${name})`;
  const color = getComputedStyle(probe).color;
  probe.style.color = "";
  return color;
}

/** How far the scale goes where all values are 0. */
const NOTHING = 10;

type Data = [number[], ...(number | null)[][]];

// Stacked series are drawn from the highest sum down, each over the one before it.
function dataOf({ times, series, isStacked }: ChartProps): Data {
  if (!isStacked) return [[...times], ...series.map((each) => [...each.values])];
  return [[...times], ...stacked(series.map((each) => each.values)).reverse()];
}

/** Points between two gaps: no line goes through them, so they are drawn as dots. */
function lonely(plot: uPlot, at: number): number[] {
  const values = plot.data[at] ?? [];
  const isGap = (i: number) => values[i] === null || values[i] === undefined;
  return Array.from(values, (_, i) => i).filter((i) => !isGap(i) && isGap(i - 1) && isGap(i + 1));
}

/** From the first time to the last, or for so long: uPlot itself would make a day of a single value. */
function spanOf(shortest_s: number): uPlot.Range.Function {
  return (self) => {
    const last = self.data[0].at(-1) ?? 0;
    return [Math.min(self.data[0][0] ?? 0, last - shortest_s), last];
  };
}

function optionsOf(
  plot: typeof uPlot,
  box: HTMLElement,
  props: ChartProps,
  onPoint: (at: number | null) => void,
): uPlot.Options {
  const axis = {
    stroke: colorOf(box, "text-3"),
    font: "11px system-ui, sans-serif",
    grid: { stroke: colorOf(box, "line"), width: 1 },
    ticks: { show: false },
  };
  const drawn = props.isStacked ? [...props.series].reverse() : props.series;
  const bars = plot.paths.bars?.({ size: [0.72, 14], radius: 0 });
  return {
    width: box.clientWidth,
    height: props.height ?? 180,
    legend: { show: false },
    padding: [8, 18, 0, 0],
    cursor: { y: false, drag: { x: false, y: false }, points: { show: !props.isStacked } },
    scales: {
      ...(props.shortest_s ? { x: { range: spanOf(props.shortest_s) } } : {}),
      y: { range: (_, __, most) => [0, (most > 0 ? most : NOTHING) * 1.08] },
    },
    axes: [
      {
        ...axis,
        space: 64,
        size: 28,
        gap: 9,
        grid: { show: false },
        values: (_, ats, __, ___, step_s) => ats.map((at) => timeOf(at, step_s)),
      },
      {
        ...axis,
        space: 36,
        size: 58,
        ...(props.isTime ? { incrs: [...TIME_STEPS] } : {}),
        values: (_, values) => values.map((value) => (props.isTime ? scaleDuration(value) : props.format(value))),
      },
    ],
    series: [
      {},
      ...drawn.map((each): uPlot.Series => {
        const color = colorOf(box, each.color);
        return props.isStacked && bars
          ? { label: each.name, fill: color, stroke: color, width: 0, paths: bars, points: { show: false } }
          : { label: each.name, stroke: color, width: 1.75, points: { show: true, size: 5, fill: color, filter: lonely }, spanGaps: false };
      }),
    ],
    hooks: { setCursor: [(self) => onPoint(self.cursor.idx ?? null)] },
  };
}

/** Tells by words what the chart shows, for those who do not see it. */
function summary(props: ChartProps): string {
  const last = props.series.map((each) => {
    const value = each.values.findLast((one) => one !== null);
    return `${each.name} ${value === undefined || value === null ? "unknown" : props.format(value)}`;
  });
  return `${props.label}. Latest: ${last.join(", ")}.`;
}

export function Chart(props: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const [point, setPoint] = useState<number | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const look = shown.value;
  const shape = props.series.map((each) => `${each.name} ${each.color}`).join("|");

  useEffect(() => {
    const own = box.current;
    if (own === null) return;
    let isGone = false;
    const sizes = new ResizeObserver(() => {
      if (own.clientWidth > 0) chart.current?.setSize({ width: own.clientWidth, height: latest.current.height ?? 180 });
    });
    void import("./plot").then(({ default: plot }) => {
      if (isGone) return;
      chart.current = new plot(optionsOf(plot, own, latest.current, setPoint), dataOf(latest.current), own);
      sizes.observe(own);
    });
    return () => {
      isGone = true;
      sizes.disconnect();
      chart.current?.destroy();
      chart.current = null;
    };
  }, [look, shape]);
  useEffect(() => {
    chart.current?.setData(dataOf(props));
  }, [props.times, props.series]);

  const at = point ?? props.times.length - 1;
  const time = props.times[at];
  return (
    <figure class="chart">
      <figcaption>
        {props.series.map((each) => {
          const value = each.values[at];
          return (
            <span key={each.name} class="legend">
              <i class={`swatch color-${each.color}`} aria-hidden="true" />
              {each.name} <b class="num">{value === null || value === undefined ? "–" : props.format(value)}</b>
            </span>
          );
        })}
        <span class="muted num">{time === undefined ? "" : timeOf(time, props.shortest_s === undefined ? 60 : 0)}</span>
      </figcaption>
      <div ref={box} class="chart-box" role="img" aria-label={summary(props)} style={{ minHeight: `${props.height ?? 180}px` }} />
    </figure>
  );
}
