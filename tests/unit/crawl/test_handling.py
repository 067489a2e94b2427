"""One page from its claim to its end: its turn, robots.txt, refusals, and the places that it takes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from holdfast.crawl.fetched import Fetched
from holdfast.crawl.page import Link, Page
from holdfast.crawl.rules import Parsed
from holdfast.errors import StoreAway
from holdfast.testing import ManualClock
from holdfast.types import Discard, Snooze
from tests.unit.crawl.handled import Answer, Crawl, Gate, Site, answered, page_of, settle

pytestmark = pytest.mark.anyio

# ---------------------------------------------------------------- places


async def test_what_the_worker_does_not_have_any_more_is_no_longer_about_to_begin() -> None:
    crawl = Crawl(Site())
    pages = [page_of(f"https://a.org/{n}") for n in range(3)]
    crawl.handling.claimed(pages)
    crawl.handling.keep({pages[1].id})
    assert list(crawl.handling.waiting) == [pages[1].id]
    assert crawl.domains.get("a.org").claimed == 1


async def test_a_page_that_is_claimed_again_is_counted_once() -> None:
    crawl = Crawl(Site())
    page = page_of("https://a.org/")
    crawl.handling.claimed([page])
    crawl.handling.claimed([page])
    assert crawl.places() == (1, 0, 0)


async def test_a_page_whose_payload_cannot_be_read_gives_its_place_back() -> None:
    crawl = Crawl(Site())
    page = msgspec.structs.replace(page_of("https://a.org/"), payload=b"[")
    crawl.handling.claimed([page])
    with pytest.raises(msgspec.DecodeError):
        await crawl.handling.run(None, page)  # type: ignore[arg-type]
    assert crawl.places() == (0, 0, 0)


async def test_a_request_that_we_give_up_says_nothing_of_the_site() -> None:
    crawl = Crawl(Site(Gate()))
    task = crawl.begin("https://a.org/")
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    domain = crawl.domains.get("a.org")
    assert (domain.failed, domain.pace.limit, crawl.places()) == (0, 4.0, (0, 0, 0))


# ---------------------------------------------------------------- turns


async def test_a_page_waits_a_second_for_its_turn_and_then_goes_back_to_the_store() -> None:
    gate = Gate()
    clock = ManualClock(auto=False)
    crawl = Crawl(Site(gate), clock=clock, per_domain=1)
    first, second = crawl.begin("https://a.org/1"), crawl.begin("https://a.org/2")
    await settle()
    assert not second.done()
    clock.advance(1.0)
    await settle()
    assert isinstance(second.result(), Snooze)
    gate.open[0].set_result(answered("https://a.org/1"))
    await first


async def test_a_page_whose_turn_comes_within_a_second_is_fetched() -> None:
    gate = Gate()
    crawl = Crawl(Site(gate), per_domain=1)
    tasks = [crawl.begin(f"https://a.org/{n}") for n in range(3)]
    for n in range(3):
        await settle()
        gate.open[n].set_result(answered("https://a.org/"))
    assert [type(one) for one in await asyncio.gather(*tasks)] == [msgspec.Raw] * 3


async def test_a_domain_that_has_become_anothers_is_not_asked() -> None:
    site = Site()
    crawl = Crawl(site)
    crawl.is_ours = False
    assert isinstance(await crawl.begin("https://a.org/"), Snooze)
    assert site.asked == []


async def test_a_rest_is_kept_though_the_store_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def limited(url: str) -> Fetched:
        return answered(url, 429, retry_after="20")

    async def away(*_: object) -> None:
        raise StoreAway("no answer")

    crawl = Crawl(Site(limited))
    monkeypatch.setattr(crawl.book, "hold", away)
    snooze = await crawl.begin("https://a.org/")
    assert isinstance(snooze, Snooze)
    assert snooze.seconds >= 20.0
    assert crawl.domains.get("a.org").pace.opens_in_s(0.0) == 20.0


@pytest.mark.parametrize(
    ("said", "least_s", "most_s"),
    [
        ("0", 1.0, 2.0),
        ("-1", 1.0, 31.0),
        ("1e12", 20.0, 86_401.0),
        ("99999999999", 86_400.0, 86_401.0),
        ("soon", 30.0, 31.0),
    ],
)
async def test_whatever_retry_after_says_the_rest_is_neither_none_nor_endless(
    said: str, least_s: float, most_s: float
) -> None:
    async def limited(url: str) -> Fetched:
        return answered(url, 429, retry_after=said)

    snooze = await Crawl(Site(limited)).begin("https://a.org/")
    assert isinstance(snooze, Snooze)
    assert least_s <= snooze.seconds <= most_s


async def test_how_often_a_domain_has_refused_is_remembered_with_its_rest() -> None:
    async def limited(url: str) -> Fetched:
        return answered(url, 429, retry_after="20")

    crawl = Crawl(Site(limited))
    await crawl.begin("https://a.org/")
    hold = crawl.book.hold_of("a.org")
    assert hold is not None
    assert hold.refusals == 1


# ---------------------------------------------------------------- robots.txt


def says(text: str) -> Answer:
    async def answer(url: str) -> Fetched:
        return answered(url, body=text.encode())

    return answer


async def test_robots_txt_is_asked_for_once_however_many_pages_wait_for_it() -> None:
    site = Site(robots=says("User-agent: *\nDisallow: /x"))
    crawl = Crawl(site, robots=True)
    ends = await asyncio.gather(*(crawl.begin(f"https://a.org/{n}") for n in ("x", "y", "z")))
    assert site.asked.count("https://a.org/robots.txt") == 1
    assert isinstance(ends[0], Discard)
    assert not isinstance(ends[1], Discard | Snooze)


async def test_http_and_https_each_have_their_own_robots_txt() -> None:
    async def robots(url: str) -> Fetched:
        return answered(url, body=b"User-agent: *\nDisallow: /" if url.startswith("http:") else b"")

    site = Site(robots=robots)
    crawl = Crawl(site, robots=True)
    assert not isinstance(await crawl.begin("https://a.org/1"), Discard)
    assert isinstance(await crawl.begin("http://a.org/1"), Discard)
    assert site.asked == ["https://a.org/robots.txt", "https://a.org/1", "http://a.org/robots.txt"]


async def test_when_the_one_that_asks_for_robots_txt_is_cancelled_another_asks() -> None:
    gate = Gate()
    site = Site(robots=gate)
    crawl = Crawl(site, robots=True)
    first, second = crawl.begin("https://a.org/1"), crawl.begin("https://a.org/2")
    await settle()
    first.cancel()
    await settle()
    assert len(gate.open) == 2
    gate.open[1].set_result(answered("https://a.org/robots.txt", body=b""))
    assert not isinstance(await second, Snooze | Discard)
    assert crawl.places() == (0, 0, 0)


async def test_pages_do_not_hold_places_of_the_worker_while_robots_txt_is_slow() -> None:
    gate = Gate()
    clock = ManualClock(auto=False)
    crawl = Crawl(Site(robots=gate), robots=True, clock=clock)
    first, second = crawl.begin("https://a.org/1"), crawl.begin("https://a.org/2")
    await settle()
    clock.advance(1.0)
    await settle()
    assert isinstance(second.result(), Snooze)
    assert not first.done()
    gate.open[0].set_result(answered("https://a.org/robots.txt", body=b""))
    await first


async def test_a_crawl_delay_counts_from_the_request_for_robots_txt_on() -> None:
    clock = ManualClock(auto=False)
    site = Site(robots=says("User-agent: *\nCrawl-delay: 10"))
    crawl = Crawl(site, robots=True, clock=clock)
    ends = await asyncio.gather(*(crawl.begin(f"https://a.org/{n}") for n in range(3)))
    assert [round(one.seconds) for one in ends] == [10, 10, 10]
    assert site.asked == ["https://a.org/robots.txt"]
    clock.advance(10.0)
    assert not isinstance(await crawl.begin("https://a.org/0"), Snooze)


# ---------------------------------------------------------------- handlers


async def test_a_page_in_parsing_keeps_its_domain_but_no_place_of_it() -> None:
    crawl = Crawl(Site())
    going_on = asyncio.Event()

    async def slow(page: Page) -> Parsed:
        await going_on.wait()
        return Parsed()

    crawl.parse = slow
    task = crawl.begin("https://a.org/")
    await settle()
    assert crawl.places() == (0, 0, 1)
    going_on.set()
    await task
    assert crawl.places() == (0, 0, 0)


async def test_a_page_with_very_many_links_is_added_whole() -> None:
    crawl = Crawl(Site())

    async def many(page: Page) -> Parsed:
        return Parsed(links=[Link(f"https://a.org/{n}") for n in range(3_000)])

    crawl.parse = many
    result = msgspec.json.decode(await crawl.begin("https://a.org/"))
    assert (result["links"], result["new"]) == (3_000, 3_000)
