"""Whole crawls of a local site, in another process: what becomes of each page, and of the crawl."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, CircuitBreaker, ConfigError, RetryPolicy
from holdfast.crawl import Crawler, CrawlSummary, Item, Page, Progress
from holdfast.crawl.urls import canonical, page_id
from holdfast.ports import Stats
from holdfast.testing.site import (
    Burst,
    Site,
    SiteProcess,
    early,
    most_in_flight,
    requests_by_path,
    starts_in_any_window,
)
from holdfast.types import Discard, FailureType, JobRecord, JobState, Snooze

QUICK = RetryPolicy(max_retries=2, initial_delay=0.02, jitter=False)
LOOPBACK = ["127.0.0.1/32"]


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=60, links=3)) as process:
        yield process


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/crawl.db")
    yield app
    app.close()


def products(crawler: Crawler) -> Crawler:
    @crawler.page("**", expect=["h1", ".price"])
    def product(page: Page) -> Iterator[Any]:
        yield {"url": page.url, "name": page.text("h1"), "price": page.text(".price")}
        yield from page.links()

    return crawler


def crawler_of(app: App, **options: Any) -> Crawler:
    settings: dict[str, Any] = {"allow_private": LOOPBACK, "retry": QUICK, "robots": False}
    return products(Crawler(app, **(settings | options)))


def record(app: App, url: str, name: str = "crawl") -> JobRecord:
    place = canonical(url)
    assert place is not None
    (found,) = app.bridge.run(app.store.get([page_id(name, place)]))
    assert found is not None
    return found


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# ---------------------------------------------------------------- to the end


def test_every_page_is_fetched_once_and_every_item_written_once(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=300), log=tmp_path / "log") as site:
        summary = crawler_of(app, per_domain=16).run(site.url, out=tmp_path / "pages.jsonl")
        assert (summary.is_finished, summary.done, summary.pending, summary.dead) == (True, 300, 0, 0)
        assert set(requests_by_path(site.log()).values()) == {1}
        items = lines(tmp_path / "pages.jsonl")
        assert {item["url"] for item in items} == {site.url_of(n) for n in range(300)}
        assert len(items) == 300
        wanted = site.site.item(7)
        assert {item["name"]: item["price"] for item in items}[wanted["name"]] == wanted["price"]


def test_a_crawl_that_is_finished_fetches_nothing_again_and_another_name_begins_anew(
    app: App, site: SiteProcess
) -> None:
    assert crawler_of(app, name="one").run(site.url).done_here == 60
    again = crawler_of(app, name="one").run(site.url)
    assert (again.is_finished, again.done, again.done_here) == (True, 60, 0)
    assert crawler_of(app, name="two").run(site.url).done_here == 60


def test_a_stopped_crawl_goes_on_where_it_was(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=200, latency_s=0.005), log=tmp_path / "log") as site:
        first = crawler_of(app)

        def stop(progress: Progress) -> None:
            if progress.done_here:
                first.stop()

        first.settings = msgspec.structs.replace(first.settings, progress_s=0.02)
        stopped = first.run(site.url, out=tmp_path / "out.jsonl", on_progress=stop)
        assert not stopped.is_finished
        assert 0 < stopped.done < 200
        assert stopped.pending
        finished = crawler_of(app).run(out=tmp_path / "out.jsonl")
        assert (finished.is_finished, finished.done) == (True, 200)
        assert set(requests_by_path(site.log()).values()) == {1}
        assert len({item["url"] for item in lines(tmp_path / "out.jsonl")}) == len(lines(tmp_path / "out.jsonl")) == 200


def test_a_memory_store_will_do(site: SiteProcess) -> None:
    app = App("memory://")
    assert crawler_of(app).run(site.url).done == 60


def test_async_code_awaits_it(app: App, site: SiteProcess) -> None:
    async def main() -> CrawlSummary:
        return await crawler_of(app).arun(site.url)

    assert asyncio.run(main()).done == 60


def test_a_crawl_without_seeds_that_never_began_is_finished_at_once(app: App) -> None:
    assert crawler_of(app).run().is_finished


# ---------------------------------------------------------------- which pages


def test_links_deeper_than_wanted_are_not_followed(app: App, site: SiteProcess) -> None:
    summary = crawler_of(app, depth=1).run(site.url)
    assert summary.is_finished
    assert 1 < summary.done < 60
    assert summary.not_followed["too deep"] > 0


def test_no_more_urls_are_taken_than_allowed(app: App, site: SiteProcess) -> None:
    summary = crawler_of(app, max_pages=10).run(site.url)
    assert summary.done == 10
    assert summary.not_followed["too many pages"] > 0
    assert crawler_of(app, max_pages=10).run(site.url).done == 10


def test_patterns_say_what_is_wanted(app: App, site: SiteProcess) -> None:
    summary = crawler_of(app, deny=["/p/1*"]).run(site.url)
    assert summary.not_followed["denied"] > 0
    assert app.bridge.run(app.store.get([page_id("crawl", site.url_of(10))])) == [None]


def test_pages_that_robots_txt_disallows_are_left_out(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=80, faults={"disallowed": 0.2}), log=tmp_path / "log") as site:
        summary = crawler_of(app, robots=True).run(site.url)
        hidden = [n for n in range(80) if site.site.plan(n).kind == "disallowed"]
        assert (summary.skipped, summary.done) == (len(hidden), 80 - len(hidden))
        assert not any(request.path.startswith("/private/") for request in site.log())
        left_out = record(app, site.url_of(hidden[0]))
        assert (left_out.state, left_out.reason) == (JobState.CANCELLED, "robots.txt disallows it")
        assert requests_by_path(site.log())["/robots.txt"] == 1


def test_where_robots_txt_cannot_be_had_nothing_is_fetched(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=5, robots_status=500), log=tmp_path / "log") as site:
        summary = crawler_of(app, robots=True).run(site.url)
        assert (summary.done, summary.dead) == (0, 1)
        assert set(requests_by_path(site.log())) == {"/robots.txt"}
        assert record(app, site.url).failure_type is FailureType.NETWORK
        assert "robots.txt cannot be had (status 500)" in record(app, site.url).message


def test_private_addresses_are_refused_unless_allowed(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=1), log=tmp_path / "log") as site:
        assert crawler_of(app, allow_private=False).run(site.url).dead == 1
        assert site.log() == []
        assert record(app, site.url).failure_type is FailureType.PERMANENT


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("kind", "failure_type", "attempts"),
    [
        ("not-found", FailureType.PERMANENT, 1),
        ("gone", FailureType.PERMANENT, 1),
        ("forbidden", FailureType.AUTHENTICATION, 1),
        ("error", FailureType.TRANSIENT, 3),
        ("reset", FailureType.NETWORK, 3),
        ("truncated", FailureType.NETWORK, 3),
        ("gzip-bomb", FailureType.PERMANENT, 1),
        ("huge", FailureType.PERMANENT, 1),
        ("changed", FailureType.STRUCTURAL, 1),
        ("other-type", FailureType.STRUCTURAL, 1),
        ("challenge", FailureType.STRUCTURAL, 1),
        ("login", FailureType.STRUCTURAL, 1),
    ],
)
def test_a_failure_is_judged_by_what_it_is(
    app: App, site: SiteProcess, kind: Any, failure_type: FailureType, attempts: int
) -> None:
    url = site.url_as(kind)
    crawler_of(app, max_bytes=1_000_000, is_adaptive=False, depth=0).run(url)
    found = record(app, url)
    assert (found.state, found.failure_type, found.attempt) == (JobState.DEAD_LETTER, failure_type, attempts)


@pytest.mark.parametrize("kind", ["unavailable", "slow", "gzip", "wrong-charset"])
def test_a_page_that_is_fine_in_the_end_is_done(app: App, site: SiteProcess, kind: Any) -> None:
    url = site.url_as(kind, "fine")
    crawler_of(app, is_adaptive=False, depth=0).run(url)
    assert record(app, url).state is JobState.COMPLETED


@pytest.mark.parametrize("kind", ["limited-seconds", "limited-date", "unavailable-after"])
def test_a_site_that_asks_to_wait_is_waited_for_at_no_cost_also_with_a_single_page(
    app: App, tmp_path: Path, kind: Any
) -> None:
    with SiteProcess(Site(pages=1), log=tmp_path / "log") as site:
        url = site.url_as(kind)
        crawler_of(app, depth=0).run(url)
        done = record(app, url)
        assert (done.state, done.attempt) == (JobState.COMPLETED, 1)
        assert len(site.log()) == 2
        assert early(site.log(), by="domain") == []


def test_a_burst_of_refusals_holds_the_whole_domain_once(app: App, tmp_path: Path) -> None:
    burst = Burst(at_once=3, retry_after_s=1)
    with SiteProcess(Site(pages=40, latency_s=0.02, burst=burst), log=tmp_path / "log") as site:
        summary = crawler_of(app, per_domain=8).run(site.url)
        assert (summary.done, summary.dead) == (40, 0)
        assert early(site.log(), by="domain", grace_s=0.1) == []
        refused = [request for request in site.log() if request.status == 429]
        assert 0 < len(refused) <= 8


def test_a_redirect_makes_its_target_a_page_of_its_own(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=30, faults={"redirect": 0.3}), log=tmp_path / "log") as site:
        crawler_of(app).run(site.url, out=tmp_path / "out.jsonl")
        plain = {site.url_of(n) for n in range(30) if site.site.plan(n).kind == "ok"}
        assert sorted(item["url"] for item in lines(tmp_path / "out.jsonl")) == sorted(plain)
        assert set(requests_by_path(site.log()).values()) == {1}


@pytest.mark.parametrize("kind", ["redirect-loop", "redirect-chain"])
def test_redirects_that_lead_nowhere_end_in_the_inbox(app: App, site: SiteProcess, kind: Any) -> None:
    summary = crawler_of(app, depth=0).run(site.url_as(kind, "9"))
    assert (summary.is_finished, summary.dead) == (True, 1)
    (group,) = app.dead_letters.groups()
    assert "redirected" in group.message


# ---------------------------------------------------------------- limits


def test_no_domain_has_more_in_flight_than_allowed(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=120, hosts=3, latency_s=0.01), log=tmp_path / "log") as site:
        crawler = crawler_of(app, per_domain=2, allow=[f"{url}/**" for url in site.urls])
        assert crawler.run(site.url).done == 120
        assert most_in_flight(site.log()) == 2


def test_small_domains_are_done_long_before_a_huge_one_that_was_found_first(app: App) -> None:
    order: list[str] = []
    with SiteProcess(Site(pages=150)) as huge, SiteProcess(Site(pages=15, hosts=3)) as small:
        crawler = Crawler(app, concurrency=4, per_domain=2, robots=False, allow_private=LOOPBACK)
        crawler.page("**")(lambda page: order.append(page.domain))
        crawler.run(*(huge.url_of(n) for n in range(150)), *(small.url_of(n) for n in range(15)))
        domain = huge.url.split("/")[2]
    assert len(order) == 165
    assert max(at for at, one in enumerate(order) if one != domain) < 90


def test_links_of_a_higher_priority_are_fetched_first(app: App, site: SiteProcess) -> None:
    order: list[int] = []
    crawler = Crawler(app, per_domain=1, robots=False, allow_private=LOOPBACK)

    @crawler.page("**")
    def numbered(page: Page) -> Iterator[Any]:
        order.append(page.data.get("n", -1))
        if page.depth == 0:
            yield from (page.follow(site.url_of(n), priority=n % 2, data={"n": n}) for n in range(1, 21))

    assert crawler.run(site.url).done == 21
    assert [n % 2 for n in order[1:]] == [1] * 10 + [0] * 10


def test_no_domain_is_asked_more_often_than_its_rate(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=9), log=tmp_path / "log") as site:
        assert crawler_of(app, rate="8/second", per_domain=8).run(site.url).done == 9
        assert starts_in_any_window(site.log(), 0.95) <= 8


def test_a_crawl_delay_is_kept_between_any_two_requests(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=4, crawl_delay_s=0.2), log=tmp_path / "log") as site:
        assert crawler_of(app, robots=True).run(site.url).done == 4
        at = [request.at for request in site.log() if request.path != "/robots.txt"]
        assert min(later - earlier for earlier, later in pairwise(at)) >= 0.19


def test_a_domain_in_trouble_is_parked_and_the_others_go_on(app: App, tmp_path: Path) -> None:
    site = Site(pages=60, hosts=2, host_faults={1: {"error": 1.0}})
    with SiteProcess(site, log=tmp_path / "log") as process:
        breaker = CircuitBreaker(failure_threshold=3, recovery_timeout=3_600.0)
        crawler = crawler_of(app, breaker=breaker, allow=[f"{url}/**" for url in process.urls], is_adaptive=False)
        crawler.settings = msgspec.structs.replace(crawler.settings, progress_s=0.05)

        held: list[str] = []

        def stop(progress: Progress) -> None:
            held[:] = progress.held
            if progress.done >= 31 and progress.in_flight == 0 and held:
                crawler.stop()

        summary = crawler.run(*(url + "/" for url in process.urls), on_progress=stop)
        assert summary.done == 31, "all of the healthy host, and the other's home page"
        assert held == [process.urls[1].removeprefix("http://")], "and it is said which domain waits"
        assert summary.pending > 0
        failed = [request for request in process.log() if request.status == 500]
        assert len(failed) <= 3 + 4, "no more than it takes to open it, and what was in flight"
        (open_one,) = [view for view in app.breakers.list() if view.mode == "open"]
        assert open_one.key == f"crawl/{process.urls[1].removeprefix('http://')}"


# ---------------------------------------------------------------- handlers


def test_a_page_that_changed_is_kept_and_grouped_by_domain_and_selector(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=60, faults={"changed": 0.2})) as site:
        summary = crawler_of(app).run(site.url)
        changed = [n for n in range(60) if site.site.plan(n).kind == "changed"]
        assert summary.dead == len(changed)
        (group,) = app.dead_letters.groups()
        assert group.failure_type is FailureType.STRUCTURAL
        assert group.count == len(changed)
        kept = record(app, site.url_of(changed[0])).notes
        assert kept is not None
        assert kept.checkpoint is not None
        assert msgspec.json.decode(kept.checkpoint)["url"] == site.url_of(changed[0])


def test_a_kept_page_is_parsed_again_without_being_fetched(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=1), log=tmp_path / "log") as site:
        url = site.url_as("changed")
        assert crawler_of(app, depth=0).run(url).dead == 1
        letter = record(app, url)
        fixed = Crawler(app, allow_private=LOOPBACK, robots=False, depth=0)

        @fixed.page("**")
        def product(page: Page) -> Iterator[Any]:
            yield {"name": page.text("h1")}

        edited = msgspec.json.encode(msgspec.json.decode(letter.payload) | {"stored": True})
        app.bridge.run(_replay(app, letter.id, edited))
        summary = fixed.run(out=tmp_path / "out.jsonl")
        assert (summary.done, summary.dead) == (1, 0)
        assert len(site.log()) == 1, "it was not fetched again"
        assert lines(tmp_path / "out.jsonl") == [{"name": lines(tmp_path / "out.jsonl")[0]["name"]}]


async def _replay(app: App, id: str, payload: bytes) -> None:  # noqa: A002
    from holdfast.ports import Operation
    from holdfast.types import Change

    (changed,) = await app.store.change(Operation(change=Change.REPLAY, ids=[id], payload=payload))
    assert changed.is_done


@dataclasses.dataclass
class Product:
    name: str


class Price(msgspec.Struct):
    price: str


async def async_generator(page: Page) -> AsyncIterator[Any]:
    yield Product(page.text("h1"))


async def coroutine(page: Page) -> Any:
    return [Price(page.text(".price"))]


def returns_one(page: Page) -> Any:
    return {"name": page.text("h1")}


def returns_nothing(page: Page) -> None:
    return None


@pytest.mark.parametrize(
    ("handler", "n"), [(async_generator, 1), (coroutine, 1), (returns_one, 1), (returns_nothing, 0)]
)
def test_a_handler_may_be_any_kind_of_function(
    app: App, site: SiteProcess, handler: Callable[[Page], Any], n: int
) -> None:
    crawler = Crawler(app, allow_private=LOOPBACK, robots=False, depth=0)
    crawler.page("**")(handler)
    assert crawler.run(site.url).items_here == n


@pytest.mark.parametrize("value", ["text", 7, ["nested"], object()])
def test_what_is_neither_an_item_nor_a_link_is_refused(app: App, site: SiteProcess, value: object) -> None:
    crawler = Crawler(app, allow_private=LOOPBACK, robots=False, depth=0)

    @crawler.page("**")
    def odd(page: Page) -> Iterator[Any]:
        yield value

    assert crawler.run(site.url).dead == 1
    assert "a handler yields items" in record(app, site.url).message


def test_a_missing_field_is_a_structural_failure(app: App, site: SiteProcess) -> None:
    crawler = Crawler(app, allow_private=LOOPBACK, robots=False, depth=0)

    @crawler.page("**", fields=["name", "price"])
    def product(page: Page) -> Iterator[Any]:
        yield {"name": page.text("h1"), "price": ""}

    assert crawler.run(site.url).dead == 1
    assert record(app, site.url).failure_type is FailureType.STRUCTURAL


def test_an_item_that_is_no_json_fails_its_page_and_is_not_dropped(app: App, site: SiteProcess) -> None:
    crawler = Crawler(app, allow_private=LOOPBACK, robots=False, depth=0)

    @crawler.page("**")
    def product(page: Page) -> Iterator[Any]:
        yield {"node": object()}

    assert crawler.run(site.url).dead == 1


def test_pages_without_a_handler_are_followed_unless_that_is_off(app: App, site: SiteProcess) -> None:
    plain: dict[str, Any] = {"allow_private": LOOPBACK, "robots": False}
    assert Crawler(app, name="on", **plain).run(site.url).done == 60
    assert Crawler(app, name="off", follow=False, **plain).run(site.url).done == 1


def test_a_sink_gets_items_with_stable_ids_and_again_when_it_failed(app: App, site: SiteProcess) -> None:
    got: list[Item] = []

    async def sink(items: Any) -> None:
        got.extend(items)
        if len(got) == 1:
            raise ConnectionError("the other side is away")

    assert crawler_of(app, depth=0, sink=sink).run(site.url).done == 1
    first, second = got
    assert first == second
    assert first.id == f"{page_id('crawl', site.url + '/')}-0"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"name": "a/b"}, "name"),
        ({"concurrency": 0}, "concurrency"),
        ({"per_domain": 0}, "per_domain"),
        ({"rate": "often"}, "rate"),
        ({"depth": -1}, "depth=-1"),
        ({"timeout": 0}, "timeout"),
        ({"allow_private": ["home"]}, "allow_private"),
        ({"user_agent": "two\nlines"}, "user_agent"),
        ({"robots": "no"}, "robots='no'"),
        ({"follow": 0}, "follow=0"),
        ({"verify_tls": None}, "verify_tls=None"),
        ({"is_adaptive": 1}, "is_adaptive=1"),
        ({"retry": 5}, "retry=5"),
        ({"breaker": 5}, "breaker=5"),
        ({"sink": "items.db"}, "sink='items.db'"),
        ({"allow": 5}, "allow=5"),
        ({"deny": None}, "deny=None"),
    ],
)
def test_settings_that_cannot_work_are_refused(app: App, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Crawler(app, **options)


@pytest.mark.parametrize("option", ["expect", "fields", "content_type"])
def test_a_handler_with_settings_that_cannot_work_is_refused(app: App, option: str) -> None:
    options: dict[str, Any] = {option: 5}
    with pytest.raises(ConfigError, match=f"{option}=5"):
        Crawler(app).page("**", **options)


def test_a_seed_that_is_no_url_is_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="must be an http or https URL"):
        crawler_of(app).run("example.org")


def test_an_error_of_whoever_is_told_of_progress_ends_the_run(app: App, site: SiteProcess) -> None:
    def tell(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crawler_of(app).run(site.url, on_progress=tell)
    assert crawler_of(app).run(site.url).is_finished


def test_a_hold_is_kept_by_the_next_process_too(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=3), log=tmp_path / "log") as site:
        url = site.url_as("limited-seconds", retry_after_s=2)
        first = crawler_of(app, depth=0)
        first.settings = msgspec.structs.replace(first.settings, progress_s=0.02)

        def stop(progress: Progress) -> None:
            if progress.held:
                first.stop()

        assert not first.run(url, on_progress=stop).is_finished
        assert crawler_of(app, depth=0).run(site.url).done == 2
        assert early(site.log(), by="domain") == []


def test_a_hold_is_kept_though_the_store_was_slow_to_tell_its_time(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = app.store.stats

    async def slow() -> Stats:
        answer = await stats()
        await app.clock.asleep(0.5)
        return answer

    with SiteProcess(Site(pages=3), log=tmp_path / "log") as site, monkeypatch.context() as patched:
        patched.setattr(app.store, "stats", slow)
        first = crawler_of(app, depth=0)

        def stop(progress: Progress) -> None:
            if progress.held:
                first.stop()

        assert not first.run(site.url_as("limited-seconds", retry_after_s=2), on_progress=stop).is_finished
        patched.undo()
        assert crawler_of(app, depth=0).run(site.url).done == 2
        assert early(site.log(), by="domain") == []


def test_a_handler_may_leave_a_page_out_or_want_it_later(app: App, site: SiteProcess) -> None:
    seen: list[int] = []
    crawler = Crawler(app, allow_private=LOOPBACK, robots=False, depth=0)

    @crawler.page("**/p/1")
    def later(page: Page) -> Any:
        seen.append(page.attempt)
        return Snooze(0.01) if len(seen) == 1 else {"name": page.text("h1")}

    @crawler.page("**/p/2")
    def left_out(page: Page) -> Iterator[Any]:
        yield {"name": page.text("h1")}
        yield Discard("nobody wants it")

    summary = crawler.run(site.url_of(1), site.url_of(2))
    assert (summary.done, summary.skipped, summary.items_here) == (1, 1, 1)
    assert seen == [1, 1], "it costs no attempt"
    assert record(app, site.url_of(2)).reason == "nobody wants it"


async def test_a_finished_crawl_that_is_replayed_waits_for_the_letters(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/crawl.db")
    with SiteProcess(Site(pages=12, faults={"unavailable": 0.5})) as site:
        steady: dict[str, Any] = {"breaker": CircuitBreaker(failure_threshold=100), "is_adaptive": False}
        first = await crawler_of(app, retry=RetryPolicy(max_retries=0), **steady).arun(site.url)
        assert first.dead > 0
        await app.dead_letters.areplay(task="crawl:crawl")
        again = await crawler_of(app, **steady).arun()
        assert (again.is_finished, again.dead, again.pending) == (True, 0, 0)
        assert again.done == 12


def test_an_output_that_cannot_be_opened_leaves_no_crawl_behind(app: App, site: SiteProcess, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        crawler_of(app).run(site.url, out=tmp_path / "missing" / "pages.jsonl")
    assert app.crawls.list() == []
    crawler_of(app, depth=0).run(site.url)
    with pytest.raises(ConfigError):
        crawler_of(app).run(out=tmp_path / "missing" / "pages.jsonl")
    assert [(view.name, view.done) for view in app.crawls.list()] == [("crawl", 1)]
