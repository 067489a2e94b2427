"""A crawl is removed with all that is stored of it, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import App, ConfigError
from holdfast.crawl.exporting import export_items
from holdfast.crawl.removing import remove_crawl
from holdfast.errors import HoldfastError, NotFound
from holdfast.ports import Claim, Exchange, Settlement, ValueChange
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.page_gates import breaker_name
from holdfast.runtime.shared.names import breaker_gate
from holdfast.runtime.this_process import process_mark
from holdfast.types import Change, JobState
from tests.unit.crawled import begun, crawl_report, crawling, page, page_letter

URLS = [f"https://example.org/{n}" for n in range(12)]


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/crawl.db")
    yield app
    app.close()


async def fill(app: App, name: str = "shop") -> None:
    """A crawl of twelve pages: three are dead letters, two are done, one runs, six wait; and a breaker is open."""
    store = app.store
    await begun(app, name, URLS[0])
    await store.enqueue([page(name, url) for url in URLS[:9]])
    await store.enqueue([page_letter(name, url) for url in URLS[9:]])
    worker = await crawling(app, crawl_report(name))
    claim = Claim(worker=worker.id, token=b"t" * 16, limit=3, queues=(queue_of(name),))
    claimed = (await store.exchange(Exchange(claim=claim))).deliveries
    done = [
        Settlement(id=one.id, token=one.token, change=Change.COMPLETE, keep_s=600.0, result=b'{"items":[{"n":1}]}')
        for one in claimed[:2]
    ]
    changes = [
        ValueChange(breaker_gate(breaker_name(name, "example.org")), 0, b"{}"),
        ValueChange(f"crawl:{name}/hold/example.org", 0, b'{"until":1}'),
    ]
    await store.exchange(Exchange(settlements=done, changes=changes))
    await store.heartbeat(type(worker)(id=worker.id, lease_s=0.0))


async def kept(app: App) -> list[str]:
    reply = await app.store.exchange(Exchange())
    return sorted(one.key for one in reply.values if one.data is not None)


def test_everything_of_a_crawl_goes_and_nothing_of_others(app: App) -> None:
    async def act() -> None:
        await fill(app)
        await begun(app, "shop2", URLS[0])
        await app.store.enqueue([page("shop2", URLS[0])])
        await app.store.exchange(Exchange(changes=[ValueChange(breaker_gate("shop2/example.org"), 0, b"{}")]))
        told: list[int] = []
        assert await remove_crawl(app.store, "shop", on_progress=told.append) == 12
        assert told[-1] == 12
        assert await kept(app) == ["breaker:shop2/example.org", "crawl:shop2"]
        (left,) = [tally for tally in (await app.store.stats()).tallies if tally.n]
        assert (left.queue, left.state, left.n) == ("crawl:shop2", JobState.QUEUED, 1)

    app.bridge.run(act())


def test_a_crawl_with_a_process_on_it_is_left_alone(app: App) -> None:
    async def act() -> None:
        await fill(app)
        await crawling(app, crawl_report("shop"))
        before = await kept(app)
        with pytest.raises(HoldfastError, match="the crawl shop runs in process mill 7: stop it first"):
            await remove_crawl(app.store, "shop")
        assert await kept(app) == before
        assert sum(tally.n for tally in (await app.store.stats()).tallies) == 12

    app.bridge.run(act())


@pytest.mark.parametrize("is_lease_over", [True, False])
def test_a_crawl_whose_process_was_killed_can_be_removed_though_no_worker_is_there_to_notice(
    app: App, is_lease_over: bool
) -> None:
    async def act() -> None:
        await begun(app, "shop", URLS[0])
        await app.store.enqueue([page("shop", url) for url in URLS])
        gone = "" if is_lease_over else process_mark() + "0"  # another start: a process that is not there any more
        worker = await crawling(app, crawl_report("shop"), lease_s=0.001 if is_lease_over else 600.0, process=gone)
        claim = Claim(worker=worker.id, token=b"t" * 16, limit=3, queues=(queue_of("shop"),))
        assert len((await app.store.exchange(Exchange(claim=claim))).deliveries) == 3
        if is_lease_over:
            await until_over(app)
        assert (await app.crawls.aget("shop")).state == "stopped"
        assert await remove_crawl(app.store, "shop") == len(URLS)
        assert await kept(app) == []

    app.bridge.run(act())


async def until_over(app: App) -> None:
    """Wait until the store's clock is past a lease of a millisecond."""
    began = (await app.store.stats()).now
    while (await app.store.stats()).now <= began + 0.001:
        pass


def test_one_that_is_not_there_is_said_to_be_not_there(app: App) -> None:
    with pytest.raises(NotFound, match="there is no crawl 'shop'"):
        app.bridge.run(remove_crawl(app.store, "shop"))


def test_a_removal_that_was_interrupted_is_ended_by_the_next(app: App) -> None:
    async def act() -> None:
        await fill(app)

        def interrupt(_: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await remove_crawl(app.store, "shop", on_progress=interrupt)
        assert "crawl:shop" in await kept(app)  # so that it is still listed
        await remove_crawl(app.store, "shop")
        assert await kept(app) == []

    app.bridge.run(act())


# ---------------------------------------------------------------- exporting


def test_an_export_has_every_item_once_however_often_it_is_made(app: App, tmp_path: Path) -> None:
    async def act() -> None:
        await fill(app)
        path = tmp_path / "items.jsonl"
        first = await export_items(app.store, "shop", path)
        assert (first.pages, first.new, first.file) == (2, 2, str(path))
        assert path.read_text() == '{"n":1}\n' * 2
        again = await export_items(app.store, "shop", path)
        assert (again.pages, again.new) == (2, 0)
        assert path.read_text() == '{"n":1}\n' * 2

    app.bridge.run(act())


def test_a_file_of_an_earlier_crawl_of_the_same_name_is_refused(app: App, tmp_path: Path) -> None:
    async def act() -> None:
        await fill(app)
        await export_items(app.store, "shop", tmp_path / "items.jsonl")
        await remove_crawl(app.store, "shop")
        with pytest.raises(NotFound, match="there is no crawl 'shop'"):
            await export_items(app.store, "shop", tmp_path / "items.jsonl")
        await begun(app, "shop", URLS[0], started_at=2000.0)
        with pytest.raises(ConfigError, match="an earlier crawl 'shop', which was removed"):
            await export_items(app.store, "shop", tmp_path / "items.jsonl")

    app.bridge.run(act())
