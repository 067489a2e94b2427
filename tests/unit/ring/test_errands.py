"""Elements that a consumer is given once more, beside those of its ring: a dead letter's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import RetryPolicy
from holdfast.errors import HoldfastError, RingClosed, Transient
from holdfast.ring import Disruptor
from holdfast.ring.given_up import Hand, Unhandled
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Failing, Held, Kept, Told

Wrap = Callable[[Kept], Any]


def sync(kept: Kept) -> Any:
    return kept


def asynchronous(kept: Kept) -> Any:
    async def consume(elements: Sequence[Any]) -> None:
        kept.consume(elements)

    return consume


def hand_of(ring: Disruptor[Any], consumer: str) -> Hand:
    """What a letter's elements are given to, as the app's link and `reprocess` do."""
    ring.start()
    return ring._hands()[consumer]


@pytest.mark.parametrize("wrap", [sync, asynchronous])
def test_an_errand_goes_to_its_consumer_alone_on_its_own_thread(wrap: Wrap) -> None:
    threads: set[str] = set()

    class Named(Kept):
        def consume(self, elements: Sequence[Any]) -> None:
            threads.add(threading.current_thread().name)
            super().consume(elements)

    named, other = Named(), Kept()
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(wrap(named), name="one")
        ring.register_consumer(other, name="other", after=["one"])
        ring.produce([1])
        hand_of(ring, "one")([7, 8])
        ring.produce([2])
    assert sorted(named.batches) == [[1], [2], [7, 8]]
    assert other.elements == [1, 2]
    assert threads == {"holdfast-ring-prices-one"}
    assert [one.processed for one in ring.stats().consumers] == [2, 2], "it is counted in the inbox"


@pytest.mark.parametrize("wrap", [sync, asynchronous])
def test_an_errand_is_tried_again_by_the_policy_and_then_raises_where_it_was_handed_in(
    wrap: Wrap, clock: ManualClock
) -> None:
    told, failing = Told(), Failing(lambda elements, call: Transient(f"call {call}") if call != 2 else None)
    ring = Disruptor[int](name="prices", clock=clock, consumer_error_handler=told)
    retry = RetryPolicy(max_retries=2, initial_delay=1.0, multiplier=2.0, jitter=False)
    ring.register_consumer(wrap(failing), name="one", retry=retry)
    hand = hand_of(ring, "one")
    hand([1])
    assert clock.sleeps == [1.0]
    with pytest.raises(Transient, match="call 5"):
        hand([2])
    assert clock.sleeps == [1.0, 1.0, 2.0]
    assert told.calls == [], "whoever handed it in knows"
    ring.close()


@pytest.mark.parametrize("wrap", [sync, asynchronous])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_error_that_would_end_a_thread_ends_none(wrap: Wrap, error: type[BaseException]) -> None:
    failing = Failing(lambda elements, call: error("no") if call == 1 else None)
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(wrap(failing), name="one")
        with pytest.raises(HoldfastError, match=rf"^the consumer raised {error.__name__}\('no'\)$"):
            hand_of(ring, "one")([1])
        ring.produce([2])
    assert failing.elements == [2]


@pytest.mark.parametrize("wrap", [sync, asynchronous])
@pytest.mark.parametrize("error", [RingClosed, Unhandled])
def test_a_consumer_that_finds_another_ring_closed_has_failed_itself(wrap: Wrap, error: type[RingClosed]) -> None:
    failing = Failing(lambda elements, call: error("ring 'next' is closed"))
    with Disruptor[int](name="prices") as ring:
        ring.register_consumer(wrap(failing), name="one")
        with pytest.raises(HoldfastError, match="ring 'next' is closed") as told:
            hand_of(ring, "one")([1])
    assert not isinstance(told.value, Unhandled)


def test_an_errand_that_has_not_begun_when_the_ring_is_closed_is_told_so() -> None:
    held, ring = Held(), Disruptor[int](name="prices")
    ring.register_consumer(held, name="one")
    ring.produce([1])
    assert held.has_begun.wait(PATIENCE_S)
    [lane] = ring._core.lanes
    future = ring._core.hand(lane, [7])
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(ring.close)
        with pytest.raises(Unhandled):
            future.result(PATIENCE_S)
        held.go.set()
        closing.result(PATIENCE_S)
    with pytest.raises(Unhandled):
        hand_of(ring, "one")([8])
    assert held.elements == [1]


@pytest.mark.anyio
async def test_an_errand_of_a_task_that_is_cancelled_was_not_handled() -> None:
    has_begun = asyncio.Event()

    async def consume(elements: Sequence[int]) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    ring = Disruptor[int](name="prices")
    ring.register_consumer(consume, name="one")
    [lane] = ring._core.lanes
    future = ring._core.hand(lane, [7])
    await has_begun.wait()
    [task] = [one for one in asyncio.all_tasks() if one.get_name() == "holdfast-ring-prices-one"]
    task.cancel()
    await asyncio.wait([task])
    with pytest.raises(Unhandled, match="consumer 'one' was cancelled"):
        future.result(PATIENCE_S)
    with pytest.raises(HoldfastError, match="was cancelled before the ring was closed"):
        await ring.aclose()
