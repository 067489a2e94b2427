"""Completed pages on their way into an output: gathered, written beside the crawl, looked up where they are missing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import Raw

from holdfast.crawl.feed import MOST_WAITING, MOST_WAITING_BYTES, Feed
from holdfast.crawl.json_lines_output import JsonLinesFile
from holdfast.crawl.outputs import Done, Output, open_output
from holdfast.crawl.reconcile import reconcile
from holdfast.errors import StoreError
from holdfast.ports import Stats
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore
from holdfast.testing.store_suite import steps
from holdfast.types import Change
from tests.unit.crawl.completed import CRAWL, complete, lines, page, pages

ENOUGH = 500


@pytest.fixture
async def store() -> AsyncIterator[FaultyStore]:
    store = FaultyStore(MemoryStore())
    yield store
    await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.jsonl"


@pytest.fixture
def output(path: Path) -> Iterator[Output]:
    with closing(open_output(path, CRAWL)) as output:
        yield output


@pytest.fixture
async def feed(store: FaultyStore, output: Output, clock: ManualClock) -> AsyncIterator[Feed]:
    feed = Feed(store, CRAWL, output, clock=clock, rng=lambda: 1.0)
    yield feed
    await feed.close(catch_up=False)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run


async def started(feed: Feed) -> Feed:
    """It has looked for what was missing, and waits."""
    feed.start()
    await until(lambda: feed._walk is None)
    return feed


def numbers(path: Path) -> list[int]:
    return sorted(one["n"] for one in lines(path))


# ---------------------------------------------------------------- reconciling


async def test_what_is_completed_and_not_written_is_added_durably(
    store: FaultyStore, output: Output, path: Path
) -> None:
    await complete(store, *pages(*range(1, 6)))
    output.add(pages(2, 4))
    assert await reconcile(store, CRAWL, output) == 3
    assert (numbers(path), output.count) == ([1, 2, 3, 4, 5], 5)
    assert await reconcile(store, CRAWL, output) == 0


async def test_only_completed_pages_of_this_crawl_are_written(store: FaultyStore, output: Output, path: Path) -> None:
    await complete(store, page(1, crawl="other"), crawl="other")
    await complete(store, page(2))
    for change in (Change.BURY, Change.DISCARD):
        delivery = await steps.start(store, task=f"crawl:{CRAWL}")
        await steps.settle(store, delivery, change)
    await steps.enqueue(store, steps.new_job(f"crawl:{CRAWL}"))
    assert await reconcile(store, CRAWL, output) == 1
    assert numbers(path) == [2]


async def test_nothing_is_read_where_nothing_is_missing_and_no_more_than_needed_otherwise(
    store: FaultyStore, output: Output
) -> None:
    everything = pages(*range(1_200))
    await complete(store, *everything)
    output.add(everything)
    store.calls.clear()
    assert await reconcile(store, CRAWL, output) == 0
    assert store.calls["find"] == 0
    await complete(store, *pages(1_200))
    assert await reconcile(store, CRAWL, output) == 1
    assert store.calls["find"] == 1, "the newest come first"


async def test_pages_that_are_written_meanwhile_do_not_stand_for_those_that_are_missing(
    output: Output, path: Path
) -> None:
    class Busy(MemoryStore):
        """While its answer is on the way, another page is completed and written."""

        async def stats(self, since_minute: int | None = None) -> Stats:
            answer = await super().stats(since_minute)
            if not output.has([page(3).id]):
                await complete(self, page(3))
                output.add([page(3)])
                output.sync()
            return answer

    store = Busy()
    await complete(store, *pages(1, 2))
    output.add(pages(2))
    output.sync()
    assert await reconcile(store, CRAWL, output) == 1
    assert numbers(path) == [1, 2, 3]


async def test_a_result_that_is_none_of_a_page_is_passed_over_and_told(
    store: FaultyStore, output: Output, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for result in (b'{"items":7}', b'{"status":200}', None):
        delivery = await steps.start(store, task=f"crawl:{CRAWL}")
        await steps.settle(store, delivery, Change.COMPLETE, result=result)
    await complete(store, page(1))
    assert await reconcile(store, CRAWL, output) == 4
    assert numbers(path) == [1]
    (told,) = caplog.records
    assert "has a result that is none of a page" in told.getMessage()


# ---------------------------------------------------------------- the feed


async def test_pages_are_durable_after_a_second_and_not_written_one_by_one(
    feed: Feed, clock: ManualClock, output: Output, path: Path
) -> None:
    await started(feed)
    for n in range(3):
        feed.put(page(n))
        await until(lambda: not feed._stir.is_set())
    assert (output.count, numbers(path)) == (0, [])
    clock.advance(0.9)
    feed.put(page(3))
    assert output.count == 0
    clock.advance(0.1)
    await until(lambda: output.count == 4)
    assert numbers(path) == [0, 1, 2, 3]


async def test_many_pages_are_taken_at_once_and_synced_when_the_second_is_over(
    feed: Feed, clock: ManualClock, output: Output
) -> None:
    await started(feed)
    many = pages(*range(ENOUGH))
    for one in many:
        feed.put(one)
    await until(lambda: len(output.has([one.id for one in many])) == ENOUGH)
    assert output.count == 0
    clock.advance(1.0)
    await until(lambda: output.count == ENOUGH)


async def test_it_begins_with_what_an_earlier_start_has_left_out(feed: Feed, store: FaultyStore, path: Path) -> None:
    await complete(store, *pages(1, 2))
    await started(feed)
    assert numbers(path) == [1, 2]


async def test_it_says_when_too_many_wait(feed: Feed) -> None:
    for n in range(MOST_WAITING):
        feed.put(Done(page(n).id, ""))
    before = feed.is_full
    feed.put(Done(page(MOST_WAITING).id, ""))
    assert (before, feed.is_full) == (False, True)
    await started(feed)
    await until(lambda: not feed.is_full)


async def test_large_pages_are_written_sooner_and_few_of_them_are_too_many(
    feed: Feed, output: Output, store: FaultyStore
) -> None:
    large = Raw(b'"' + b"x" * (MOST_WAITING_BYTES // 20) + b'"')
    many = [Done(page(n).id, "", [large]) for n in range(20)]
    for one in many[:19]:
        feed.put(one)
    before = feed.is_full
    feed.put(many[19])
    assert (before, feed.is_full) == (False, True)
    await started(feed)
    await until(lambda: len(output.has([one.id for one in many])) == 20)
    assert not feed.is_full
    feed.put(Done(page(20).id, "", [large]))
    await until(lambda: bool(output.has([page(20).id])))


async def test_closed_at_the_end_of_a_crawl_it_has_the_pages_of_others_too(
    feed: Feed, store: FaultyStore, path: Path
) -> None:
    await started(feed)
    await complete(store, *pages(1, 2))
    feed.put(page(1))
    await feed.close()
    assert numbers(path) == [1, 2]


async def test_closed_on_the_way_it_writes_what_it_was_given_and_looks_for_nothing(
    feed: Feed, store: FaultyStore, path: Path
) -> None:
    await started(feed)
    await complete(store, *pages(1, 2))
    feed.put(page(1))
    store.calls.clear()
    await feed.close(catch_up=False)
    assert (numbers(path), store.calls["find"], store.calls["stats"]) == ([1], 0, 0)


# ---------------------------------------------------------------- an output that fails


def refuse(*_: object) -> None:
    raise StoreError("disk is full")


async def test_while_the_output_fails_nothing_is_lost_and_it_is_told_once(
    feed: Feed,
    store: FaultyStore,
    clock: ManualClock,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "holdfast.crawl")
    await started(feed)
    await complete(store, *pages(1, 2, 3))
    with monkeypatch.context() as patch:
        patch.setattr(JsonLinesFile, "write", refuse)
        feed.put(page(1))
        clock.advance(1.0)
        await until(lambda: feed._is_resting)
        assert feed.problem == "disk is full"
        for n in range(MOST_WAITING + 1):
            feed.put(page(n))
        assert not feed.is_full, "nothing is kept for an output that takes nothing"
        clock.advance(0.2)
        await until(lambda: feed._tries == 2 and feed._is_resting)
        clock.advance(0.3)
        assert feed._tries == 2, "the second wait is longer"
    clock.advance(0.1)
    await until(lambda: not feed.problem)
    assert numbers(path) == [1, 2, 3]
    assert [one.levelname for one in caplog.records] == ["ERROR", "WARNING"]
    assert "cannot be written: disk is full" in caplog.records[0].getMessage()
    await complete(store, page(4))
    feed.put(page(4))
    clock.advance(1.0)
    await until(lambda: numbers(path) == [1, 2, 3, 4])


async def test_a_page_that_cannot_be_written_as_it_was_given_comes_from_the_store(
    feed: Feed, store: FaultyStore, clock: ManualClock, path: Path
) -> None:
    await started(feed)
    await complete(store, *pages(1, 2))
    feed.put(page(1, object()))
    feed.put(page(2))
    clock.advance(1.0)
    await until(lambda: feed._is_resting)
    assert "object" in feed.problem
    clock.advance(0.2)
    await until(lambda: not feed.problem)
    assert numbers(path) == [1, 2]


async def test_a_store_that_is_away_is_asked_again(
    feed: Feed, store: FaultyStore, clock: ManualClock, path: Path
) -> None:
    await complete(store, *pages(1, 2))
    store.fail("find")
    feed.start()
    await until(lambda: feed._is_resting)
    store.mend()
    clock.advance(0.2)
    await until(lambda: feed._walk is None)
    assert numbers(path) == [1, 2]


async def test_closing_says_what_could_not_be_written_and_the_next_start_has_it(
    feed: Feed, store: FaultyStore, output: Output, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(feed)
    await complete(store, *pages(1, 2))
    feed.put(page(1))
    with monkeypatch.context() as patch:
        patch.setattr(JsonLinesFile, "write", refuse)
        with pytest.raises(StoreError, match="disk is full"):
            await feed.close()
    with closing(open_output(path, CRAWL)) as again:
        assert await reconcile(store, CRAWL, again) == 2
    assert numbers(path) == [1, 2]


async def test_one_that_was_never_started_gives_its_output_back(feed: Feed, path: Path) -> None:
    await feed.close()
    open_output(path, CRAWL).close()
