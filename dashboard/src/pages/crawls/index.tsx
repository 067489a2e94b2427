/** Crawls: #/crawls has a row for each, those that need a look first; #/crawls/NAME is one with its domains. */
import type { Crawl } from "../../api/types";
import { asked, href, setQuery } from "../../frame/router";
import { Badge, CodeBlock, type Column, Empty, Loaded, PageHead, Search, Table, format } from "../../ui";
import { byUrgency, conditionOf, isMeant, needsALook, saidOf } from "./condition";
import { CrawlPage } from "./one";
import { useCrawls } from "./watch";

export function CrawlsPage({ rest }: { readonly rest: readonly string[] }) {
  const [name] = rest;
  return name === undefined ? <ListPage /> : <CrawlPage key={name} name={name} />;
}

const COLUMNS: readonly Column<Crawl>[] = [
  {
    title: "Crawl",
    isWide: true,
    cell: (crawl) => (
      <a class="strong user-made" href={href(["crawls", crawl.name])}>
        {crawl.name}
      </a>
    ),
  },
  { title: "State", cell: (crawl) => <Standing of={crawl} /> },
  { title: "Done", isNumber: true, cell: (crawl) => <span class="strong">{format.shortCount(crawl.done)}</span> },
  { title: "Pending", isNumber: true, cell: (crawl) => format.shortCount(crawl.pending) },
  { title: "Waiting", isNumber: true, isExtra: true, cell: (crawl) => format.shortCount(crawl.waiting) },
  {
    title: "Dead letters",
    isNumber: true,
    cell: (crawl) => <a href={href("inbox", { task: crawl.task })}>{format.shortCount(crawl.dead)}</a>,
  },
  { title: "Skipped", isNumber: true, isExtra: true, cell: (crawl) => format.shortCount(crawl.skipped) },
  { title: "Rate", isNumber: true, cell: (crawl) => format.rate(crawl.rate_per_s) },
  { title: "Processes", isNumber: true, isExtra: true, cell: (crawl) => format.count(crawl.processes.length) },
  {
    title: "Left",
    isNumber: true,
    cell: (crawl) => (crawl.eta_s === null ? <span class="muted">–</span> : format.duration(crawl.eta_s)),
  },
];

export function Standing({ of }: { readonly of: Crawl }) {
  const [word, tone] = saidOf(conditionOf(of));
  return <Badge of={word} tone={tone} />;
}

function ListPage() {
  const found = useCrawls();
  const text = asked("q");
  const all = found.data ?? [];
  const shown = byUrgency(all).filter((one) => isMeant(one, text));
  const troubled = all.filter(needsALook).length;
  return (
    <>
      <PageHead
        title="Crawls"
        {...(all.length > 0 && {
          note:
            troubled > 0 ? `${troubled} of ${format.plural(all.length, "crawl")} to look at` : "as of the last heartbeats",
        })}
      />
      {(all.length > 1 || text !== "") && (
        <div class="filters" role="search">
          <Search
            label="Find a crawl"
            value={text}
            onSearch={(typed) => setQuery({ q: typed }, text !== "" && typed !== "")}
          />
        </div>
      )}
      <Loaded of={found}>
        {() =>
          all.length === 0 ? (
            <NoCrawls />
          ) : shown.length === 0 ? (
            <Empty title="No crawl matches" icon="search">
              None is named like “{text}”. <a href={href("crawls")}>Show all crawls</a>
            </Empty>
          ) : (
            <Table
              label="Crawls"
              rows={shown}
              keyOf={(crawl) => crawl.name}
              hrefOf={(crawl) => href(["crawls", crawl.name])}
              columns={COLUMNS}
            />
          )
        }
      </Loaded>
    </>
  );
}

const FIRST = `from holdfast import App
from holdfast.crawl import Crawler

crawler = Crawler(App(), name="shop", per_domain=4, rate="2/second")


@crawler.page("https://example.org/**", expect=["h1", ".price"])
def product(page):
    yield {"name": page.text("h1"), "price": page.text(".price")}
    yield from page.links(".next")


crawler.run("https://example.org/", out="pages.jsonl")
`;

function NoCrawls() {
  return (
    <Empty title="There are no crawls" icon="crawls">
      <p>
        A crawl follows the links of a site from where you begin it, at a pace that the site can bear, and goes on where it
        was when it is started again. Its pages are jobs of this store, and what cannot be had waits in the inbox.
      </p>
      <div class="first-crawl">
        <CodeBlock label="A crawl" text={FIRST} />
      </div>
    </Empty>
  );
}
