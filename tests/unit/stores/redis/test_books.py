"""What is written beside the jobs agrees with them, and goes with them."""

from __future__ import annotations

import pytest
import redis

from holdfast.clock import new_token
from holdfast.errors import ConfigError, StoreError
from holdfast.ports import Claim, Count, Exchange, Note, Operation, Settlement, ValueChange, WorkerRecord
from holdfast.stores.redis import RedisStore
from holdfast.stores.redis.exchange import exchange_call
from holdfast.stores.redis.workers import reclaim_call
from holdfast.testing.store_suite import claim, enqueue, new_job, settle
from holdfast.testing.store_suite.steps import bury, failed_attempt
from holdfast.types import Change
from tests.unit.stores.noting import end_with_notes
from tests.unit.stores.redis.conftest import CheckBooks

DAY_S = 86_400.0


async def live_a_little(store: RedisStore, check_books: CheckBooks) -> list[str]:
    """A bit of everything that can happen to jobs."""
    ids = await enqueue(
        store,
        *(
            new_job(task="ab"[n % 2], queue="xy"[n % 2], gates=(f"g{n % 3}",), priority=n % 3, idempotency_key=f"k{n}")
            for n in range(14)
        ),
        *(new_job(delay_s=600.0) for _ in range(3)),
    )
    check_books()
    changes = (Change.RETRY, Change.PARK, Change.RELEASE, Change.COMPLETE, Change.FAIL, Change.DISCARD)
    deliveries = await claim(store, limit=12)
    check_books()
    note = Note(id=deliveries[0].id, token=deliveries[0].token, checkpoint=b"1", step=("s", b"2"), progress=0.5)
    await store.note(note)
    for delivery, change in zip(deliveries[:6], changes, strict=True):
        options = {"keep_s": 10.0, "reason": "why", "delay_s": 60.0 if change is Change.PARK else 0.0}
        await settle(store, delivery, change, attempt=failed_attempt(delivery, outcome=change), **options)
        check_books()
    await bury(store, deliveries[6], keep_s=10.0)
    await store.change(Operation(change=Change.REPLAY, ids=[deliveries[6].id], payload=b"[1]", replay="r"))
    check_books()
    await store.change(Operation(change=Change.CANCEL, ids=[deliveries[7].id, ids[-1], ids[12]], keep_s=5.0))
    check_books()
    store.clock_offset_s += 100.0
    await store.heartbeat(WorkerRecord(id="w2", lease_s=60.0))
    orphans = await store.reclaim("w2", new_token(), 2)
    check_books()
    assert len(orphans) == 2
    await settle(store, orphans[0], Change.RELEASE, is_refunded=True)
    check_books()
    return ids


async def test_the_books_agree_whatever_happens(store: RedisStore, check_books: CheckBooks) -> None:
    await live_a_little(store, check_books)
    assert await store.prune(100) > 0
    check_books()
    await claim(store, worker="w2")
    check_books()


async def test_nothing_is_left_of_jobs_that_are_gone(
    store: RedisStore, check_books: CheckBooks, client: redis.Redis, prefix: str
) -> None:
    ids = await live_a_little(store, check_books)
    await store.exchange(Exchange(changes=[ValueChange("v", 0, b"1")], counts=[Count(5, "a", "completed", 1)]))
    (value,) = (await store.exchange(Exchange())).values
    await store.exchange(Exchange(changes=[ValueChange("v", value.version, None)]))
    await store.heartbeat(WorkerRecord(id="w2", lease_s=0))
    await store.change(Operation(change=Change.CANCEL, ids=ids))
    await store.change(Operation(change=Change.REMOVE, ids=ids))
    check_books()
    store.clock_offset_s += 9 * DAY_S
    for _ in range(3):
        await store.prune(100)
    left = {key for key in client.scan_iter(f"{{{prefix}}}:*") if int(client.ttl(key)) < 0}
    assert left == {f"{{{prefix}}}:meta".encode()}, "all else ends by itself"


async def test_nothing_is_left_of_the_notes_of_what_completes(
    store: RedisStore, check_books: CheckBooks, client: redis.Redis, prefix: str
) -> None:
    *completed, letter = await end_with_notes(store, check_books)
    assert client.hlen(f"{{{prefix}}}:more:{letter}") > 3
    await store.change(Operation(change=Change.REMOVE, ids=[*completed, letter]))
    check_books()
    assert list(client.scan_iter(f"{{{prefix}}}:more:*")) == []


async def test_a_pruned_batch_may_be_larger_than_the_limit(store: RedisStore, check_books: CheckBooks) -> None:
    await enqueue(store, *(new_job() for _ in range(30)))
    settlements = [
        Settlement(id=one.id, token=one.token, change=Change.COMPLETE, keep_s=1.0) for one in await claim(store)
    ]
    await store.exchange(Exchange(settlements=settlements))
    store.clock_offset_s += 10.0
    assert [await store.prune(12) for _ in range(4)] == [12, 12, 6, 0]
    check_books()


async def test_a_letter_that_was_replayed_and_buried_again_is_kept_for_its_new_time(store: RedisStore) -> None:
    await enqueue(store, new_job(), new_job())
    letters = [
        Settlement(id=one.id, token=one.token, change=Change.BURY, keep_s=10.0) for one in await claim(store, limit=2)
    ]
    await store.exchange(Exchange(settlements=letters))
    await store.change(Operation(change=Change.REPLAY, ids=[letters[0].id]))
    (again,) = await claim(store)
    await bury(store, again, keep_s=1000.0)
    store.clock_offset_s += 20.0
    assert await store.prune(10) == 1
    assert (await store.get([again.id]))[0] is not None
    store.clock_offset_s += 1000.0
    assert await store.prune(10) == 1


async def test_thousands_go_in_one_call(store: RedisStore, check_books: CheckBooks) -> None:
    """More than Lua takes as arguments at once."""
    ids = await enqueue(store, *(new_job(idempotency_key=str(n)) for n in range(9000)))
    deliveries = await claim(store, limit=9000)
    assert [one.id for one in deliveries] == ids
    settlements = [Settlement(id=one.id, token=one.token, change=Change.RETRY) for one in deliveries]
    assert all((await store.exchange(Exchange(settlements=settlements))).settled)
    check_books()
    assert len(await claim(store, limit=9000)) == 9000


async def test_priorities_of_any_size_have_their_order(store: RedisStore) -> None:
    priorities = [0, 2**62, -(2**62), 2**40, -(2**40), 1, -1, 2**51]
    ids = await enqueue(store, *(new_job(priority=priority) for priority in priorities))
    expected = [one for _, one in sorted(zip(priorities, ids, strict=True), reverse=True)]
    assert [one.id for one in await claim(store)] == expected
    records = await store.get(ids)
    assert [record.priority for record in records if record] == priorities


async def test_counts_are_added_once_when_their_answer_was_lost(store: RedisStore) -> None:
    """The same call, sent again."""
    opened = store._open()
    call = exchange_call(Exchange(counts=[Count(5, "a", "completed", 2)]), opened.texts)
    for _ in range(2):
        await opened.exchanges.run(call)
    assert [count.n for count in (await store.stats(since_minute=0)).counts] == [2]


async def test_a_count_that_cannot_be_added_leaves_nothing_by_half(store: RedisStore, check_books: CheckBooks) -> None:
    await enqueue(store)
    (delivery,) = await claim(store)
    settlement = Settlement(id=delivery.id, token=delivery.token, change=Change.RETRY, reason="why")
    with pytest.raises(StoreError, match="not an integer"):
        await store.exchange(Exchange(settlements=[settlement], counts=[Count(5, "a", "completed", 2**62)]))
    check_books()
    assert await settle(store, delivery, Change.RETRY), "it took effect"


async def test_a_claim_that_was_held_up_on_its_way_brings_nothing_that_nobody_waits_for(
    store: RedisStore, check_books: CheckBooks
) -> None:
    """Its answer was given up and asked for again; what that brought is settled, and forgotten with the next claim."""
    await enqueue(store, *(new_job() for _ in range(4)))
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    opened = store._open()
    first, second = (
        exchange_call(Exchange(claim=Claim(worker="w", token=new_token(), limit=2)), opened.texts) for _ in range(2)
    )
    brought = (await opened.exchanges.run(first)).deliveries
    settlements = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in brought]
    await store.exchange(Exchange(settlements=settlements))
    assert len((await opened.exchanges.run(second)).deliveries) == 2
    await enqueue(store)
    assert list((await opened.exchanges.run(first)).deliveries) == []
    check_books()
    assert len(await claim(store, worker="w")) == 1


async def test_a_reclaim_that_was_held_up_on_its_way_takes_no_orphans(store: RedisStore) -> None:
    opened = store._open()
    await store.heartbeat(WorkerRecord(id="w2", lease_s=600.0))
    calls = [reclaim_call("w2", new_token(), 10, opened.texts) for _ in range(2)]
    for call in calls:
        assert await opened.people.ask(lambda connection, call=call: connection.run(call)) == []  # type: ignore[misc]
    await enqueue(store)
    await claim(store, worker="w1")
    store.clock_offset_s += 100.0
    assert await opened.people.ask(lambda connection: connection.run(calls[0])) == []
    assert len(await store.reclaim("w2", new_token(), 10)) == 1


async def test_a_clock_that_goes_back_keeps_no_dead_worker_alive(store: RedisStore) -> None:
    await enqueue(store)
    await claim(store, worker="w1")
    for _ in range(2):
        store.clock_offset_s -= 3600.0
        await store.heartbeat(WorkerRecord(id="w2", lease_s=600.0))
        assert await store.reclaim("w2", new_token(), 10) == [], "it has a whole lease from now on"
    store.clock_offset_s += 50.0
    assert await store.reclaim("w2", new_token(), 10) == []
    store.clock_offset_s += 20.0
    (orphan,) = await store.reclaim("w2", new_token(), 10)
    assert orphan.worker == "w1"
    assert (await store.heartbeat(WorkerRecord(id="w2", lease_s=600.0))).is_alive


async def test_beyond_so_many_lanes_a_claim_asks_to_come_again_soon(store: RedisStore) -> None:
    ids = await enqueue(store, *(new_job(gates=(f"site-{n}",)) for n in range(300)))
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got: list[str] = []
    for caps in ({}, {"site-7": 0}, {}):
        wish = Claim(worker="w", token=new_token(), limit=1000, caps=caps)
        answer = await store.exchange(Exchange(claim=wish))
        got += [one.id for one in answer.deliveries]
        if len(got) == 256:
            assert answer.next_due_s is not None
            assert answer.next_due_s <= 0.02
    assert sorted(got) == sorted(ids)


async def test_too_many_jobs_for_one_call_are_refused(store: RedisStore) -> None:
    with pytest.raises(ConfigError, match="at most 100000"):
        await store.enqueue([new_job()] * 100_001)


async def test_a_worker_leaves_one_claim_behind_however_many_it_has_settled(
    store: RedisStore, check_books: CheckBooks, client: redis.Redis, prefix: str
) -> None:
    for _ in range(3):
        await enqueue(store, new_job(), new_job())
        for delivery in await claim(store, limit=2):
            assert await settle(store, delivery, Change.COMPLETE)
        check_books()
    assert len(list(client.scan_iter(f"{{{prefix}}}:claim:*"))) == 1, "the latest may be sent again"


async def test_an_open_lane_behind_a_thousand_shut_ones_has_its_turn(store: RedisStore) -> None:
    await enqueue(store, *(new_job(gates=("shut", f"site-{n}")) for n in range(1100)))
    (open_,) = await enqueue(store, new_job())
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got: list[str] = []
    for _ in range(2):
        wish = Claim(worker="w", token=new_token(), limit=10, caps={"shut": 0})
        got += [one.id for one in (await store.exchange(Exchange(claim=wish))).deliveries]
    assert got == [open_]


async def test_once_all_lanes_were_found_shut_nobody_asks_again_soon(store: RedisStore) -> None:
    """Or idle workers would ask 50 times a second each."""
    await enqueue(store, *(new_job(gates=("shut", f"site-{n}")) for n in range(2500)))
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))

    async def next_due_s() -> float | None:
        wish = Claim(worker="w", token=new_token(), limit=10, caps={"shut": 0})
        return (await store.exchange(Exchange(claim=wish))).next_due_s

    for _ in range(2):
        assert [await next_due_s() is None for _ in range(3)] == [False, False, True]


async def test_the_oldest_of_the_lowest_priority_of_all_is_told(store: RedisStore) -> None:
    await enqueue(store, *(new_job(priority=-(2**62), queue=f"q{n}") for n in range(3)))
    await enqueue(store, new_job(priority=1, queue="q2"))
    assert set((await store.stats()).oldest_ready_at) == {"q0", "q1", "q2"}


async def test_a_worker_that_is_late_itself_does_not_give_itself_up(store: RedisStore) -> None:
    await enqueue(store)
    (delivery,) = await claim(store, worker="w1")
    store.clock_offset_s += 1000.0
    assert await store.reclaim("w1", new_token(), 10) == []
    assert await settle(store, delivery, Change.COMPLETE)
    assert (await store.heartbeat(WorkerRecord(id="w1", lease_s=60.0))).is_alive
