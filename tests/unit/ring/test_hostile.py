"""Users that do what one had better not: lists that are emptied, handlers that close, calls that are cut off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.errors import RingFull
from holdfast.ring import Disruptor
from holdfast.ring.core import Core, Waiter
from tests.unit.ring.rings import PATIENCE_S, Kept

LONG = 50
"""So many are handed out in the list that they came in."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_a_consumer_that_changes_the_list_it_got_is_counted_by_what_it_got(
    grows: bool, is_async: bool, tmp_path: Path
) -> None:
    seen: list[int] = []

    def change(elements: list[int]) -> None:
        seen.extend(elements)
        if grows:
            elements.append(-1)
        else:
            elements.clear()

    async def achange(elements: list[int]) -> None:
        change(elements)

    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(
            achange if is_async else change, name="change", batch_size=LONG, checkpoint=tmp_path / "done"
        )
        for start in range(0, 4 * LONG, LONG):
            ring.produce(list(range(start, start + LONG)), offset=start)
    report = ring.stats().consumers[0]
    assert seen == list(range(4 * LONG))
    assert (report.processed, report.lag, report.offset) == (4 * LONG, 0, 4 * LONG)


async def test_an_error_handler_of_a_consumer_on_the_loop_may_close_its_ring() -> None:
    told: list[int] = []

    async def fail(elements: Sequence[int]) -> None:
        raise ValueError(elements)

    def close(consumer: object, elements: Sequence[int], error: BaseException) -> None:
        ring.close()
        told.extend(elements)

    ring = Disruptor[int](name="prices", consumer_error_handler=close)
    ring.register_consumer(fail)
    await ring.aproduce([1])
    while not ring.stats().is_closing:
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run
    await ring.aclose(PATIENCE_S)
    assert told == [1]


async def test_an_error_handler_of_a_consumer_on_the_loop_does_not_wait_for_that_consumer() -> None:
    errors: list[BaseException] = []

    async def fail(elements: Sequence[int]) -> None:
        raise ValueError(elements)

    def put_back(consumer: object, elements: Sequence[int], error: BaseException) -> None:
        try:
            ring.produce(list(elements))
        except RingFull as full:
            errors.append(full)

    async with Disruptor[int](name="prices", size=2, consumer_error_handler=put_back) as ring:
        ring.register_consumer(fail)
        await ring.aproduce([1, 2])
        while not errors:
            await asyncio.sleep(0)  # noqa: TID251 - lets the others run
    assert "would wait for itself" in str(errors[0])


def waiter_of(*elements: int) -> Waiter:
    return Waiter(list(elements), None, lambda: None)


def test_elements_of_a_call_that_was_cut_off_are_not_taken_although_there_is_room_by_now() -> None:
    core, cut_off, behind = Core(4), waiter_of(3), waiter_of(4, 5)
    assert core.take_in([1, 2, 3, 4], None)
    assert not core.wait(cut_off)
    assert not core.wait(behind)
    core._gate = 2
    core.forget(cut_off, is_wanted=False)
    assert not cut_off.is_taken
    assert behind.is_taken
    assert not core.waiters
    late = waiter_of(6)
    assert not core.wait(late)
    core._gate = 4
    core.forget(late)
    assert late.is_taken


def test_a_batch_may_wait_for_what_the_next_consumer_does_with_the_one_before_it() -> None:
    pool, are_all_there = threading.Semaphore(2), threading.Event()
    waits: list[bool] = []

    def take(elements: Sequence[int]) -> None:
        are_all_there.wait(PATIENCE_S)
        waits.append(pool.acquire(timeout=PATIENCE_S))

    def give_back(elements: Sequence[int]) -> None:
        pool.release()

    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(take, batch_size=LONG)
        ring.register_consumer(give_back, batch_size=LONG, after=[take])
        for _ in range(8):
            ring.produce([0] * LONG)
        are_all_there.set()
    assert waits == [True] * 8


def test_a_ring_for_which_no_thread_can_be_had_may_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    kept, ring = Kept(), Disruptor[int](name="prices")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        ring.register_consumer(kept, checkpoint=tmp_path / "done", dead_letters=tmp_path / "dead")
        with pytest.raises(RuntimeError, match="new thread"):
            ring.produce([1, 2], offset=0)
    ring.produce([1, 2], offset=0)
    ring.close(PATIENCE_S)
    assert kept.elements == [1, 2]
