"""The bridge to asyncio: producers that await, and consumers that are tasks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import RetryPolicy
from holdfast.errors import HoldfastError, RingClosed, RingFull, RingStuck
from holdfast.ring import Consumer, Disruptor
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Box, Held, Kept, Marks, Told, place

pytestmark = pytest.mark.anyio


class Gate(Consumer[int]):
    """An async consumer that is at its first batch until it is let go."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.go = asyncio.Event()
        self.has_begun = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.closed = 0

    async def consume(self, elements: Sequence[int]) -> None:
        self.loop = asyncio.get_running_loop()
        self.has_begun.set()
        await self.go.wait()
        self.seen.extend(elements)

    async def close(self) -> None:
        self.closed += 1


async def moments(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run


async def test_async_consumers_run_on_the_loop_that_they_were_registered_on() -> None:
    gate, kept = Gate(), Kept()
    async with Disruptor[int](name="prices") as ring:
        ring.register_consumer(gate)
        ring.register_consumer(kept, after=["Gate"])
        await ring.aproduce([1, 2])
        await gate.has_begun.wait()
        assert gate.loop is asyncio.get_running_loop()
        gate.go.set()
        for n in range(100):
            await ring.aproduce([n])
    assert gate.seen == kept.elements == [1, 2, *range(100)]
    assert gate.closed == 1


def test_async_consumers_without_a_loop_have_a_thread_of_their_own() -> None:
    names: list[str] = []

    async def consume(elements: Sequence[int]) -> None:
        names.append(threading.current_thread().name)
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run

    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(consume, name="own")
        ring.produce([1])
    assert names == ["holdfast-ring-prices-own"]


async def test_aproduce_waits_for_room_without_blocking_the_loop() -> None:
    gate, ring = Gate(), Disruptor[int](name="prices", size=2)
    ring.register_consumer(gate)
    await ring.aproduce([1, 2])
    waiting = asyncio.create_task(ring.aproduce([3]))
    await gate.has_begun.wait()
    await moments()
    assert not waiting.done()
    assert ring.stats().blocked == 1
    gate.go.set()
    await waiting
    await ring.aclose()
    assert gate.seen == [1, 2, 3]


async def test_aproduce_that_waits_too_long_is_told_that_the_ring_is_full(clock: ManualClock) -> None:
    gate, ring = Gate(), Disruptor[int](name="prices", size=2, clock=clock)
    ring.register_consumer(gate)
    await ring.aproduce([1, 2])
    with pytest.raises(RingFull, match="no room for 0 s"):
        await ring.aproduce([3], timeout=0)
    waiting = asyncio.create_task(ring.aproduce([3], timeout=5.0))
    await moments()
    clock.advance(5.0)
    with pytest.raises(RingFull, match="no room for 5 s: the slowest is consumer 'Gate'"):
        await waiting
    gate.go.set()
    await ring.aclose()
    assert gate.seen == [1, 2]


async def test_aproduce_that_is_cancelled_leaves_nothing_behind() -> None:
    gate, ring = Gate(), Disruptor[int](name="prices", size=2)
    ring.register_consumer(gate)
    await ring.aproduce([1, 2])
    waiting = asyncio.create_task(ring.aproduce([3]))
    behind = asyncio.create_task(ring.aproduce([4]))
    await moments()
    assert ring.stats().blocked == 2
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ring.stats().blocked == 1
    gate.go.set()
    await behind
    await ring.aclose()
    assert gate.seen == [1, 2, 4]


async def test_closing_wakes_aproduce_with_an_error() -> None:
    gate, ring = Gate(), Disruptor[int](name="prices", size=2)
    ring.register_consumer(gate)
    await ring.aproduce([1, 2])
    waiting = asyncio.create_task(ring.aproduce([3]))
    await moments()
    closing = asyncio.create_task(ring.aclose())
    with pytest.raises(RingClosed):
        await waiting
    assert not closing.done()
    gate.go.set()
    await closing
    with pytest.raises(RingClosed):
        await ring.aproduce([3])
    assert gate.seen == [1, 2]


async def test_aclose_names_those_that_are_not_through_in_time(clock: ManualClock) -> None:
    gate, ring = Gate(), Disruptor[int](name="prices", clock=clock)
    ring.register_consumer(gate)
    await ring.aproduce([1, 2])
    closing = asyncio.create_task(ring.aclose(timeout=3.0))
    await moments()
    clock.advance(3.0)
    with pytest.raises(RingStuck, match=r"not through after 3 s: 'Gate' \(2 left\)"):
        await closing
    gate.go.set()
    await ring.aclose()
    assert gate.seen == [1, 2]


def test_a_ring_that_a_loop_has_waited_for_in_vain_can_be_closed_without_that_loop() -> None:
    held = Held()
    ring = Disruptor[int](name="prices", size=1)
    ring.register_consumer(held)

    async def give_up_waiting() -> None:
        await ring.aproduce([1])
        waiting = asyncio.create_task(ring.aproduce([2]))
        await moments()
        assert not waiting.done()
        with pytest.raises(RingStuck):
            await ring.aclose(timeout=0)
        with pytest.raises(RingClosed):
            await waiting

    asyncio.run(give_up_waiting())
    held.go.set()
    ring.close(PATIENCE_S)
    assert held.elements == [1]


async def test_what_would_block_the_loop_of_the_consumers_is_refused() -> None:
    gate, ring = Gate(), Disruptor[int](name="prices", size=1)
    ring.register_consumer(gate)
    ring.produce([1])
    with pytest.raises(RingFull, match=r"its consumers run on this loop: await aproduce\(\) instead"):
        ring.produce([2])
    with pytest.raises(HoldfastError, match=r"await aclose\(\) instead"):
        ring.close()
    gate.go.set()
    await ring.aclose()
    assert gate.seen == [1]


async def test_an_async_consumer_may_close_its_ring_and_may_not_wait_for_itself() -> None:
    told: list[BaseException] = []
    ring = Disruptor[int](name="prices", size=1)

    async def consume(elements: Sequence[int]) -> None:
        try:
            await ring.aproduce([2])
        except RingFull as error:
            told.append(error)
        await ring.aclose()

    ring.register_consumer(consume)
    await ring.aproduce([1])
    while not ring.stats().is_closing:
        await moments(1)
    await ring.aclose()
    assert str(told[0]) == "ring 'prices' is full, and its own consumer would wait for itself"


# ---------------------------------------------------------------- failures


async def test_a_batch_that_takes_too_long_is_cancelled_and_tried_again(clock: ManualClock) -> None:
    has_begun, cancelled, seen = asyncio.Event(), list[int](), list[int]()

    async def consume(elements: Sequence[int]) -> None:
        if not cancelled:
            has_begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.extend(elements)
                raise
        seen.extend(elements)

    ring = Disruptor[int](name="prices", clock=clock)
    ring.register_consumer(
        consume, retry=RetryPolicy(attempt_timeout=10.0, max_retries=1, initial_delay=1.0, jitter=False)
    )
    await ring.aproduce([1])
    await has_begun.wait()
    clock.advance(10.0)
    await ring.aclose()
    assert cancelled == seen == [1]
    assert clock.sleeps == [1.0]
    [report] = ring.stats().consumers
    assert (report.errors, report.retries, report.given_up) == (1, 1, 0)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, ValueError])
@pytest.mark.parametrize("is_on_the_loop", [True, False])
async def test_failures_of_any_kind_stay_where_they_are(error: type[BaseException], is_on_the_loop: bool) -> None:
    seen: list[int] = []

    async def consume(elements: Sequence[int]) -> None:
        if 2 in elements:
            raise error("no")
        seen.extend(elements)

    def handler(consumer: Any, elements: Sequence[int], given: BaseException) -> None:
        told(consumer, elements, given)
        raise error("handler")

    told = Told()
    ring = Disruptor[int](name="prices", consumer_error_handler=handler)

    def register() -> None:
        ring.register_consumer(consume, batch_size=2, isolate=True)

    await asyncio.to_thread(register) if not is_on_the_loop else register()
    await ring.aproduce([1, 2, 3, 4])
    await ring.aclose()
    [(_, elements, given)] = told.calls
    assert elements == [2]
    assert isinstance(given, error)
    assert seen == [1, 3, 4]


@pytest.mark.parametrize("is_on_the_loop", [True, False])
async def test_dead_letters_and_checkpoints_of_async_consumers_are_written(
    is_on_the_loop: bool, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, marks, here = Box(OSError("away")), Marks(), threading.current_thread()
    wrote_here: list[bool] = []

    async def consume(elements: Sequence[int]) -> None:
        raise ValueError("no")

    def write(given_up: Any) -> int:
        wrote_here.append(threading.current_thread() is here)
        return Box.write(box, given_up)

    monkeypatch.setattr(box, "write", write)
    place(monkeypatch, letters=box, marks=marks)
    ring = Disruptor[int](name="prices", clock=clock)

    def register() -> None:
        ring.register_consumer(consume, dead_letters="letters", checkpoint="mark")

    await asyncio.to_thread(register) if not is_on_the_loop else register()
    await ring.aproduce([1, 2], offset=3)
    await ring.aclose()
    assert [one.elements for one in box.letters] == [(1, 2)]
    assert wrote_here == [False, False], "what blocks does so on another thread"
    assert marks.saved[-1].offset == 5
    assert (box.closed, marks.closed) == (1, 1)


# ---------------------------------------------------------------- loops that end


def test_a_loop_that_ends_before_its_ring_closes_it_and_close_says_so() -> None:
    ring = Disruptor[int](name="prices")
    seen: list[int] = []

    async def consume(elements: Sequence[int]) -> None:
        seen.extend(elements)

    async def forget_to_close() -> None:
        ring.register_consumer(consume)
        await ring.aproduce([1])
        while not seen:
            await moments(1)

    asyncio.run(forget_to_close())
    with pytest.raises(RingClosed, match="consumer 'consume' cannot go on: CancelledError"):
        ring.produce([2])
    with pytest.raises(HoldfastError, match="consumer 'consume' was cancelled before the ring was closed"):
        ring.close(PATIENCE_S)
    ring.close(PATIENCE_S)


def test_a_task_that_is_cancelled_before_its_first_step_ends_the_ring_too() -> None:
    ring = Disruptor[int](name="prices")
    gone = Kept()

    async def consume(elements: Sequence[int]) -> None: ...

    async def end_at_once() -> None:
        ring.register_consumer(consume)
        ring.register_consumer(gone, after=["consume"])

    asyncio.run(end_at_once())
    with pytest.raises(HoldfastError, match="was cancelled"):
        ring.close(PATIENCE_S)
    assert gone.closed == 1


async def test_a_consumer_that_is_at_a_batch_when_its_task_is_cancelled_has_not_finished_it() -> None:
    gate, after = Gate(), Kept()
    ring = Disruptor[int](name="prices")
    ring.register_consumer(gate)
    ring.register_consumer(after, after=[gate])
    await ring.aproduce([1])
    await gate.has_begun.wait()
    [task] = [one for one in asyncio.all_tasks() if one.get_name() == "holdfast-ring-prices-Gate"]
    task.cancel()
    await asyncio.wait([task])
    with pytest.raises(HoldfastError, match="was cancelled"):
        await ring.aclose(PATIENCE_S)
    assert after.elements == []
    assert ring.stats().consumers[0].processed == 0
    assert gate.closed == 1
