"""Runs of a crawl in one process: how they begin, end, stop and go on, beside others, and with a store in trouble."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, ConfigError, RetryPolicy
from holdfast.crawl import Crawler, CrawlSummary, Page, Progress
from holdfast.crawl.book import Book
from holdfast.crawl.frontier import Found, new_page
from holdfast.crawl.urls import domain_of, page_id
from holdfast.ports import Stats
from holdfast.runtime.crawls import pending_in
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty import FaultyStore
from holdfast.types import JobState, NewJob
from tests.unit.crawl.raw_site import RawSite, answer, redirect, stays_silent

pytestmark = pytest.mark.anyio

QUICK = RetryPolicy(max_retries=1, initial_delay=0.02, jitter=False)
LOOPBACK = ["127.0.0.0/8"]


@pytest.fixture
def app() -> App:
    return App("memory://")


@pytest.fixture
async def site() -> AsyncIterator[RawSite]:
    async with RawSite() as site:
        yield site


def html(*links: str) -> bytes:
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return answer(f"<html><body>{anchors}</body></html>".encode(), Content_Type="text/html")


def crawler_of(app: App, **options: Any) -> Crawler:
    settings: dict[str, Any] = {"allow_private": LOOPBACK, "robots": False, "retry": QUICK, "is_adaptive": False}
    crawler = Crawler(app, **(settings | options))
    crawler.settings = msgspec.structs.replace(crawler.settings, progress_s=0.02)
    return crawler


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run


async def ends(running: asyncio.Task[CrawlSummary]) -> CrawlSummary:
    async with asyncio.timeout(20):
        return await running


def running_in(stats: Stats) -> int:
    return sum(tally.n for tally in stats.tallies if tally.state is JobState.RUNNING)


def has_shares(store: MemoryStore) -> bool:
    return any(value.key == "crawl:crawl/shares" and value.data is not None for value in store._values.newer_than(0))


def page(url: str) -> NewJob:
    return new_page("crawl", Found(url, depth=0, referrer="https://example.org/"))


# ---------------------------------------------------------------- stopping


async def test_a_stop_before_the_first_request_is_heeded(app: App, site: RawSite, tmp_path: Path) -> None:
    crawler = crawler_of(app)
    running = asyncio.ensure_future(crawler.arun(site.url(), out=tmp_path / "out.jsonl"))
    await asyncio.sleep(0)  # noqa: TID251 - it begins
    crawler.stop()
    summary = await ends(running)
    assert (summary.is_finished, summary.pending, site.asked) == (False, 1, [])


async def test_a_stop_where_nothing_runs_is_no_stop_of_the_next_run(app: App, site: RawSite) -> None:
    site.pages["/"] = html()
    crawler = crawler_of(app)
    crawler.stop()
    assert (await crawler.arun(site.url())).is_finished
    crawler.stop()
    assert (await crawler.arun(site.url())).is_finished


async def test_another_thread_may_stop_it(app: App, site: RawSite) -> None:
    site.pages["/"] = answer(status=429)
    crawler = crawler_of(app)
    running = asyncio.ensure_future(crawler.arun(site.url()))
    await until(lambda: len(site.asked) == 1)
    threading.Thread(target=crawler.stop).start()
    assert not (await ends(running)).is_finished


async def test_while_all_is_held_it_says_so_and_a_stop_ends_it_at_once(app: App, site: RawSite) -> None:
    site.pages["/"] = answer(status=429)
    told: list[Progress] = []
    crawler = crawler_of(app)
    running = asyncio.ensure_future(crawler.arun(site.url(), on_progress=told.append))
    await until(lambda: bool(told and told[-1].held))
    ((domain, held_s),) = told[-1].held.items()
    assert domain == site.url().split("/")[2]
    assert 25.0 < held_s <= 30.0
    assert told[-1].waiting == 1
    began_s = app.clock.monotonic()
    crawler.stop()
    crawler.stop()
    await ends(running)
    assert app.clock.monotonic() - began_s < 2.0


async def test_while_it_waits_it_finds_out_that_its_store_was_set_back(app: App, site: RawSite) -> None:
    site.pages["/"] = answer(status=429)
    store, told = app.store, list[Progress]()
    assert isinstance(store, MemoryStore)
    backup = copy.deepcopy(store._values)
    running = asyncio.ensure_future((crawler := crawler_of(app)).arun(site.url(), on_progress=told.append))
    await until(lambda: bool(told and told[-1].held))
    assert has_shares(store)
    store._values = backup
    assert not has_shares(store)
    await until(lambda: has_shares(store))
    crawler.stop()
    await ends(running)


@pytest.mark.parametrize("who", ["handler", "sink", "progress"])
async def test_whoever_is_called_may_stop_it(app: App, site: RawSite, who: str) -> None:
    site.pages |= {"/": html("/1"), "/1": html("/2"), "/2": html()}

    def stop(*_: object) -> None:
        crawler.stop()

    crawler = crawler_of(app, sink=stop if who == "sink" else None, per_domain=1)

    @crawler.page("**")
    def handle(page: Page) -> Iterator[Any]:
        if who == "handler":
            crawler.stop()
        yield {"url": page.url}
        yield from page.links()

    summary = await crawler.arun(site.url(), on_progress=stop if who == "progress" else None)
    assert not summary.is_finished
    assert pending_in(await app.store.stats(), "crawl") == summary.pending > 0


async def test_one_that_is_cancelled_gives_back_what_it_has_and_the_next_goes_on_at_once(
    app: App, site: RawSite, tmp_path: Path
) -> None:
    site.pages |= {"/": html("/slow"), "/slow": stays_silent()}
    crawler = crawler_of(app)
    running = asyncio.ensure_future(crawler.arun(site.url(), out=tmp_path / "out.jsonl"))
    await until(lambda: len(site.asked) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ends(running)
    stats = await app.store.stats()
    assert (running_in(stats), stats.workers) == (0, [])
    site.pages["/slow"] = html()
    again = asyncio.ensure_future(crawler.arun(out=tmp_path / "out.jsonl"))
    summary = await ends(again)
    assert (summary.is_finished, summary.done, summary.dead) == (True, 2, 0)
    (record,) = await app.store.get([page_id("crawl", site.url("/slow"))])
    assert record is not None
    assert record.attempt == 1, "the attempt that was cancelled is not counted"


async def test_a_handler_that_hangs_does_not_keep_a_stop_for_longer_than_the_grace_time(
    app: App, site: RawSite
) -> None:
    site.pages["/"] = html()
    crawler = crawler_of(app, grace=0.05)
    begun = asyncio.Event()

    @crawler.page("**")
    async def handle(page: Page) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(crawler.arun(site.url()))
    await begun.wait()
    crawler.stop()
    summary = await ends(running)
    assert (summary.is_finished, summary.pending, running_in(await app.store.stats())) == (False, 1, 0)


async def test_it_runs_once_at_a_time(app: App, site: RawSite) -> None:
    site.pages["/"] = html()
    crawler = crawler_of(app)
    first = asyncio.ensure_future(crawler.arun(site.url()))
    await asyncio.sleep(0)  # noqa: TID251 - it begins
    with pytest.raises(ConfigError, match="already"):
        await crawler.arun(site.url())
    assert (await ends(first)).is_finished


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("pages", "done", "dead"),
    [
        pytest.param({"/": answer(status=204)}, 1, 0, id="no content"),
        pytest.param({"/": answer(b"", Content_Type="text/html")}, 1, 0, id="empty"),
        pytest.param({"/": answer(b"<p>", status=206, Content_Type="text/html")}, 1, 0, id="a part"),
        pytest.param({"/": answer(status=304)}, 0, 1, id="not modified"),
        pytest.param({"/": answer(status=302)}, 0, 1, id="a redirect to nowhere"),
        pytest.param({"/": redirect("file:///etc/passwd")}, 0, 1, id="a redirect to a file"),
        pytest.param({"/": redirect("/")}, 0, 1, id="a redirect to itself"),
        pytest.param({"/": redirect("http://169.254.169.254/")}, 1, 1, id="a redirect to an inner address"),
        pytest.param({"/": html("mailto:a@b", "javascript:x", "http://[", "//", "#")}, 1, 0, id="odd links"),
    ],
)
async def test_whatever_a_site_answers_a_crawl_comes_to_its_end(
    app: App, site: RawSite, pages: dict[str, bytes], done: int, dead: int
) -> None:
    site.pages |= pages
    summary = await ends(asyncio.ensure_future(crawler_of(app).arun(site.url())))
    assert (summary.is_finished, summary.done, summary.dead) == (True, done, dead)


async def test_redirects_to_ever_new_addresses_end(app: App, site: RawSite) -> None:
    async def on(writer: asyncio.StreamWriter) -> None:
        writer.write(redirect(f"/?n={len(site.asked)}"))

    class Anything(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            return on

    site.pages = Anything()
    summary = await ends(asyncio.ensure_future(crawler_of(app, max_redirects=4).arun(site.url())))
    assert (summary.is_finished, summary.dead, len(site.asked)) == (True, 1, 5)


async def test_a_crawl_of_which_all_is_left_out_is_finished(app: App, site: RawSite) -> None:
    site.pages["/robots.txt"] = answer(b"User-agent: *\nDisallow: /", Content_Type="text/plain")
    summary = await crawler_of(app, robots=True).arun(site.url("/a"), site.url("/b"))
    assert (summary.is_finished, summary.done, summary.skipped) == (True, 0, 2)
    assert site.paths == ["/robots.txt"]


async def test_links_on_the_domains_of_all_seeds_are_followed_however_many_there_are(app: App, site: RawSite) -> None:
    async with RawSite({"/": html("/next"), "/next": html()}, host="127.0.1.130") as last:
        seeds = [*(f"http://127.0.1.{n}:{site.port}/" for n in range(1, 130)), last.url()]
        crawler = crawler_of(app, retry=RetryPolicy(max_retries=0))
        await crawler.arun(*seeds)
        assert sorted(last.paths) == ["/", "/next"]


# ---------------------------------------------------------------- several processes


async def test_two_on_one_crawl_share_it_and_both_know_when_it_is_done(app: App, site: RawSite) -> None:
    site.pages |= {"/": html(*(f"/{n}" for n in range(60)))} | {f"/{n}": html() for n in range(60)}
    one, other = crawler_of(app), crawler_of(app)
    runs = [asyncio.ensure_future(crawler.arun(site.url())) for crawler in (one, other)]
    first, second = [await ends(run) for run in runs]
    assert (first.is_finished, second.is_finished) == (True, True)
    assert first.done_here + second.done_here == 61
    assert len(site.asked) == 61


async def test_where_a_seed_redirects_to_is_wanted_by_all_processes(app: App, site: RawSite) -> None:
    async with RawSite({"/": html("/next"), "/next": html()}, host="127.0.0.2") as target:
        site.pages["/"] = answer(status=429, Retry_After="1")
        crawler = crawler_of(app)
        running = asyncio.ensure_future(crawler.arun(site.url()))
        await until(lambda: len(site.asked) == 1)
        # As another process does that has followed the redirect.
        await Book(app.store, "crawl").widen(domain_of(target.url()))
        await app.store.enqueue([page(target.url())])
        site.pages["/"] = html()
        summary = await ends(running)
    assert (summary.is_finished, summary.done) == (True, 3)
    assert sorted(target.paths) == ["/", "/next"]


async def test_a_rest_that_another_process_was_asked_for_is_kept(app: App, site: RawSite) -> None:
    site.pages |= {"/": html("/1"), "/1": html()}
    domain = site.url().split("/")[2]
    now = (await app.store.stats()).now
    await Book(app.store, "crawl").hold(domain, now + 3_600.0, "Retry-After", 2)
    told: list[Progress] = []
    crawler = crawler_of(app)
    running = asyncio.ensure_future(crawler.arun(site.url(), on_progress=told.append))
    await until(lambda: bool(told and told[-1].held))
    await until(lambda: told[-1].pending == 1)
    crawler.stop()
    await ends(running)
    assert site.asked == []


async def test_a_rest_that_another_process_is_asked_for_meanwhile_is_kept(app: App, site: RawSite) -> None:
    site.pages |= {"/": html("/1"), "/1": stays_silent(), "/2": html()}
    crawler = crawler_of(app)
    told: list[Progress] = []
    running = asyncio.ensure_future(crawler.arun(site.url(), on_progress=told.append))
    await until(lambda: len(site.asked) == 2)
    domain = site.url().split("/")[2]
    await Book(app.store, "crawl").hold(domain, (await app.store.stats()).now + 3_600.0, "Retry-After", 2)
    await until(lambda: bool(told[-1].held))
    await app.store.enqueue([page(site.url("/2"))])
    await until(lambda: told[-1].pending == 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert site.paths == ["/", "/1"]


# ---------------------------------------------------------------- a store in trouble


async def test_a_store_that_is_away_for_a_while_is_waited_for(app: App, site: RawSite) -> None:
    app._store = store = FaultyStore(app.store)
    site.pages |= {"/": html("/1", "/2"), "/1": html("/3"), "/2": html(), "/3": html()}

    @(crawler := crawler_of(app)).page("**")
    async def handle(page: Page) -> Any:
        if page.url.endswith("/1"):
            store.fail()
            asyncio.get_running_loop().call_later(0.3, store.mend)
        return list(page.links())

    summary = await ends(asyncio.ensure_future(crawler.arun(site.url())))
    assert (summary.is_finished, summary.done, summary.dead) == (True, 4, 0)


async def test_a_worker_that_has_lost_its_lease_is_replaced(app: App, site: RawSite) -> None:
    app._store = store = FaultyStore(app.store)
    site.pages |= {"/": html("/1", "/2"), "/1": html(), "/2": html()}
    crawler = crawler_of(app, per_domain=1)
    crawler.settings = msgspec.structs.replace(crawler.settings, lease_s=0.5)
    lost = asyncio.Event()

    @crawler.page("**")
    async def handle(page: Page) -> Any:
        if page.url.endswith("/1") and not lost.is_set():
            store.fail("heartbeat")
            try:
                await asyncio.Event().wait()
            finally:
                lost.set()
                store.mend()
        return list(page.links())

    summary = await ends(asyncio.ensure_future(crawler.arun(site.url())))
    assert lost.is_set()
    assert (summary.is_finished, summary.done, summary.dead) == (True, 3, 0)


async def test_a_stop_while_the_store_is_away_says_what_was_known_last(app: App, site: RawSite) -> None:
    app._store = store = FaultyStore(app.store)
    site.pages["/"] = answer(status=429)
    told: list[Progress] = []
    crawler = crawler_of(app)
    running = asyncio.ensure_future(crawler.arun(site.url(), on_progress=told.append))
    await until(lambda: bool(told and told[-1].held))
    store.fail()
    crawler.stop()
    summary = await ends(running)
    assert (summary.is_finished, summary.pending) == (False, 1)


async def test_secrets_in_headers_go_to_the_seeds_own_domain_and_not_where_it_redirects_to(
    app: App, site: RawSite
) -> None:
    async with RawSite({"/": html("/next"), "/next": html()}, host="127.0.0.2") as target:
        site.pages["/"] = redirect(target.url())
        for _ in range(2):  # in the second run the redirect is known from the first
            crawler = crawler_of(app, headers={"Authorization": "Bearer 1", "Accept-Language": "en"})
            await ends(asyncio.ensure_future(crawler.arun(site.url())))
        assert any("Authorization: Bearer 1" in head for head in site.asked)
        assert len(target.asked) == 2
        assert all("Accept-Language: en" in head and "Authorization" not in head for head in target.asked)
