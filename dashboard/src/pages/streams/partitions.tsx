/** The partitions of a stream: those that need a look, or all of them. */
import { useRef } from "preact/hooks";
import type { Partition, Stream } from "../../api/types";
import { asked, href, setQuery } from "../../frame/router";
import { useStillness } from "../../frame/stillness";
import { Badge, Choice, Icon, Table, type Column, format } from "../../ui";
import { isStuck } from "./condition";
import { folded, held, keyOf, type Sort, sorted } from "./order";

/** On the page of all streams: few rows, and how many more there are. */
export function SomePartitions({ stream }: { readonly stream: Stream }) {
  const { shown, others, othersLag, othersStuck } = folded(stream.partitions);
  if (stream.partitions.length === 0) return <NoPartitions stream={stream} />;
  const rest = [
    othersStuck > 0 && `${format.count(othersStuck)} of these stuck`,
    othersLag > 0 ? `lag ${format.count(othersLag)} in all` : othersStuck === 0 && "all up to date",
  ].filter(Boolean);
  return (
    <div class="partitions">
      {shown.length > 0 && <PartitionTable stream={stream} rows={shown} isKeyless />}
      {others > 0 && (
        <a class="others" href={href(["streams", stream.name])}>
          <Icon name="chevron" size={13} />
          {format.count(others)} {shown.length > 0 ? "more " : ""}
          {others === 1 ? "partition" : "partitions"}
          {rest.length > 0 && `: ${rest.join(", ")}`}
        </a>
      )}
    </div>
  );
}

const SORTS: readonly (readonly [Sort, string])[] = [
  ["stuck", "Longest stuck first"],
  ["number", "By number"],
];

/** On a stream's own page: all of them, in an order that the address bar remembers. */
export function AllPartitions({ stream }: { readonly stream: Stream }) {
  const sort = SORTS.find(([name]) => name === asked("sort"))?.[0] ?? "lag";
  if (stream.partitions.length === 0) return <NoPartitions stream={stream} />;
  return (
    <div class="partitions">
      <div class="filters">
        <h2>{format.plural(stream.partitions.length, "partition")}</h2>
        <Choice
          label="Order"
          any="Largest lag first"
          value={sort === "lag" ? "" : sort}
          options={SORTS}
          onChange={(value) => setQuery({ sort: value })}
        />
      </div>
      <Steady key={sort} stream={stream} sort={sort} />
    </div>
  );
}

/** Rows change their numbers, but not their places, while somebody reads them. */
function Steady({ stream, sort }: { readonly stream: Stream; readonly sort: Sort }) {
  const [isHeld, hold] = useStillness();
  const before = useRef<readonly string[]>([]);
  const rows = isHeld ? held(before.current, stream.partitions) : sorted(stream.partitions, sort);
  before.current = rows.map(keyOf);
  return (
    <div {...hold}>
      <PartitionTable stream={stream} rows={rows} />
    </div>
  );
}

function NoPartitions({ stream }: { readonly stream: Stream }) {
  if (stream.workers === 0 || stream.away !== "") return null;
  return <p class="muted">No partition is assigned to a worker yet: groups take a few seconds to share them out.</p>;
}

function PartitionTable(props: {
  readonly stream: Stream;
  readonly rows: readonly Partition[];
  readonly isKeyless?: boolean;
}) {
  const { stream, rows } = props;
  const columns: Column<Partition>[] = [
    {
      title: "Partition",
      cell: (one) => (
        <span title={`${one.topic} ${one.partition}, read by ${one.worker}`}>
          <b class="num">{one.partition}</b>
          {one.topic !== stream.topic && <span class="muted"> {ownPart(one.topic, stream.topic)}</span>}
        </span>
      ),
    },
    {
      title: "Lag",
      isNumber: true,
      cell: (one) =>
        one.lag === null ? <span class="muted">not known</span> : <span class="strong">{format.count(one.lag)}</span>,
    },
    {
      title: "Position",
      isNumber: true,
      cell: (one) => one.position ?? <span class="muted">–</span>,
    },
    { title: "In flight", isNumber: true, cell: (one) => format.count(one.in_flight) },
    { title: "Buffered", isNumber: true, isExtra: true, cell: (one) => format.count(one.buffered) },
    {
      title: "What it waits for",
      isWide: true,
      isVoid: (one) => one.stuck_id === "" && one.paused === "",
      cell: (one) => <Waits of={one} />,
    },
  ];
  return (
    <Table
      label={`Partitions of ${stream.name}`}
      rows={rows}
      keyOf={keyOf}
      columns={columns}
      {...(props.isKeyless ? { isKeyless: true } : {})}
    />
  );
}

/** The first unfinished message, which all behind it waits for, and why no more is received. */
function Waits({ of }: { readonly of: Partition }) {
  if (of.stuck_id === "" && of.paused === "") return <span class="muted">–</span>;
  return (
    <div class="waits">
      {of.stuck_id !== "" && (
        <p>
          {isStuck(of) ? (
            <Badge of="stuck" tone="bad" text={`stuck for ${format.duration(of.stuck_s)}`} />
          ) : (
            <span class="muted num">{format.duration(of.stuck_s)}</span>
          )}{" "}
          on <span class="mono">{of.stuck_id}</span>
          {of.stuck_key !== "" && (
            <>
              , key <b class="mono">{of.stuck_key}</b>
            </>
          )}
        </p>
      )}
      {of.paused !== "" && (
        <p>
          <Badge of="paused" /> <span class="paused-why">{of.paused}</span>
        </p>
      )}
    </div>
  );
}

/** A retry topic by what is its own: "orders.billing.retry.1" of orders is ".billing.retry.1". */
function ownPart(topic: string, of: string): string {
  return topic.startsWith(`${of}.`) ? topic.slice(of.length) : topic;
}
