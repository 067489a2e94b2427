/** Streams: #/streams has a card each, those that need a look first; #/streams/NAME one with all of its partitions. */
import { useRef } from "preact/hooks";
import { useKeys } from "../../frame/keys";
import { asked, go, href, setQuery } from "../../frame/router";
import { Button, Choice, CodeBlock, Empty, Icon, Loaded, PageHead, Search, Skeleton, format } from "../../ui";
import { StreamCard } from "./card";
import { byUrgency, isMeant, needsALook } from "./condition";
import { useStreams } from "./watch";

export function StreamsPage({ rest }: { readonly rest: readonly string[] }) {
  const [name] = rest;
  return name === undefined ? <ListPage /> : <StreamPage key={name} name={name} />;
}

function ListPage() {
  const found = useStreams();
  const text = asked("q");
  const isOnlyTroubled = asked("only") === "troubled";
  const all = found.data ?? [];
  const shown = byUrgency(all).filter((one) => isMeant(one, text) && (!isOnlyTroubled || needsALook(one)));
  const list = useRef<HTMLDivElement>(null);
  const step = (by: number) => {
    const cards = [...(list.current?.querySelectorAll<HTMLElement>("article") ?? [])];
    const at = cards.findIndex((card) => card.contains(document.activeElement));
    const next = cards[Math.max(0, Math.min(cards.length - 1, at + by))];
    next?.querySelector<HTMLElement>("h2 a")?.focus();
    next?.scrollIntoView({ block: "nearest" });
  };
  useKeys([
    { keys: "j", does: "next stream; Enter opens it", run: () => step(1) },
    { keys: "k", does: "previous stream", run: () => step(-1) },
  ]);
  const troubled = all.filter(needsALook).length;
  return (
    <>
      <PageHead
        title="Streams"
        {...(all.length > 0 && {
          note: troubled > 0 ? `${troubled} of ${format.plural(all.length, "stream")} to look at` : "as of the last heartbeats",
        })}
      />
      {all.length > 1 && (
        <div class="filters" role="search">
          <Search
            label="Find a stream"
            value={text}
            onSearch={(typed) => setQuery({ q: typed }, text !== "" && typed !== "")}
          />
          <Choice
            label="Which streams"
            any="All streams"
            value={isOnlyTroubled ? "troubled" : ""}
            options={[["troubled", "Those to look at"]]}
            onChange={(only) => setQuery({ only })}
          />
          {(text !== "" || isOnlyTroubled) && (
            <Button kind="quiet" isSmall onClick={() => setQuery({ q: null, only: null })}>
              Clear
            </Button>
          )}
        </div>
      )}
      <Loaded of={found} skeleton={<Skeleton lines={3} isTall />}>
        {() =>
          all.length === 0 ? (
            <NoStreams />
          ) : shown.length === 0 ? (
            <Empty title="No stream matches" icon={text === "" ? "check" : "search"}>
              {text === "" ? "None needs a look. " : `None is named like “${text}”. `}
              <a href={href("streams")}>Show all streams</a>
            </Empty>
          ) : (
            <div class="stack" ref={list}>
              {shown.map((stream) => (
                <StreamCard key={stream.name} stream={stream} isAlone={false} />
              ))}
            </div>
          )
        }
      </Loaded>
    </>
  );
}

function StreamPage({ name }: { readonly name: string }) {
  const found = useStreams();
  useKeys([{ keys: "u", does: "back to all streams", run: () => go(href("streams")) }]);
  return (
    <>
      <a class="crumb" href={href("streams")}>
        <Icon name="back" size={13} /> Streams
      </a>
      <Loaded of={found} skeleton={<Skeleton lines={3} isTall />}>
        {(all) => {
          const stream = all.find((one) => one.name === name);
          return stream === undefined ? (
            <Empty title="There is no such stream" icon="search">
              The app has none named <span class="mono">{name}</span>, and no worker reports one.
            </Empty>
          ) : (
            <StreamCard stream={stream} isAlone />
          );
        }}
      </Loaded>
    </>
  );
}

const FIRST = `from holdfast import App

app = App()


@app.stream("kafka://localhost:9092/orders", group="billing")
async def bill(order: dict) -> None:
    print("billing order", order["id"])
`;

function NoStreams() {
  return (
    <Empty title="This app reads no streams" icon="streams">
      <p>
        A stream hands the messages of a Kafka topic or a Redis stream to a function: in order for each message key, tried
        again as jobs are, and what cannot be saved waits in the inbox. Write one, start{" "}
        <code>holdfast worker tasks:app</code>, and it shows here.
      </p>
      <div class="first-stream">
        <CodeBlock label="A stream in tasks.py" text={FIRST} />
      </div>
    </Empty>
  );
}
