from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from holdfast.crawl import frontier as module
from holdfast.crawl.frontier import Found, Frontier, new_page
from holdfast.crawl.urls import page_id
from holdfast.ports import Claim, Enqueued, Exchange, Query, WorkerRecord
from holdfast.runtime.page_gates import SHARES, gates_of, share_of
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import JobState, NewJob

pytestmark = pytest.mark.anyio
A, B, C = (f"https://example.org/{name}" for name in "abc")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def frontier(store: MemoryStore, *, most_pages: int | None = None) -> Frontier:
    return Frontier(store, "shop", ManualClock(), most_pages=most_pages)


async def stored(store: MemoryStore) -> list[str]:
    page = await store.find(Query(task="crawl:shop", limit=100))
    return [msgspec.json.decode(record.payload)["url"] for record in reversed(page.items)]


async def test_a_url_is_one_page_however_often_and_by_whomever_it_is_found(store: MemoryStore) -> None:
    one, other = frontier(store), frontier(store)
    assert await one.add([Found(A), Found(B), Found(A)]) == 2
    assert await other.add([Found(B), Found(C)]) == 1
    assert await one.add([Found(C, depth=7)]) == 0
    assert await stored(store) == [A, B, C]


async def test_a_page_that_is_done_is_not_taken_again(store: MemoryStore) -> None:
    await frontier(store).add([Found(A)])
    await store.heartbeat(WorkerRecord(id="w", lease_s=10.0))
    claim = Claim(worker="w", token=b"t" * 16, limit=1)
    (page,) = (await store.exchange(Exchange(claim=claim))).deliveries
    from holdfast.ports import Settlement
    from holdfast.types import Change

    done = Settlement(id=page.id, token=page.token, change=Change.COMPLETE, result=b"{}", keep_s=1000.0)
    await store.exchange(Exchange(settlements=[done]))
    assert await frontier(store).add([Found(A)]) == 0
    (record,) = await store.get([page.id])
    assert record is not None
    assert record.state is JobState.COMPLETED


async def test_no_more_are_taken_than_the_crawl_may_have(store: MemoryStore) -> None:
    limited = frontier(store, most_pages=2)
    assert await limited.add([Found(A), Found(B), Found(C)]) == 2
    assert await limited.add([Found(C)]) == 0
    assert limited.known == 2


async def test_what_is_remembered_is_bounded(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEEN", 10)
    small = frontier(store)
    urls = [f"https://example.org/{n}" for n in range(50)]
    await small.add([Found(url) for url in urls])
    assert [small.is_new(url) for url in urls] == [True] * 40 + [False] * 10
    assert await small.add([Found(url) for url in urls]) == 0, "the store knows them all the same"


async def test_pages_of_another_crawl_are_others(store: MemoryStore) -> None:
    await frontier(store).add([Found(A)])
    assert await Frontier(store, "news", ManualClock()).add([Found(A)]) == 1


async def test_no_ordinary_worker_can_claim_a_page(store: MemoryStore) -> None:
    await frontier(store).add([Found(A)])
    await store.heartbeat(WorkerRecord(id="w", lease_s=10.0))
    claim = Claim(worker="w", token=b"t" * 16, limit=1, caps={"crawl": 0})
    assert not (await store.exchange(Exchange(claim=claim))).deliveries


def test_a_page_says_all_that_its_run_needs() -> None:
    job = new_page("shop", Found(A, 3, B, 5, {"section": "tea"}))
    assert (job.id, job.task, job.queue, job.project, job.priority) == (
        page_id("shop", A),
        "crawl:shop",
        "crawl:shop",
        "example.org",
        5,
    )
    assert msgspec.json.decode(job.payload) == {
        "url": A,
        "depth": 3,
        "referrer": B,
        "priority": 5,
        "data": {"section": "tea"},
    }
    assert set(job.gates) == set(gates_of("shop", "example.org"))


def test_domains_are_spread_over_the_shares() -> None:
    used = {share_of(f"{n}.example.org") for n in range(1000)}
    assert used == set(range(SHARES))


async def test_places_are_not_used_up_by_pages_that_are_known_already(store: MemoryStore) -> None:
    urls = [f"https://example.org/{n}" for n in range(20)]
    await frontier(store).add([Found(url) for url in urls[:10]])
    again = frontier(store, most_pages=13)
    again.known = 10
    assert await again.add([Found(url) for url in urls]) == 3
    assert again.known == 13


async def test_several_pages_at_a_time_take_no_more_than_the_last_places(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue = store.enqueue

    async def takes_a_moment(jobs: Sequence[NewJob]) -> list[Enqueued]:
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run
        return await enqueue(jobs)

    monkeypatch.setattr(store, "enqueue", takes_a_moment)
    limited = frontier(store, most_pages=10)
    found = [[Found(f"https://example.org/{page}/{n}") for n in range(8)] for page in range(6)]
    new = await asyncio.gather(*(limited.add(links) for links in found))
    assert sum(new) == limited.known == len(await stored(store)) == 10


async def test_a_crawl_that_has_more_than_it_may_takes_none(store: MemoryStore) -> None:
    limited = frontier(store, most_pages=5)
    limited.known = 9
    assert await limited.add([Found(f"https://example.org/{n}") for n in range(20)]) == 0
