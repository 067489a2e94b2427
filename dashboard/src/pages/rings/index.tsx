/** Rings: #/rings has a card for each ring and process, those that need a look first; #/rings/NAME those of one name. */
import { useRef } from "preact/hooks";
import { useKeys } from "../../frame/keys";
import { asked, go, href, setQuery } from "../../frame/router";
import { Button, Choice, CodeBlock, Empty, Icon, Loaded, PageHead, Search, Skeleton, format } from "../../ui";
import { RingCard } from "./card";
import { byUrgency, isMeant, needsALook } from "./condition";
import { useRings } from "./watch";

export function RingsPage({ rest }: { readonly rest: readonly string[] }) {
  const [name] = rest;
  return name === undefined ? <ListPage /> : <RingPage key={name} name={name} />;
}

function ListPage() {
  const found = useRings();
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
    { keys: "j", does: "next ring; Enter opens it", run: () => step(1) },
    { keys: "k", does: "previous ring", run: () => step(-1) },
  ]);
  const troubled = all.filter(needsALook).length;
  return (
    <>
      <PageHead
        title="Rings"
        {...(all.length > 0 && {
          note: troubled > 0 ? `${troubled} of ${format.plural(all.length, "ring")} to look at` : "as of the last heartbeats",
        })}
      />
      {all.length > 1 && (
        <div class="filters" role="search">
          <Search
            label="Find a ring"
            value={text}
            onSearch={(typed) => setQuery({ q: typed }, text !== "" && typed !== "")}
          />
          <Choice
            label="Which rings"
            any="All rings"
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
            <NoRings />
          ) : shown.length === 0 ? (
            <Empty title="No ring matches" icon={text === "" ? "check" : "search"}>
              {text === "" ? "None needs a look. " : `None is named like “${text}”. `}
              <a href={href("rings")}>Show all rings</a>
            </Empty>
          ) : (
            <div class="stack" ref={list}>
              {shown.map((ring) => (
                <RingCard key={`${ring.worker} ${ring.name}`} ring={ring} isAlone={false} />
              ))}
            </div>
          )
        }
      </Loaded>
    </>
  );
}

function RingPage({ name }: { readonly name: string }) {
  const found = useRings();
  useKeys([{ keys: "u", does: "back to all rings", run: () => go(href("rings")) }]);
  return (
    <>
      <a class="crumb" href={href("rings")}>
        <Icon name="back" size={13} /> Rings
      </a>
      <Loaded of={found} skeleton={<Skeleton lines={3} isTall />}>
        {(all) => {
          const rings = byUrgency(all).filter((one) => one.name === name);
          return rings.length === 0 ? (
            <Empty title="There is no such ring" icon="search">
              No live process reports a ring named <span class="mono">{name}</span>: a ring is here while its process lives.
            </Empty>
          ) : (
            <div class="stack">
              {rings.map((ring, at) => (
                <RingCard key={ring.worker} ring={ring} isAlone={at === 0} />
              ))}
            </div>
          );
        }}
      </Loaded>
    </>
  );
}

const FIRST = `from holdfast import App
from holdfast.ring import Disruptor

app = App()


def write(prices):
    print("writing", len(prices), "prices")


with Disruptor(name="prices", size=65_536, app=app) as ring:
    ring.register_consumer(write)
    ring.produce([{"sku": 7, "cents": 1999}])
`;

function NoRings() {
  return (
    <Empty title="No process reports a ring" icon="rings">
      <p>
        A ring hands what one process produces to consumers in the same process, in order and in batches: for pipelines that
        must not leave it. One that was given the app shows here while its process lives, and what its consumers give up
        waits in the inbox.
      </p>
      <div class="first-ring">
        <CodeBlock label="A ring" text={FIRST} />
      </div>
    </Empty>
  );
}
