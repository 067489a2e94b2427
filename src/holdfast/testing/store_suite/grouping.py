# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises of groups: that they follow every letter that comes or goes."""

from __future__ import annotations

import asyncio

from holdfast.ports import Exchange, Query, Settlement, Store
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    Advance,
    bury,
    change,
    claim,
    dead_letter,
    enqueue,
    failed_attempt,
    is_near,
    new_job,
    now_of,
    settle,
    start,
)
from holdfast.types import Change, FailureType, Group

HOURS = 24


async def counts(store: Store, query: Query | None = None) -> dict[str, int]:
    """How many letters there are of each fingerprint."""
    return {group.fingerprint: group.count for group in await store.groups(query or Query())}


async def only_group(store: Store, query: Query | None = None) -> Group:
    """The one group there is."""
    (group,) = await store.groups(query or Query())
    return group


class LetterCountSuite:
    """Groups are counted as letters come and go."""

    async def test_a_count_follows_its_letters_until_the_last_one_is_gone(self, store: Store, advance: Advance) -> None:
        for n in range(4):
            await bury(store, await start(store), keep_s=10.0 if n == 0 else None, fingerprint="1:a")
        await bury(store, await start(store), fingerprint="1:b")
        ids = [record.id for record in (await store.find(Query(fingerprint="1:a"))).items]
        assert await counts(store) == {"1:a": 4, "1:b": 1}
        await change(store, Change.REPLAY, ids[0])
        assert await counts(store) == {"1:a": 3, "1:b": 1}
        (again,) = await claim(store)
        await bury(store, again, fingerprint="1:c")
        assert await counts(store) == {"1:a": 3, "1:b": 1, "1:c": 1}
        await change(store, Change.REMOVE, ids[0], ids[1], ids[1], "nobody")
        assert await counts(store) == {"1:a": 2, "1:b": 1}
        advance(20)
        assert await store.prune(100) == 1
        assert await counts(store) == {"1:a": 1, "1:b": 1}
        await change(store, Change.REPLAY, ids[2])
        assert await counts(store) == {"1:b": 1}

    async def test_a_settlement_that_is_sent_twice_counts_once(self, store: Store) -> None:
        delivery = await start(store)
        for _ in range(2):
            await bury(store, delivery)
        assert (await only_group(store)).count == 1
        await change(store, Change.REPLAY, delivery.id)
        await change(store, Change.REPLAY, delivery.id)
        await bury(store, delivery)  # of the lease that is over
        assert await counts(store) == {}

    async def test_a_stale_holder_counts_nothing(self, store: Store) -> None:
        delivery = await start(store)
        await change(store, Change.CANCEL, delivery.id)
        await bury(store, delivery)
        assert await counts(store) == {}

    async def test_what_is_settled_together_is_counted_by_its_own_cause(self, store: Store) -> None:
        await enqueue(store, *(new_job(task="ab"[n % 2]) for n in range(6)))
        deliveries = await claim(store)
        settlements = [
            Settlement(
                id=one.id,
                token=one.token,
                change=Change.COMPLETE if n == 5 else Change.BURY,
                attempt=None if n == 5 else failed_attempt(one, fingerprint=f"1:{n % 3}"),
            )
            for n, one in enumerate(deliveries)
        ]
        await store.exchange(Exchange(settlements=settlements))
        assert await counts(store) == {"1:0": 2, "1:1": 2, "1:2": 1}
        assert sum((await counts(store, Query(task="a"))).values()) == 3

    async def test_two_workers_at_once_lose_no_letter(self, store: Store) -> None:
        await enqueue(store, *(new_job(tenant=f"t{n % 3}") for n in range(40)))
        halves = [await claim(store, limit=20, worker=worker) for worker in ("w1", "w2")]

        async def bury_each(worker: int) -> None:
            for n, one in enumerate(halves[worker]):
                await bury(store, one, fingerprint=f"1:{n % 4}")

        await asyncio.gather(bury_each(0), bury_each(1))
        assert await counts(store) == {f"1:{n}": 10 for n in range(4)}
        ids = [one.id for half in halves for one in half]
        await asyncio.gather(*(change(store, Change.REPLAY, *ids[place::2]) for place in (0, 1, 0)))
        assert await counts(store) == {}

    async def test_a_letter_without_a_failure_is_of_its_latest_one(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, attempt=failed_attempt(delivery, fingerprint="1:before"))
        (again,) = await claim(store)
        await settle(store, again, Change.BURY, reason="enough")
        never_failed = await start(store)
        await settle(store, never_failed, Change.BURY, reason="nobody wants it")
        assert await counts(store) == {"1:before": 1, "": 1}
        await change(store, Change.REMOVE, delivery.id, never_failed.id)
        assert await counts(store) == {}

    async def test_a_letter_with_an_edited_payload_is_counted_as_before(self, store: Store) -> None:
        letter = await dead_letter(store, payload=b'{"n": 1}')
        await change(store, Change.REPLAY, letter, payload=b'{"n": 2}')
        (again,) = await claim(store)
        assert again.payload == b'{"n": 2}'
        await bury(store, again)
        group = await only_group(store)
        assert (group.count, group.sample_id) == (1, letter)


class GroupFactSuite:
    """What a group says of its letters."""

    async def test_the_tenants_are_told_by_name_without_the_empty_one(self, store: Store) -> None:
        for tenant in ("globex", "", "acme", "globex", "a\x00b"):
            await dead_letter(store, tenant=tenant)
        assert (await only_group(store)).tenants == ("a\x00b", "acme", "globex")
        assert (await only_group(store, Query(tenant=""))).tenants == ()
        assert (await only_group(store, Query(tenant="a\x00b"))).count == 1

    async def test_at_most_twenty_tenants_are_told(self, store: Store) -> None:
        await enqueue(store, *(new_job(tenant=f"t{n:02}") for n in range(23)))
        for one in await claim(store):
            await bury(store, one)
        group = await only_group(store)
        assert (group.count, group.tenants) == (23, tuple(f"t{n:02}" for n in range(20)))

    async def test_the_hours_are_those_in_which_letters_were_given_up(self, store: Store, advance: Advance) -> None:
        advance(HOUR_S - await now_of(store) % HOUR_S + 60)  # a minute into an hour
        letters = []
        for wait_h in (0, 2, 0, 22):
            advance(wait_h * HOUR_S)
            letters.append(await dead_letter(store))
        assert await _hours(store) == {0: 1, 22: 2}, "the first one is longer ago than a day"
        assert (await only_group(store)).count == 4
        await change(store, Change.REPLAY, letters[1])
        (again,) = await claim(store)
        await bury(store, again)
        assert await _hours(store) == {0: 2, 22: 1}
        await change(store, Change.REMOVE, letters[0], letters[2])
        assert await _hours(store) == {0: 2}
        advance(HOUR_S * 30)
        await store.prune(10)
        assert (await _hours(store), (await only_group(store)).count) == ({}, 2)
        await change(store, Change.REMOVE, letters[1])
        assert (await _hours(store), (await only_group(store)).count) == ({}, 1)

    async def test_times_count_only_the_letters_between_them(self, store: Store, advance: Advance) -> None:
        begun = await now_of(store)
        for n in range(3):
            await bury(store, await start(store, task="ab"[n % 2]), fingerprint=f"1:{n % 2}")
            advance(HOUR_S)
        middle = begun + HOUR_S * 0.5
        assert await counts(store, Query(since=middle)) == {"1:0": 1, "1:1": 1}
        assert await counts(store, Query(until=middle)) == {"1:0": 1}
        assert await counts(store, Query(since=middle, until=begun + HOUR_S * 1.5)) == {"1:1": 1}
        assert await counts(store, Query(since=middle, task="a")) == {"1:0": 1}
        assert await counts(store, Query(since=begun + HOUR_S * 9)) == {}
        group = await only_group(store, Query(since=middle, fingerprint="1:0"))
        assert is_near(group.first_at, begun + HOUR_S * 2)
        assert is_near(group.last_at, begun + HOUR_S * 2)
        assert sum(group.hours) == 1
        whole = await store.groups(Query(since=begun - 1, until=begun + HOUR_S * 99))
        assert whole == await store.groups(Query())

    async def test_a_time_takes_its_first_instant_and_not_its_last(self, store: Store) -> None:
        await dead_letter(store)
        at = (await only_group(store)).last_at
        assert await counts(store, Query(since=at)) == {"1:dead-line": 1}
        assert await counts(store, Query(until=at)) == {}

    async def test_each_filter_counts_its_own(self, store: Store) -> None:
        first = await start(store, task="a", queue="x", tenant="acme", user="ada", project="p")
        await bury(store, first, failure_type=FailureType.SYSTEM, fingerprint="1:x")
        for _ in range(2):
            await dead_letter(store, task="b", queue="y")
        filters = {"task": "a", "queue": "x", "tenant": "acme", "user": "ada", "project": "p", "fingerprint": "1:x"}
        for name, value in filters.items():
            assert await counts(store, Query(**{name: value})) == {"1:x": 1}, name  # type: ignore[arg-type]
            assert await counts(store, Query(**{name: value + "x"})) == {}, name  # type: ignore[arg-type]
        assert await counts(store, Query(failure_type=FailureType.SYSTEM)) == {"1:x": 1}
        assert await counts(store, Query(task="a", queue="y")) == {}

    async def test_the_sample_is_the_letter_given_up_last(self, store: Store, advance: Advance) -> None:
        older, younger = await enqueue(store, new_job(), new_job())
        first, second = await claim(store)
        await bury(store, second, message="before")
        advance(HOUR_S)
        await bury(store, first, message="after")
        group = await only_group(store)
        assert (first.id, second.id) == (older, younger)
        assert (group.sample_id, group.message) == (older, "after")


async def _hours(store: Store) -> dict[int, int]:
    """By how many hours ago: how many letters of the only group."""
    hours = (await only_group(store)).hours
    assert len(hours) == HOURS
    return {HOURS - 1 - place: n for place, n in enumerate(hours) if n}
