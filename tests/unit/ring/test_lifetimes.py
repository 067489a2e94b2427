"""Nothing keeps elements alive that every consumer is through with, without the help of the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from holdfast import RetryPolicy
from holdfast.ring import Disruptor
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Box, Held, mark_at, place, until

RETRY = RetryPolicy(max_retries=2, jitter=False)


class Element:
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pytest keeps log records, with the errors in them."""
    monkeypatch.setattr(logging.getLogger("holdfast.ring"), "disabled", True)
    gc.disable()
    yield
    gc.enable()


class Away(Box):
    """A place for dead letters that fails every other time, and keeps nothing."""

    def write(self, given_up: Sequence[Any]) -> int:
        self.closed += 1
        if self.closed % 2:
            raise OSError("away")
        return len(given_up)


def fails(elements: Sequence[Element]) -> Sequence[Element]:
    if any(one.number % 7 == 3 for one in elements):
        raise ConnectionError("refused")
    return elements


async def fails_async(elements: Sequence[Element]) -> Sequence[Element]:
    return fails(elements)


def raising(consumer: object, elements: Sequence[Element], error: BaseException) -> None:
    raise ValueError("the handler itself") from error


def elements_of(n: int, refs: list[weakref.ref[Element]], first: int = 0) -> list[Element]:
    elements = [Element(number) for number in range(first, first + n)]
    refs += map(weakref.ref, elements)
    return elements


def are_gone(refs: list[weakref.ref[Element]]) -> bool:
    return not any(one() for one in refs)


@pytest.mark.parametrize("consume", [fails, fails_async])
@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("retry", [RETRY, None])
@pytest.mark.parametrize("handler", [raising, None])
@pytest.mark.parametrize("letters", [Away(), None])
def test_elements_are_let_go_however_their_batch_has_ended(
    consume: Any, isolate: bool, retry: RetryPolicy | None, handler: Any, letters: Box | None, clock: ManualClock
) -> None:
    ring = Disruptor[Element](name="prices", size=64, clock=clock, consumer_error_handler=handler)
    with pytest.MonkeyPatch.context() as patch:
        place(patch, letters=letters)
        ring.register_consumer(
            consume, isolate=isolate, retry=retry, dead_letters=None if letters is None else "letters", batch_size=40
        )
        ring.register_consumer(fails, name="after", after=[consume])
    refs: list[weakref.ref[Element]] = []
    for n in (1, 2, 35, 35, 3, 70):
        ring.produce(elements_of(n, refs))
    until(lambda: are_gone(refs))
    ring.close()
    assert len(refs) == ring.stats().consumers[1].processed == 146


async def test_elements_are_let_go_by_consumers_on_the_loop(clock: ManualClock) -> None:
    refs: list[weakref.ref[Element]] = []
    async with Disruptor[Element](name="prices", size=64, clock=clock, consumer_error_handler=raising) as ring:
        ring.register_consumer(fails_async, isolate=True, retry=RETRY, batch_size=40)
        for n in (1, 35, 35, 3):
            await ring.aproduce(elements_of(n, refs))
        await asyncio.to_thread(until, lambda: are_gone(refs))


def test_elements_that_are_skipped_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, marks=mark_at(1_000))
    refs: list[weakref.ref[Element]] = []
    ring = Disruptor[Element](name="prices")
    ring.register_consumer(fails, checkpoint="mark")
    for offset, n in ((0, 3), (3, 40), (43, 2)):
        ring.produce(elements_of(n, refs), offset=offset)
    until(lambda: are_gone(refs))
    ring.close()


def test_elements_are_let_go_once_the_slowest_is_through_with_them() -> None:
    held = Held()
    ring = Disruptor[Element](name="prices")
    ring.register_consumer(lambda elements: None, name="quick")
    refs: list[weakref.ref[Element]] = []

    def consume(elements: Sequence[Element]) -> None:
        held.has_begun.set()
        held.go.wait()

    ring.register_consumer(consume, batch_size=40)
    ring.produce(elements_of(40, refs))
    until(lambda: not ring.stats().consumers[0].lag)
    assert held.has_begun.wait(PATIENCE_S)
    assert all(one() for one in refs)
    held.go.set()
    until(lambda: are_gone(refs))
    ring.close()


def test_elements_that_were_refused_are_let_go() -> None:
    held = Held()
    ring = Disruptor[Element](name="prices", size=1)
    refs: list[weakref.ref[Element]] = []

    def consume(elements: Sequence[Element]) -> None:
        held.go.wait()

    ring.register_consumer(consume)
    ring.produce([Element(0)])
    assert not ring.try_produce(elements_of(1, refs))
    with pytest.raises(Exception, match="no room"):
        ring.produce(elements_of(40, refs), timeout=0)
    assert are_gone(refs)
    held.go.set()
    ring.close()
