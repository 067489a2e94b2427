"""Marks of partitions: who had them, who died, and whose messages are suspects for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest
from msgspec import json

from holdfast.clock import SystemClock
from holdfast.errors import StoreError
from holdfast.ports import Exchange, ValueChange
from holdfast.runtime.streams.marks import Mark, Marks, Span, given_back, key_of, taken
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty import Fault, FaultyStore
from holdfast.types import Place

SPAN = Span(careful=20, extent=1_000)
PLACE = ("orders", 0)
OTHER = ("orders", 1)


def test_whoever_has_it_first_suspects_nobody() -> None:
    assert taken(None, "a", 7, SPAN) == Mark("a", 7)


def test_after_one_death_the_next_holder_is_careful_where_the_dead_one_may_have_been() -> None:
    assert taken(Mark("a", 7), "b", 9, SPAN) == Mark("b", 9, deaths=1, until=1_009)


def test_after_a_second_death_what_was_in_flight_is_suspected() -> None:
    first = Mark("b", 9, deaths=1, until=1_009)
    assert taken(first, "c", 9, SPAN) == Mark("c", 9, deaths=2, reach=29, until=1_009)
    assert taken(first, "c", 500, SPAN) == Mark("c", 500, deaths=2, reach=520, until=1_009)


def test_a_holder_that_got_through_and_died_then_is_the_first_to_die() -> None:
    assert taken(Mark("b", 9, deaths=3, reach=29, until=1_009), "c", 1_009, SPAN) == Mark("c", 1_009, 1, 0, 2_009)


def test_every_further_death_goes_on_suspecting() -> None:
    mark = Mark("a", 0)
    for number, worker in enumerate("bcde", 1):
        mark = taken(mark, worker, 5, SPAN)
        assert mark.deaths == number
    assert mark.reach == 25


def test_what_was_given_back_in_good_order_leaves_no_mark() -> None:
    assert given_back(Mark("a", 7), "a", 9) is None
    assert given_back(Mark("a", 7, 1, 0, 1_007), "a", 1_007) is None


def test_whoever_gives_it_back_before_he_is_through_leaves_his_suspicion() -> None:
    left = given_back(Mark("a", 7, 2, 27, 1_007), "a", 9)
    assert left == Mark("", 9, 2, 27, 1_007)
    assert taken(left, "b", 9, SPAN) == Mark("b", 9, 2, 27, 1_007)
    assert taken(left, "b", 40, SPAN) == Mark("b", 40, 2, 0, 1_007)


def test_nobody_touches_the_mark_of_another() -> None:
    assert given_back(Mark("b", 7), "a", 9) == Mark("b", 7)


def test_a_worker_that_gets_its_own_back_has_not_died() -> None:
    assert taken(Mark("a", 7), "a", 9, SPAN) == Mark("a", 9)
    written = Mark("a", 7, deaths=1, until=1_007)
    assert taken(written, "a", 7, SPAN) is written  # it was written before, and the answer was lost


def test_in_a_topic_that_was_made_anew_nothing_far_away_is_suspected() -> None:
    assert taken(Mark("", 90_000, 2, 90_020, 91_000), "b", 3, SPAN) == Mark("b", 3, 2, 23, 1_003)


# ---- in the store


class Fleet:
    """Workers on one store."""

    def __init__(self) -> None:
        self.inner = MemoryStore(SystemClock())
        self.store = FaultyStore(self.inner, SystemClock())
        self.ends: dict[Place, int] = {PLACE: 100_000, OTHER: 100_000}

    def worker(self, name: str) -> Marks:
        return Marks(self.store, "bill", name, span=SPAN, ends=self._ends_of)

    async def _ends_of(self, topics: Collection[str]) -> Mapping[Place, int]:
        assert topics == {"orders"}
        return self.ends

    async def marks(self) -> dict[str, Mark]:
        values = (await self.inner.exchange(Exchange())).values
        return {one.key: json.decode(one.data, type=Mark) for one in values if one.data is not None}


async def test_all_new_partitions_are_marked_at_once_and_removed_when_they_are_given_back() -> None:
    fleet = Fleet()
    worker = fleet.worker("a")
    worker.take({PLACE: 7, OTHER: 3})
    await worker.write()
    assert await fleet.marks() == {key_of("bill", PLACE): Mark("a", 7), key_of("bill", OTHER): Mark("a", 3)}
    assert not worker.is_behind
    worker.give_back({PLACE: 9})
    await worker.write()
    assert await fleet.marks() == {key_of("bill", OTHER): Mark("a", 3)}
    assert worker.of(PLACE) is None


async def test_workers_that_die_one_after_the_other_leave_suspects_up_to_the_end_of_the_partition() -> None:
    fleet = Fleet()
    fleet.ends = {PLACE: 17, OTHER: 3}
    for name in "abc":
        worker = fleet.worker(name)
        worker.take({PLACE: 7, OTHER: 3})
        await worker.write()
    assert worker.of(PLACE) == Mark("c", 7, deaths=2, reach=17, until=17)
    assert worker.of(OTHER) == Mark("c", 3)  # nothing was there that could have killed anybody


async def test_one_that_was_lost_is_not_taken_for_dead_once_that_is_written() -> None:
    fleet = Fleet()
    first, second = fleet.worker("a"), fleet.worker("b")
    first.take({PLACE: 7})
    await first.write()
    first.lose([PLACE, OTHER])
    await first.write()
    second.take({PLACE: 7})
    await second.write()
    assert second.of(PLACE) == Mark("b", 7)


async def test_whoever_is_late_to_give_it_back_leaves_the_mark_of_the_new_holder_alone() -> None:
    fleet = Fleet()
    first, second = fleet.worker("a"), fleet.worker("b")
    first.take({PLACE: 7})
    await first.write()
    second.take({PLACE: 7})
    await second.write()
    first.lose([PLACE])
    await first.write()
    assert await fleet.marks() == {key_of("bill", PLACE): Mark("b", 7, deaths=1, until=1_007)}


async def test_two_that_write_at_the_same_time_do_not_overwrite_each_other() -> None:
    fleet = Fleet()
    workers = [fleet.worker(name) for name in "abcd"]
    for worker in workers:
        worker.take({PLACE: 7})
    await asyncio.gather(*(worker.write() for worker in workers))
    assert sorted(mark.deaths for worker in workers if (mark := worker.of(PLACE))) == [0, 1, 2, 3]


@pytest.mark.parametrize("fault", ["away", "lost"])
async def test_a_store_that_is_away_is_told_later_and_a_lost_answer_counts_no_death(fault: Fault) -> None:
    fleet = Fleet()
    dead = fleet.worker("z")
    dead.take({PLACE: 7})
    await dead.write()
    worker = fleet.worker("a")
    worker.take({OTHER: 3})
    await worker.write()  # it knows what there is: the answer that gets lost is that to its change
    worker.take({PLACE: 7})
    fleet.store.fail("exchange", fault=fault)
    with pytest.raises(StoreError):
        await worker.write()
    assert worker.is_behind
    fleet.store.mend()
    await worker.write()
    assert worker.of(PLACE) == Mark("a", 7, deaths=1, until=1_007)


async def test_one_that_is_given_back_before_it_was_marked_leaves_nothing() -> None:
    fleet = Fleet()
    worker = fleet.worker("a")
    worker.take({PLACE: 7})
    worker.lose([PLACE])
    await worker.write()
    assert await fleet.marks() == {}
    assert not worker.is_behind


async def test_a_mark_that_cannot_be_read_is_replaced() -> None:
    fleet = Fleet()
    await fleet.inner.exchange(Exchange(changes=[ValueChange(key_of("bill", PLACE), 0, b"[]")]))
    worker = fleet.worker("a")
    worker.take({PLACE: 7})
    await worker.write()
    assert await fleet.marks() == {key_of("bill", PLACE): Mark("a", 7)}
