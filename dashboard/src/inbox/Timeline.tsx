/** The attempts of a job on a time line, and the same as a table. */
import type { Attempt } from "../api/types";
import { Badge } from "../ui/Badge";
import { clockTime, duration, shortId, words } from "../ui/format";
import { Time } from "../ui/Time";
import { type Bar, type Gap, lineOf } from "./line";
import { outcomeInWords, outcomeTone } from "./words";

export function Timeline(props: {
  readonly attempts: readonly Attempt[];
  readonly createdAt: number;
  readonly chosen: number;
  readonly onChoose: (number: number) => void;
}) {
  const { attempts, createdAt, chosen, onChoose } = props;
  if (attempts.length === 0) return <p class="muted">No attempt has ended yet.</p>;
  return (
    <>
      <Line {...props} />
      <div class="table-box attempts">
        <table aria-label="Attempts">
          <thead>
            <tr>
              <th scope="col">Attempt</th>
              <th scope="col">Started</th>
              <th scope="col" class="number">
                Waited
              </th>
              <th scope="col" class="number">
                Ran for
              </th>
              <th scope="col">Outcome</th>
              <th scope="col" class="wide extra">
                Error
              </th>
              <th scope="col">Breaker</th>
              <th scope="col">Worker</th>
            </tr>
          </thead>
          <tbody>
            {attempts.map((attempt, at) => (
              <tr key={attempt.number} class={attempt.number === chosen ? "cursor" : ""}>
                <td data-label="Attempt">
                  <button
                    type="button"
                    class="attempt-number"
                    aria-pressed={attempt.number === chosen}
                    aria-label={`Show attempt ${attempt.number}`}
                    onClick={() => onChoose(attempt.number)}
                  >
                    {attempt.number}
                  </button>
                </td>
                <td data-label="Started">
                  <Time at={attempt.started_at} />
                </td>
                <td data-label="Waited" class="number">
                  {duration(Math.max(0, attempt.started_at - (attempts[at - 1]?.ended_at ?? createdAt)))}
                </td>
                <td data-label="Ran for" class="number">
                  {duration(Math.max(0, attempt.duration_s))}
                </td>
                <td data-label="Outcome">
                  <Badge of={attempt.outcome} tone={outcomeTone(attempt)} text={outcomeInWords(attempt)} />
                </td>
                <td data-label="Error" class="wide extra" title={attempt.message}>
                  {attempt.error_name ? `${attempt.error_name}: ${attempt.message}` : "–"}
                </td>
                <td data-label="Breaker">{attempt.breaker ? <Badge of={attempt.breaker} /> : "–"}</td>
                <td data-label="Worker" class="mono" title={attempt.worker}>
                  {attempt.worker ? shortId(attempt.worker) : "–"}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

const ROW = 22;
const HEAD = 18;
const WIDE = 1000;
const MOST_ROWS = 12;

/** Each attempt has a row of its own; beyond a dozen they share rows of half the height. */
function Line({ attempts, createdAt, chosen, onChoose }: Parameters<typeof Timeline>[0]) {
  const line = lineOf(attempts, createdAt);
  const row = attempts.length > MOST_ROWS ? Math.max(4, (ROW * MOST_ROWS) / attempts.length) : ROW;
  const height = HEAD + row * attempts.length + 4;
  const last = attempts.at(-1);
  return (
    <div class="timeline" aria-hidden="true">
      <div class="timeline-ends">
        <span title="enqueued">{clockTime(createdAt)}</span>
        {line.gaps.some((gap) => gap.isCut) && <span class="muted">┄ long waits are drawn shorter</span>}
        <span>{last ? clockTime(last.ended_at) : ""}</span>
      </div>
      <svg viewBox={`0 0 ${WIDE} ${height - HEAD}`} height={height - HEAD} preserveAspectRatio="none">
        {attempts.map((attempt, at) => {
          const bar = line.bars[at];
          const gap = line.gaps[at];
          if (bar === undefined || gap === undefined) return null;
          const middle = at * row + row / 2;
          const before = at === 0 ? middle : middle - row;
          return (
            <g
              key={attempt.number}
              class={`attempt-bar ${outcomeTone(attempt)} ${attempt.number === chosen ? "chosen" : ""}`}
              onClick={() => onChoose(attempt.number)}
            >
              <rect class="row" x={0} y={at * row} width={WIDE} height={row} />
              <path
                class={`gap ${gap.isCut ? "cut" : ""}`}
                d={`M${gap.left * WIDE} ${before}V${middle}H${(gap.left + gap.width) * WIDE}`}
              />
              <rect
                class="bar"
                x={bar.left * WIDE}
                y={at * row + row * 0.18}
                width={Math.max(bar.width * WIDE, 3)}
                height={row * 0.64}
                rx={2}
              />
              <title>{titleOf(attempt, gap)}</title>
            </g>
          );
        })}
      </svg>
      {attempts.length <= MOST_ROWS && (
        <div class="timeline-labels">
          {attempts.map((attempt, at) => {
            const bar = line.bars[at];
            return bar && <Label key={attempt.number} attempt={attempt} bar={bar} />;
          })}
        </div>
      )}
    </div>
  );
}

/** Stands behind its bar; before it where there is no room, and at the edge where there is none on either side. */
function Label({ attempt, bar }: { readonly attempt: Attempt; readonly bar: Bar }) {
  const end = bar.left + bar.width;
  const place = end < 0.8 ? { left: `${end * 100}%` } : { right: bar.left > 0.2 ? `${(1 - bar.left) * 100}%` : "0" };
  return (
    <div class="timeline-label">
      <span style={place}>
        {attempt.number} · {duration(Math.max(0, attempt.duration_s))}
      </span>
    </div>
  );
}

const CAUSES: Readonly<Record<Gap["cause"], string>> = {
  queued: "in the queue",
  planned: "before the next attempt",
  "sent back": "given up, until it was sent back",
};

function titleOf(attempt: Attempt, gap: Gap): string {
  const lines = [
    `Attempt ${attempt.number}: ${outcomeInWords(attempt)} after ${duration(Math.max(0, attempt.duration_s))}`,
    `waited ${duration(gap.duration_s)} ${CAUSES[gap.cause]}`,
    attempt.breaker && `breaker ${words(attempt.breaker)}`,
    attempt.worker && `worker ${attempt.worker}`,
  ];
  return lines.filter(Boolean).join("\n");
}
