/** One ring in one process: how full it is, how quick, and what each of its consumers is at. */
import type { Consumer, Ring } from "../../api/types";
import { href } from "../../frame/router";
import { Badge, Stat, Table, type Column, format } from "../../ui";
import { batchTime, conditionOf, fillTone, saidOf, workOf } from "./condition";

export function RingCard({ ring, isAlone }: { readonly ring: Ring; readonly isAlone: boolean }) {
  const [word, tone] = saidOf(conditionOf(ring));
  const where = `${ring.host} ${ring.pid}`;
  const Title = isAlone ? "h1" : "h2";
  return (
    <article class={`ring tone-${tone}`} aria-label={`Ring ${ring.name} in ${where}`}>
      <header>
        <Title title={ring.name}>{isAlone ? ring.name : <a href={href(["rings", ring.name])}>{ring.name}</a>}</Title>
        <Badge of={word} tone={tone} />
        <p class="ring-where">
          in <b>{where}</b> <span class="mono">{ring.worker}</span>
        </p>
      </header>
      <Fill ring={ring} />
      <Numbers ring={ring} />
      {ring.consumers.length === 0 ? (
        <p class="muted">It has no consumers yet.</p>
      ) : (
        <Consumers ring={ring} />
      )}
    </article>
  );
}

/** A bar of what is in the ring; more than all of it where a list is longer than the ring. */
function Fill({ ring }: { readonly ring: Ring }) {
  const share = Math.min(1, Math.max(0, ring.utilisation));
  const text = `${format.count(ring.used)} of ${format.count(ring.size)} elements, ${format.percent(ring.utilisation)}`;
  return (
    <div class={`fill tone-${fillTone(ring.utilisation)}`}>
      <div
        role="meter"
        aria-label={`How full ${ring.name} is`}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
        aria-valuetext={text}
      >
        <i style={{ width: `${share * 100}%` }} />
      </div>
      <span class="num">{text}</span>
    </div>
  );
}

function Numbers({ ring }: { readonly ring: Ring }) {
  return (
    <div class="stats">
      <Stat name="Produced" value={format.rate(ring.rate_per_s)} note={`${format.shortCount(ring.produced)} in all`} />
      <Stat
        name="Blocked producers"
        value={format.count(ring.blocked)}
        note="wait for room"
        {...(ring.blocked > 0 ? { tone: "warn" } : {})}
      />
      <Stat
        name="Memory"
        value={ring.memory_bytes > 0 ? format.bytes(ring.memory_bytes) : "–"}
        note="of the whole process"
      />
    </div>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  { title: "Consumer", cell: ({ one }) => <b class="consumer">{one.name}</b> },
  {
    title: "After",
    isExtra: true,
    cell: ({ one }) => (one.after.length > 0 ? <span class="consumer">{one.after.join(", ")}</span> : <Nothing />),
  },
  { title: "Lag", isNumber: true, cell: ({ one }) => <span class="strong">{format.count(one.lag)}</span> },
  { title: "Rate", isNumber: true, cell: ({ one }) => format.rate(one.rate_per_s) },
  {
    title: "Batch",
    isNumber: true,
    cell: ({ one }) => (one.mean_s === null ? <Nothing /> : batchTime(one.mean_s)),
  },
  {
    title: "Slowest",
    isNumber: true,
    isExtra: true,
    cell: ({ one }) => (one.batches === 0 ? <Nothing /> : batchTime(one.slowest_s)),
  },
  { title: "Errors", isNumber: true, cell: ({ one }) => format.shortCount(one.errors) },
  { title: "Retries", isNumber: true, isExtra: true, cell: ({ one }) => format.shortCount(one.retries) },
  { title: "Given up", isNumber: true, cell: ({ one }) => format.shortCount(one.given_up) },
  {
    title: "Dead letters",
    isNumber: true,
    cell: ({ ring, one }) => (
      <a
        href={href("inbox", { task: `${ring}/${one.name}` })}
        title={`${format.count(one.in_inbox)} in the inbox, ${format.count(one.dead_letters)} written by this process`}
      >
        {format.shortCount(one.in_inbox)}
      </a>
    ),
  },
  { title: "State", isWide: true, cell: ({ one }) => <Work of={one} /> },
];

interface Row {
  readonly ring: string;
  readonly one: Consumer;
}

function Consumers({ ring }: { readonly ring: Ring }) {
  return (
    <Table
      label={`Consumers of ${ring.name}`}
      rows={ring.consumers.map((one) => ({ ring: ring.name, one }))}
      keyOf={({ one }) => one.name}
      columns={COLUMNS}
      isKeyless
    />
  );
}

function Work({ of }: { readonly of: Consumer }) {
  const [text, tone] = workOf(of);
  return (
    <div class="work">
      <Badge of={of.state} tone={tone} text={text} />
      {of.doing !== "" && <p class="said">{of.doing}</p>}
      {of.checkpoint_error !== "" && (
        <p class="said tone-bad">
          <strong>Checkpoint not saved:</strong> {of.checkpoint_error}
        </p>
      )}
      {of.offset !== null && of.checkpoint_error === "" && (
        <p class="muted">
          saved up to offset <span class="mono">{of.offset}</span>
        </p>
      )}
    </div>
  );
}

function Nothing() {
  return <span class="muted">–</span>;
}
