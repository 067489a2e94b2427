"""Whole rings under random producers, graphs of consumers and failures, against a plain ledger."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from holdfast import RetryPolicy
from holdfast.errors import Permanent, Transient
from holdfast.ring import Disruptor
from holdfast.ring.given_up import GivenUp
from holdfast.testing import ManualClock
from tests.unit.ring.rings import PATIENCE_S, Box, place

pytestmark = pytest.mark.timeout(30 if settings().max_examples <= 200 else 0)


@pytest.fixture(scope="module", autouse=True)
def short_pieces() -> Iterator[None]:
    """Lists of 32 are not gathered with others, so that short examples go every way."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("slots", "core"):
            patch.setattr(f"holdfast.ring.{module}.SMALL", 32)
        yield


Key = tuple[int, int]
"""Who has produced an element, and as its how many-th."""
RETRY = RetryPolicy(max_retries=3, initial_delay=1.0, total_timeout=None)


class Shape(Struct, frozen=True):
    """One consumer; poison and flaky: every so many-th element is; 0 for none."""

    after: tuple[int, ...]
    batch_size: int
    is_async: bool
    isolate: bool
    has_retry: bool
    poison: int
    flaky: int
    failures: int
    """How often a flaky element fails."""


class Scenario(Struct, frozen=True):
    size: int
    shapes: tuple[Shape, ...]
    producers: tuple[tuple[bool, tuple[int, ...]], ...]
    """Whether it is async, and the lengths of its lists."""
    handler_raises: bool
    letters_fail: bool


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    shapes = [
        Shape(
            tuple(sorted(draw(st.sets(st.integers(0, place - 1), max_size=2)))) if place else (),
            draw(st.sampled_from([1, 7, 40, 100, 1000])),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.booleans()),
            draw(st.sampled_from([0, 0, 11, 50])),
            draw(st.sampled_from([0, 0, 13, 70])),
            draw(st.integers(1, RETRY.max_retries)),
        )
        for place in range(draw(st.integers(1, 4)))
    ]
    lengths = st.lists(st.one_of(st.integers(1, 3), st.integers(28, 40), st.integers(1, 200)), min_size=1, max_size=6)
    return Scenario(
        draw(st.sampled_from([1, 4, 64, 256, 1024])),
        tuple(shapes),
        tuple((draw(st.booleans()), tuple(draw(lengths))) for _ in range(draw(st.integers(1, 3)))),
        draw(st.booleans()),
        draw(st.booleans()),
    )


class Element:
    def __init__(self, key: Key) -> None:
        self.key = key


class RealWaits(ManualClock):
    """Sleeps pass at once, and whoever waits for an event does."""

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        return event.wait(PATIENCE_S)


class Stand:
    """One consumer and its ledger, in which elements stand by their keys."""

    def __init__(self, shape: Shape, before: Sequence[Stand]) -> None:
        self.shape = shape
        self.before = before
        self.returned: list[list[Key]] = []
        self.given_up: list[list[Key]] = []
        self.finished: set[Key] = set()
        self.early: list[Key] = []
        self.raised = self.calls = self.told = 0
        self._failures: Counter[Key] = Counter()

    def is_poison(self, key: Key) -> bool:
        return self.shape.poison > 0 and key[1] % self.shape.poison == 1

    def is_flaky(self, key: Key) -> bool:
        return self.shape.flaky > 0 and key[1] % self.shape.flaky == 2

    def consume(self, elements: Sequence[Element]) -> None:
        keys = [one.key for one in elements]
        self.calls += 1
        self.early += [key for key in keys for stand in self.before if key not in stand.finished]
        flaky = [key for key in keys if self.is_flaky(key) and self._failures[key] < self.shape.failures]
        if flaky:
            self.raised += 1
            self._failures.update(flaky)
            raise Transient("busy")
        if any(map(self.is_poison, keys)):
            self.raised += 1
            raise Permanent("poison")
        self.returned.append(keys)
        self.finished.update(keys)

    async def aconsume(self, elements: Sequence[Element]) -> None:
        await asyncio.sleep(0)  # noqa: TID251 - lets the others run
        self.consume(elements)

    def write(self, given_up: Sequence[GivenUp]) -> None:
        for one in given_up:
            keys = [element.key for element in one.elements]
            self.given_up.append(keys)
            self.finished.update(keys)


class Ledger(Box):
    """Dead letters of a stand; each write may fail at first."""

    def __init__(self, stand: Stand, fails: bool) -> None:
        super().__init__()
        self._stand = stand
        self._fails = fails
        self._is_next = fails

    def write(self, given_up: Sequence[GivenUp]) -> int:
        if self._is_next:
            self._is_next = False
            raise OSError("away")
        self._is_next = self._fails
        self._stand.write(given_up)
        return len(given_up)


def produce(ring: Disruptor[Element], who: int, is_async: bool, lengths: Sequence[int], refs: list[Any]) -> None:
    def lists() -> Iterator[list[Element]]:
        n = 0
        for length in lengths:
            some = [Element((who, n + place)) for place in range(length)]
            refs.extend(map(weakref.ref, some))
            n += length
            yield some

    async def run() -> None:
        for some in lists():
            await ring.aproduce(some)

    if is_async:
        asyncio.run(run())
    else:
        for some in lists():
            ring.produce(some)


def run(scenario: Scenario, stands: list[Stand], refs: list[Any]) -> Disruptor[Element]:
    told: dict[Any, Stand] = {}

    def handler(consumer: Any, elements: Sequence[Element], error: BaseException) -> None:
        told[consumer].told += len(elements)
        if scenario.handler_raises:
            raise ValueError("the handler itself")

    ring = Disruptor[Element](name="prices", size=scenario.size, consumer_error_handler=handler, clock=RealWaits())
    for number, stand in enumerate(stands):
        shape = stand.shape
        consumer = stand.aconsume if shape.is_async else stand.consume
        told[consumer] = stand
        with pytest.MonkeyPatch.context() as patch:
            place(patch, letters=Ledger(stand, scenario.letters_fail))
            ring.register_consumer(
                consumer,
                name=str(number),
                after=[str(one) for one in shape.after],
                batch_size=shape.batch_size,
                isolate=shape.isolate,
                retry=RETRY if shape.has_retry else None,
                dead_letters="letters",
            )
    errors: list[BaseException] = []

    def produce_all(who: int, is_async: bool, lengths: Sequence[int]) -> None:
        try:
            produce(ring, who, is_async, lengths, refs)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=produce_all, args=(who, *producer)) for who, producer in enumerate(scenario.producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    ring.close(PATIENCE_S)
    assert errors == []
    return ring


def are_in_order(batches: list[list[Key]]) -> bool:
    """Whether the elements of each producer come in the order in which it has produced them."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for batch in batches:
        for who, number in batch:
            numbers[who].append(number)
    return all(before < after for own in numbers.values() for before, after in pairwise(own))


def check(stand: Stand, everything: set[Key]) -> None:
    shape = stand.shape
    returned = [key for batch in stand.returned for key in batch]
    given_up = [key for batch in stand.given_up for key in batch]
    assert Counter(returned + given_up) == Counter(everything), "each element ends once"
    assert are_in_order(stand.returned)
    assert are_in_order(stand.given_up)
    assert stand.early == []
    assert all(len(batch) <= shape.batch_size for batch in [*stand.returned, *stand.given_up])
    assert not any(map(stand.is_poison, returned))
    poison = set(filter(stand.is_poison, everything))
    flaky = set(filter(stand.is_flaky, everything))
    if shape.has_retry and shape.isolate:
        assert set(given_up) == poison
    elif shape.isolate:
        assert poison <= set(given_up) <= poison | flaky
    for batch in stand.given_up:
        assert any(key in poison or (key in flaky and not shape.has_retry) for key in batch)
    assert stand.told == len(given_up)


@given(scenarios())
def test_every_element_ends_once_in_every_consumer_in_order_and_is_let_go(scenario: Scenario) -> None:
    stands: list[Stand] = []
    for shape in scenario.shapes:
        stands.append(Stand(shape, [stands[one] for one in shape.after]))
    refs: list[Any] = []
    logger = logging.getLogger("holdfast.ring")
    logger.disabled = True  # pytest keeps what is logged, with the errors and their elements
    try:
        ring = run(scenario, stands, refs)
    finally:
        logger.disabled = False
    everything = {(who, n) for who, (_, lengths) in enumerate(scenario.producers) for n in range(sum(lengths))}
    report = ring.stats()
    assert (report.produced, report.used, report.blocked) == (len(everything), 0, 0)
    for stand, one in zip(stands, report.consumers, strict=True):
        check(stand, everything)
        assert (one.processed, one.lag, one.errors) == (len(everything), 0, stand.raised)
        assert one.given_up == sum(map(len, stand.given_up))
        assert one.dead_letters == len(stand.given_up)
        assert one.batches == one.batch == sum(one.batch_le)
        assert stand.calls - stand.raised == len(stand.returned)
    assert len(refs) == len(everything)
    assert not any(ref() for ref in refs)
