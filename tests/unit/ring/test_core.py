"""The middle of a ring, turn by turn and without threads: who gets what, who waits, and what is let go."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.errors import ConfigError, RingClosed
from holdfast.ring.core import END, SLEEP, Core, Waiter
from holdfast.ring.lane import Errand, Lane
from tests.unit.ring.rings import core_of, drain, flat, produce


def waiter_of(core: Core, elements: list[Any], offset: int | None = None) -> tuple[Waiter, threading.Event]:
    woken = threading.Event()
    waiter = Waiter(elements, offset, woken.set)
    core.wait(waiter)
    return waiter, woken


def long(n: int, first: int = 0) -> list[int]:
    return list(range(first, first + n))


# ---------------------------------------------------------------- batches


def test_each_consumer_gets_every_element_in_order() -> None:
    one, two = Lane("one", [], 7), Lane("two", [], 1000)
    core = core_of(1024, one, two)
    for n in range(20):
        assert produce(core, [n])
    assert produce(core, long(50, 20))
    assert flat(drain(core, one)) == long(70)
    assert flat(drain(core, two)) == long(70)


def test_no_batch_is_longer_than_the_consumer_wants() -> None:
    lane = Lane("one", [], 7)
    core = core_of(1024, lane)
    produce(core, long(100))
    batches = drain(core, lane)
    assert [len(one) for one in batches] == [7] * 14 + [2]


def test_a_consumer_gets_an_element_when_all_that_come_before_it_have_finished_it() -> None:
    a, b = Lane("a", [], 10), Lane("b", [], 5)
    c = Lane("c", [a, b], 100)
    core = core_of(1024, a, b, c)
    produce(core, long(10))
    assert core.turn(c) is SLEEP
    assert core.turn(a) == long(10)
    assert core.turn(a) is SLEEP, "which finishes what it had"
    assert core.turn(c) is SLEEP, "b has not even begun"
    assert core.turn(b) == long(5)
    assert core.turn(c) is SLEEP, "b is at it"
    assert core.turn(b) == long(5, 5)
    assert core.turn(c) == long(5)
    assert core.turn(b) is SLEEP
    assert core.turn(c) == long(5, 5)


def test_a_consumer_that_waits_for_another_is_woken_by_it_alone() -> None:
    a = Lane("a", [], 10)
    b = Lane("b", [a], 10)
    core = core_of(1024, a, b)
    assert core.turn(b) is SLEEP
    produce(core, [1])
    assert b.is_asleep
    core.turn(a)
    core.turn(a)
    assert not b.is_asleep


# ---------------------------------------------------------------- room


def test_a_full_ring_takes_no_more_until_the_slowest_has_finished_some() -> None:
    fast, slow = Lane("fast", [], 4), Lane("slow", [], 4)
    core = core_of(8, fast, slow)
    assert produce(core, long(8))
    assert not produce(core, [8])
    drain(core, fast)
    assert not produce(core, [8])
    core.turn(slow)
    assert not produce(core, [8]), "it has them in hand, and could need them again"
    core.turn(slow)
    assert produce(core, long(4, 8))
    assert not produce(core, [12])


def test_a_list_that_is_longer_than_the_ring_is_taken_when_the_ring_is_empty() -> None:
    lane = Lane("one", [], 10)
    core = core_of(8, lane)
    produce(core, [0])
    assert not produce(core, long(100, 1))
    assert drain(core, lane) == [[0]]
    assert produce(core, long(100, 1))
    assert not produce(core, [101])
    assert core.look() == (101, 100, 0)
    assert flat(drain(core, lane)) == long(100, 1)
    assert core.look() == (101, 0, 0)


def test_producers_that_wait_are_taken_in_their_order_when_there_is_room() -> None:
    lane = Lane("one", [], 8)
    core = core_of(8, lane)
    produce(core, long(8))
    first, first_woken = waiter_of(core, long(6, 8))
    second, second_woken = waiter_of(core, [14])
    assert not produce(core, [15]), "nobody goes before those who wait"
    core.turn(lane)
    assert not first_woken.is_set()
    assert core.turn(lane) == long(7, 8)
    assert first.is_taken
    assert second.is_taken
    assert first_woken.is_set()
    assert second_woken.is_set()
    assert produce(core, [15])


def test_a_producer_that_waits_no_longer_makes_way_for_a_smaller_one_behind_it() -> None:
    lane = Lane("one", [], 8)
    core = core_of(8, lane)
    produce(core, long(4))
    large, _ = waiter_of(core, long(8))
    small, woken = waiter_of(core, [4])
    assert not woken.is_set()
    core.forget(large)
    assert not large.is_taken
    assert small.is_taken
    assert woken.is_set()
    assert flat(drain(core, lane)) == long(5)


def test_a_producer_of_a_large_ring_waits_for_16_384_elements_and_not_for_half_of_it() -> None:
    lane = Lane("one", [], 1)
    core = core_of(65_536, lane)
    produce(core, list(range(65_536)))
    waiter, woken = waiter_of(core, [0])
    for _ in range(16_384):
        core.turn(lane)
    assert not woken.is_set()
    core.turn(lane)  # which ends the 16,384th
    assert waiter.is_taken
    assert woken.is_set()


def test_a_producer_that_waits_no_longer_is_taken_if_there_is_room_by_then() -> None:
    lane = Lane("one", [], 1)
    core = core_of(8, lane)
    produce(core, long(8))
    waiter, _ = waiter_of(core, [8])
    core.turn(lane)
    core.turn(lane)
    assert not waiter.is_taken, "it is woken when half is free, and not for each element"
    core.forget(waiter)
    assert waiter.is_taken


# ---------------------------------------------------------------- offsets


def test_offsets_may_leave_gaps_and_no_batch_goes_over_one() -> None:
    lane = Lane("one", [], 100)
    core = core_of(1024, lane)
    produce(core, ["a", "b"], 10)
    produce(core, ["c"], 12)
    produce(core, ["d"], 20)
    produce(core, long(40), 100)
    seen = []
    while (got := core.turn(lane)) is not SLEEP:
        seen.append((lane.offset, got))
    assert seen == [(10, ["a", "b", "c"]), (20, ["d"]), (100, long(40))]


def test_a_gap_inside_of_gathered_elements_hands_none_of_them_out_twice() -> None:
    lane = Lane("one", [], 100)
    lane.is_hasty = True
    core = core_of(1024, lane)
    for n in range(60):
        produce(core, [n], n)
    for n in range(60, 90):
        produce(core, [n], n + 1000)
    seen: list[int] = []
    while (got := core.turn(lane)) is not SLEEP:
        seen += got
        assert lane.ahead == []
    assert seen == long(90)


def test_offsets_that_go_back_are_refused() -> None:
    lane = Lane("one", [], 100)
    core = core_of(4, lane)
    produce(core, [1, 2], 10)
    with pytest.raises(ConfigError, match=r"^offset=11: must be at least 12: the offsets of a ring's elements rise$"):
        core.take_in([3], 11)
    waiter_of(core, [3, 4, 5], 12)
    with pytest.raises(ConfigError, match="offset=14: must be at least 15"):
        core.take_in([6], 14)
    with pytest.raises(ConfigError, match="offset=14: must be at least 15"):
        core.wait(Waiter([6], 14, lambda: None))
    assert core.look() == (2, 2, 1)


def test_a_consumer_skips_what_it_did_before() -> None:
    ahead, behind = Lane("ahead", [], 100), Lane("behind", [], 100)
    ahead.skip_to = 25
    core = core_of(1024, ahead, behind)
    for n in range(10, 40, 10):
        produce(core, long(10, n), n)
    assert flat(drain(core, ahead)) == long(15, 25)
    assert flat(drain(core, behind)) == long(30, 10)
    assert core.look() == (30, 0, 0)


@pytest.mark.parametrize("skip_to", [1, 9, 10, 11, 59, 60, 61, 200, 201, 260, 400])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_consumer_that_skips_gets_the_rest_once_whoever_turns_first(skip_to: int, is_first: bool) -> None:
    skips, other = Lane("skips", [], 50), Lane("other", [], 50)
    follower = Lane("follower", [skips], 50)
    skips.skip_to = skip_to
    core = core_of(1024, skips, other, follower)
    got: dict[str, list[int]] = {"skips": [], "other": [], "follower": []}

    def turn_all() -> None:
        for lane in (skips, other, follower) if is_first else (other, follower, skips):
            batches = drain(core, lane)
            assert all(batches), "no batch is empty"
            got[lane.name] += flat(batches)

    everything = []
    for offset, n in ((0, 10), (10, 50), (200, 60), (300, 5), (305, 100)):
        produce(core, long(n, offset), offset)
        everything += long(n, offset)
        turn_all()
    turn_all()
    assert got["skips"] == [one for one in everything if one >= skip_to]
    assert got["other"] == got["follower"] == everything
    assert core.look() == (225, 0, 0)
    assert not any(core.slots._pieces)
    assert not core.slots.head[2]


def test_producers_that_wait_for_a_consumer_that_skips_go_on() -> None:
    lane = Lane("one", [], 4)
    lane.skip_to = 8
    core = core_of(4, lane)
    assert produce(core, long(4), 0)
    waiters = [waiter_of(core, long(4, n), n)[0] for n in (4, 8, 12)]
    assert drain(core, lane) == [long(4, 8), long(4, 12)]
    assert all(one.is_taken for one in waiters)


# ---------------------------------------------------------------- errands, closing


def test_an_errand_comes_before_more_of_the_ring() -> None:
    lane = Lane("one", [], 2)
    core = core_of(8, lane)
    produce(core, [1, 2, 3])
    assert core.turn(lane) == [1, 2]
    future = core.hand(lane, ["letter"])
    errand = core.turn(lane)
    assert isinstance(errand, Errand)
    assert errand.elements == ["letter"]
    assert not future.done()
    assert core.turn(lane) == [3]


def test_closing_tells_those_who_wait_and_lets_consumers_finish() -> None:
    a = Lane("a", [], 100)
    b = Lane("b", [a], 100)
    core = core_of(4, a, b)
    produce(core, long(4))
    waiter, woken = waiter_of(core, [4])
    future = core.hand(b, ["letter"])
    core.close("ring 'one' is closed")
    core.close("closed again")
    assert woken.is_set()
    assert isinstance(waiter.error, RingClosed)
    assert str(waiter.error) == "ring 'one' is closed"
    assert isinstance(future.exception(0), RingClosed)
    refusals: list[Callable[[], object]] = [
        lambda: core.take_in([5], None),
        lambda: core.wait(Waiter([5], None, lambda: None)),
        lambda: core.hand(a, [5]),
    ]
    for refused in refusals:
        with pytest.raises(RingClosed, match=r"^ring 'one' is closed$"):
            refused()
    assert not core.offer([5])
    assert not core.offer(long(40))
    assert core.turn(b) is SLEEP
    assert core.turn(a) == long(4)
    assert core.turn(a) is END
    assert core.turn(b) == long(4)
    assert core.turn(b) is END


def test_those_that_come_after_a_consumer_that_died_end_where_it_did() -> None:
    a = Lane("a", [], 2)
    b = Lane("b", [a], 100)
    core = core_of(8, a, b)
    produce(core, long(6))
    core.turn(a)
    core.turn(a)
    core.close("a cannot go on")
    core.ended(a)
    assert drain(core, b) == [[0, 1]]
    assert core.turn(b) is END


def test_the_end_is_told_once_the_last_consumer_has_ended() -> None:
    a, b = Lane("a", [], 2), Lane("b", [], 2)
    core = core_of(8, a, b)
    told: list[str] = []
    core.tell_end(lambda: told.append("early"))
    core.ended(a)
    assert told == []
    core.ended(b)
    core.tell_end(lambda: told.append("late"))
    assert told == ["early", "late"]


def test_elements_are_let_go_when_the_last_consumer_has_finished_them() -> None:
    a = Lane("a", [], 100)
    b = Lane("b", [a], 100)
    core = core_of(64, a, b)
    produce(core, long(40))
    produce(core, [40])
    drain(core, a)
    assert any(core.slots._pieces)
    drain(core, b)
    assert not any(core.slots._pieces)
    assert not core.slots.head[2]
