"""A ring as its users write it: what it takes, what its consumers get, and what it refuses."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import RetryPolicy
from holdfast.errors import ConfigError, HoldfastError, RingClosed, RingFull
from holdfast.ring import Consumer, Disruptor
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Box, Held, Kept, Told, mark_at, place, until


class Doubled(Consumer[int]):
    def __init__(self) -> None:
        self.values: list[int] = []

    def consume(self, elements: Sequence[int]) -> None:
        self.values += [2 * one for one in elements]


# ---------------------------------------------------------------- taking and handing out


def test_consumers_of_every_kind_get_every_element_in_order() -> None:
    ring = Disruptor[int](name="prices")
    doubled, kept, plain, later = Doubled(), Kept(), list[int](), list[int]()

    async def asynchronous(elements: Sequence[int]) -> None:
        later.extend(elements)

    assert ring.register_consumer(doubled) is doubled
    ring.register_consumer(kept)
    ring.register_consumer(plain.extend, name="plain")
    ring.register_consumer(asynchronous)
    for n in range(100):
        ring.produce([n])
    ring.produce(list(range(100, 300)))
    ring.close()
    assert doubled.values == [2 * n for n in range(300)]
    assert kept.elements == plain == later == list(range(300))
    assert kept.closed == 1


@pytest.mark.parametrize(("size", "rounded"), [(1, 1), (2, 2), (3, 4), (1000, 1024), (1024, 1024), (1025, 2048)])
def test_the_size_is_rounded_up_to_a_power_of_two(size: int, rounded: int) -> None:
    assert Disruptor[int](name="prices", size=size).size == rounded


def test_everything_iterable_is_taken_but_what_is_one_thing() -> None:
    kept = Kept()
    with Disruptor[Any](name="prices") as ring:
        ring.register_consumer(kept)
        ring.produce((1, 2))
        ring.produce(n for n in (3, 4))  # type: ignore[arg-type]
        ring.produce({5: None}.keys())  # type: ignore[arg-type]
        ring.produce(tuple(range(6, 50)))
        ring.produce([])
        assert ring.try_produce([])
        for one in ("abc", b"abc", bytearray(b"abc"), {"a": 1}, 7, None):
            with pytest.raises(ConfigError, match=r"^elements=.*: must be a list of elements; for one, \[element\]$"):
                ring.produce(one)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=r"^elements="):
                ring.try_produce(one)  # type: ignore[arg-type]
    assert kept.elements == list(range(1, 50))


def test_several_producers_keep_their_own_order() -> None:
    kept, size, each = Kept(), 64, 3_000
    ring = Disruptor[tuple[int, int]](name="prices", size=size)
    ring.register_consumer(kept, batch_size=50)

    def run(who: int) -> None:
        n = 0
        while n < each:
            some = [(who, n + place) for place in range(1 + n % 70)]
            ring.produce(some)
            n += len(some)

    threads = [threading.Thread(target=run, args=(who,)) for who in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    ring.close()
    for who in range(3):
        own = [n for one, n in kept.elements if one == who]
        assert own == list(range(len(own)))
        assert len(own) >= each


def test_a_list_that_is_longer_than_the_ring_goes_through() -> None:
    kept = Kept()
    with Disruptor[int](name="prices", size=8) as ring:
        ring.register_consumer(kept, batch_size=3)
        for n in range(0, 500, 100):
            ring.produce(list(range(n, n + 100)))
    assert kept.elements == list(range(500))


def test_no_batch_is_longer_than_asked_for() -> None:
    kept = Kept()
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(kept, batch_size=7)
        ring.produce(list(range(100)))
        for n in range(100, 150):
            ring.produce([n])
    assert kept.elements == list(range(150))
    assert max(len(one) for one in kept.batches) == 7


def test_a_consumer_sees_an_element_after_those_before_it_in_a_diamond() -> None:
    ring = Disruptor[int](name="prices", size=256)
    seen: dict[str, set[int]] = {name: set() for name in "abcd"}
    early: list[tuple[str, int]] = []

    def consumer_of(name: str, before: str) -> Callable[[Sequence[int]], None]:
        def consume(elements: Sequence[int]) -> None:
            early.extend((name, one) for one in elements for other in before if one not in seen[other])
            seen[name].update(elements)

        return consume

    a = ring.register_consumer(consumer_of("a", ""), name="a", batch_size=9)
    ring.register_consumer(consumer_of("b", "a"), name="b", after=[a], batch_size=5)
    ring.register_consumer(consumer_of("c", "a"), name="c", after=["a"], batch_size=100)
    ring.register_consumer(consumer_of("d", "abc"), name="d", after=("b", "c"), batch_size=13)
    for n in range(0, 4_000, 40):
        ring.produce(list(range(n, n + 40)))
        ring.produce([n + 100_000])
    ring.close()
    assert early == []
    assert all(len(one) == 4_100 for one in seen.values())


def test_a_list_that_is_changed_after_it_was_produced_stops_the_ring_and_is_told() -> None:
    held = Held()
    ring = Disruptor[int](name="prices")
    ring.register_consumer(held, name="slow")
    ring.produce([0])
    assert held.has_begun.wait(PATIENCE_S)
    elements = list(range(50))
    ring.produce(elements)
    elements.append(50)
    held.go.set()
    until(lambda: ring.stats().is_closing)
    with pytest.raises(RingClosed, match="consumer 'slow' cannot go on: HoldfastError"):
        ring.produce([1])
    with pytest.raises(HoldfastError, match="a list was changed after it was produced"):
        ring.close(PATIENCE_S)


# ---------------------------------------------------------------- a full ring


def test_a_full_ring_holds_producers_back_until_there_is_room() -> None:
    held, has_ended = Held(), threading.Event()
    ring = Disruptor[int](name="prices", size=4)
    ring.register_consumer(held)
    ring.produce([0, 1, 2, 3])

    def run() -> None:
        ring.produce([4, 5])
        has_ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: ring.stats().blocked)
    assert not has_ended.is_set()
    assert not ring.try_produce([6])
    held.go.set()
    assert has_ended.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    ring.close()
    assert held.elements == [0, 1, 2, 3, 4, 5]


def test_a_producer_that_waits_too_long_is_told_that_the_ring_is_full_and_by_whom(clock: ManualClock) -> None:
    held = Held()
    ring = Disruptor[int](name="prices", size=4, clock=clock)
    ring.register_consumer(Kept(), name="quick")
    ring.register_consumer(held, name="slow")
    ring.produce([0, 1, 2, 3])
    with pytest.raises(RingFull, match=r"^ring 'prices' has had no room for 0 s: the slowest is consumer 'slow'$"):
        ring.produce([4], timeout=0)
    told: list[BaseException] = []

    def run() -> None:
        try:
            ring.produce([4], timeout=2.5)
        except RingFull as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: ring.stats().blocked)
    clock.advance(2.5)
    thread.join(PATIENCE_S)
    assert "no room for 2.5 s" in str(told[0])
    assert ring.stats().blocked == 0
    held.go.set()
    ring.close()
    assert held.elements == [0, 1, 2, 3], "nothing of what was refused was taken"


def test_a_consumer_that_produces_into_its_own_full_ring_is_refused_at_once() -> None:
    told: list[BaseException] = []
    was_told = threading.Event()
    ring = Disruptor[int](name="prices", size=2)

    def consume(elements: Sequence[int]) -> None:
        try:
            ring.produce([1, 2, 3])
        except RingFull as error:
            told.append(error)
        was_told.set()

    ring.register_consumer(consume)
    ring.produce([0])
    assert was_told.wait(PATIENCE_S)
    ring.close()
    assert str(told[0]) == "ring 'prices' is full, and its own consumer would wait for itself"


def test_a_consumer_may_produce_into_its_own_ring_while_there_is_room() -> None:
    seen: list[int] = []
    through = threading.Event()
    ring = Disruptor[int](name="prices", size=8)

    def consume(elements: Sequence[int]) -> None:
        seen.extend(elements)
        if elements[-1] < 5:
            ring.produce([elements[-1] + 1])
        else:
            through.set()

    ring.register_consumer(consume)
    ring.produce([0])
    assert through.wait(PATIENCE_S)
    ring.close()
    assert seen == [0, 1, 2, 3, 4, 5]


# ---------------------------------------------------------------- offsets


def test_with_offsets_no_batch_goes_over_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, marks = Kept(), mark_at(12)
    place(monkeypatch, marks=marks)
    with Disruptor[str](name="letters") as ring:
        ring.register_consumer(kept, name="done before", checkpoint="mark")
        ring.register_consumer(all_of := Kept(), name="all")
        assert ring.start_offset == 12
        ring.produce(["k", "l", "m", "n"], offset=10)
        ring.produce(["t"], offset=20)
        assert ring.try_produce(["u"], offset=21)
        ring.produce(["z"], offset=30)
    assert kept.elements == ["m", "n", "t", "u", "z"]
    assert not any({"n", "t"} <= set(batch) or {"u", "z"} <= set(batch) for batch in [*kept.batches, *all_of.batches])
    assert all_of.elements == ["k", "l", "m", "n", "t", "u", "z"]
    assert marks.saved[-1].offset == 31


def test_batches_with_offsets_are_given_up_at_their_own_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    box, held = Box(), Held()

    def consume(elements: Sequence[int]) -> None:
        held.consume(elements)
        raise ValueError("no")

    place(monkeypatch, letters=box)
    ring = Disruptor[int](name="prices")
    ring.register_consumer(consume, batch_size=50, dead_letters="letters")
    ring.produce([-1], offset=0)
    assert held.has_begun.wait(PATIENCE_S)
    for n in range(5):
        ring.produce(list(range(1000 * n, 1000 * n + 40)), offset=1000 + 1000 * n)
    held.go.set()
    ring.close()
    assert [(one.offset, one.elements[0]) for one in box.letters[1:]] == [(1000 + 1000 * n, 1000 * n) for n in range(5)]


def test_offsets_are_given_with_every_call_or_with_none() -> None:
    with Disruptor[int](name="with") as ring:
        ring.register_consumer(Kept())
        ring.produce([1], offset=5)
        with pytest.raises(ConfigError, match="offset=None: give an offset with every call of a ring, or with none"):
            ring.produce([2])
        with pytest.raises(ConfigError, match="offset=5: must be at least 6"):
            ring.produce([2], offset=5)
        for wrong in (-1, 1.5, "1", True, 2**63):
            with pytest.raises(ConfigError, match=r"^offset=.*: must be"):
                ring.produce([2], offset=wrong)  # type: ignore[arg-type]
    with Disruptor[int](name="without") as ring:
        ring.register_consumer(Kept())
        ring.produce([1])
        with pytest.raises(ConfigError, match="offset=7: give an offset with every call of a ring, or with none"):
            ring.produce([2], offset=7)


def test_a_ring_with_checkpoints_needs_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, marks=mark_at(0))
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(Kept(), checkpoint="mark")
        with pytest.raises(ConfigError, match="offset=None: with checkpoints, say where"):
            ring.produce([1])


# ---------------------------------------------------------------- what is refused


def a_consumer(elements: Sequence[Any]) -> None: ...


def a_generator(elements: Sequence[Any]) -> Any:
    yield elements


async def an_async_handler(consumer: Any, elements: Sequence[Any], error: BaseException) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a/b"},
        {"name": 7},
        {"size": 0},
        {"size": 1.5},
        {"size": True},
        {"size": (1 << 24) + 1},
        {"stuck_after": 0},
        {"stuck_after": "1"},
        {"consumer_error_handler": 7},
        {"consumer_error_handler": an_async_handler},
    ],
)
def test_a_wrong_setting_of_a_ring_is_refused_in_one_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as told:
        Disruptor[int](**{"name": "prices", **options})
    assert str(told.value).startswith(f"{next(iter(options))}=")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "options",
    [
        {"consumer": 7},
        {"consumer": Kept},
        {"consumer": a_generator},
        {"name": "a/b"},
        {"name": ""},
        {"after": "one"},
        {"after": ["unknown"]},
        {"after": [Kept()]},
        {"retry": 3},
        {"retry": RetryPolicy(attempt_timeout=1.0)},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"dead_letters": 7},
        {"dead_letters": ""},
        {"dead_letters": True},
        {"encode": 7},
        {"decode": "x"},
        {"checkpoint": 7},
        {"checkpoint": True},
        {"checkpoint_every": 0},
    ],
)
def test_a_wrong_setting_of_a_consumer_is_refused_in_one_line(options: dict[str, Any]) -> None:
    ring = Disruptor[int](name="prices")
    with pytest.raises(ConfigError) as told:
        ring.register_consumer(**{"consumer": a_consumer, **options})
    assert str(told.value).startswith(next(iter(options)))
    assert "\n" not in str(told.value)
    ring.register_consumer(a_consumer)
    ring.close(PATIENCE_S)


def test_options_are_given_by_name() -> None:
    with pytest.raises(TypeError):
        Disruptor("prices", 1024)  # type: ignore[call-arg]
    ring = Disruptor[int](name="prices")
    with pytest.raises(TypeError):
        ring.register_consumer(a_consumer, "name")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        ring.produce([1], 5)  # type: ignore[call-arg]


def test_consumers_have_names_of_their_own_and_come_before_the_first_element() -> None:
    with Disruptor[int](name="prices") as ring:
        with pytest.raises(ConfigError, match="ring 'prices' has no consumer"):
            ring.produce([1])
        ring.register_consumer(Kept())
        with pytest.raises(ConfigError, match="two consumers are named 'Kept'"):
            ring.register_consumer(Kept())
        ring.produce([1])
        with pytest.raises(ConfigError, match="consumer 'late': register all consumers before the first element"):
            ring.register_consumer(Kept(), name="late")
        with pytest.raises(ConfigError, match="reset_checkpoints: must be called before the first element"):
            ring.reset_checkpoints()


def test_a_function_that_returns_a_coroutine_is_a_failure_and_not_a_call_that_went_well() -> None:
    told = Told()

    async def inner(elements: Sequence[int]) -> None: ...

    def apply(fn: Callable[[Sequence[int]], object], elements: Sequence[int]) -> object:
        return fn(elements)

    ring = Disruptor[int](name="prices", consumer_error_handler=told)
    ring.register_consumer(functools.partial(apply, inner), name="wrapped")
    ring.produce([1])
    ring.close()
    [(_, elements, error)] = told.calls
    assert elements == [1]
    assert isinstance(error, TypeError)


# ---------------------------------------------------------------- forks


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_ring_that_has_not_begun_is_the_child_s_own_after_a_fork_as_well() -> None:
    kept = Kept()
    ring = Disruptor[int](name="prices", size=4)
    ring.register_consumer(kept)
    child = os.fork()
    if not child:
        code = 1
        try:
            ring.produce([1, 2])
            ring.close(PATIENCE_S)
            code = 0 if kept.elements == [1, 2] and kept.closed == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ring.produce([3])
    ring.close(PATIENCE_S)
    assert kept.elements == [3]


@pytest.mark.parametrize("has_begun", [True, False])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_child_of_a_fork_is_told_that_the_consumers_are_in_the_parent(has_begun: bool, tmp_path: Path) -> None:
    kept = Kept()
    ring = Disruptor[int](name="prices", size=4)
    ring.register_consumer(kept, checkpoint=None if has_begun else tmp_path / "done")
    offset: Iterator[int | None] = itertools.repeat(None) if has_begun else itertools.count()
    if has_begun:
        ring.produce([1])
    child = os.fork()
    if not child:
        code = 1
        try:
            calls = (
                lambda: ring.produce([2], offset=next(offset)),
                lambda: ring.produce([3] * 40, offset=next(offset)),
                lambda: ring.try_produce([2], offset=next(offset)),
            )
            for call in calls:
                try:
                    call()
                except RingClosed as error:
                    if "made before a fork" not in str(error):
                        os._exit(2)
                else:
                    os._exit(3)
            ring.stats()
            ring.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ring.produce([3], offset=next(offset))
    ring.close()
    assert kept.elements == ([1, 3] if has_begun else [3])
