"""The middle of a ring without threads: random turns of producers and consumers, against a plain list."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import example, given, note, settings
from hypothesis import strategies as st
from msgspec import Struct

from holdfast.errors import RingClosed
from holdfast.ring.core import END, SLEEP, Core, Waiter
from holdfast.ring.lane import Errand, Lane, ThreadBell

pytestmark = pytest.mark.timeout(30 if settings().max_examples <= 200 else 0)


@pytest.fixture(scope="module", autouse=True)
def short_pieces() -> Iterator[None]:
    """Lists of 32 are not gathered with others, so that short examples go every way."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("slots", "core"):
            patch.setattr(f"holdfast.ring.{module}.SMALL", 32)
        yield


Verb = Literal["produce", "wait", "forget", "turn", "ahead", "hand", "close"]
VERBS: list[Verb] = ["produce", "produce", "wait", "forget", "turn", "turn", "turn", "ahead", "hand", "close"]


class Act(Struct, frozen=True):
    verb: Verb
    number: int
    gap: int


class Shape(Struct, frozen=True):
    """One consumer: those that it comes after, by their places, how long its batches are, and what it did before."""

    after: tuple[int, ...]
    batch_size: int
    skip_to: int


class Scenario(Struct, frozen=True):
    size: int
    has_offsets: bool
    shapes: tuple[Shape, ...]
    acts: tuple[Act, ...]


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    count = draw(st.integers(1, 4))
    shapes = []
    for place in range(count):
        after = draw(st.sets(st.integers(0, place - 1), max_size=2)) if place else set()
        shapes.append(
            Shape(tuple(sorted(after)), draw(st.sampled_from([1, 3, 40, 64, 100])), draw(st.integers(0, 300)))
        )
    size = draw(st.sampled_from([1, 4, 64, 256]))
    lengths = st.one_of(st.integers(1, max(size // 4, 1)), st.integers(1, 5), st.integers(28, 45), st.integers(60, 150))
    act = st.builds(Act, verb=st.sampled_from(VERBS), number=lengths, gap=st.sampled_from([0, 0, 0, 1, 50]))
    return Scenario(
        size,
        draw(st.booleans()),
        tuple(shapes),
        tuple(draw(st.lists(act, min_size=5, max_size=80))),
    )


class Model:
    """The core, beside a list of all elements that were taken; an element is its own place in that list."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.core = Core(scenario.size)
        self.lanes: list[Lane] = []
        self.offsets: list[int] = []
        """Of each element that was taken."""
        self.next_offset = 0
        self.line: list[tuple[Waiter, threading.Event]] = []
        self.is_closed = False
        for place, shape in enumerate(scenario.shapes):
            lane = Lane(str(place), [self.lanes[one] for one in shape.after], shape.batch_size)
            lane.is_hasty = True
            if scenario.has_offsets and shape.skip_to:
                lane.skip_to = shape.skip_to
            self.lanes.append(lane)
            self.core.join(lane)
        self.finished = [0] * len(self.lanes)
        """How many elements each consumer is through with, skipped ones included."""
        self.in_hand = [0] * len(self.lanes)
        self.errands = [0] * len(self.lanes)
        self.is_asleep = [False] * len(self.lanes)
        self.has_ended = [False] * len(self.lanes)

    # ---- producers

    def elements(self, n: int, gap: int) -> tuple[list[int], int | None]:
        """The next elements, as if those that wait were taken already."""
        first = len(self.offsets) + sum(len(waiter.elements) for waiter, _ in self.line)
        if not self.scenario.has_offsets:
            return list(range(first, first + n)), None
        return list(range(first, first + n)), self.next_offset + gap

    def taken(self, elements: list[int], offset: int | None) -> None:
        assert elements[0] == len(self.offsets)
        self.offsets += range(offset or 0, (offset or 0) + len(elements))

    @property
    def used(self) -> int:
        return len(self.offsets) - min(self.finished)

    def produce(self, n: int, gap: int) -> None:
        elements, offset = self.elements(n, gap)
        has_room = not self.line and (self.used + n <= self.scenario.size or not self.used)
        try:
            is_taken = (offset is None and self.core.offer(elements)) or self.core.take_in(elements, offset)
        except RingClosed:
            assert self.is_closed
            return
        assert not self.is_closed
        assert is_taken == has_room
        if is_taken:
            self.taken(elements, offset)
            self.next_offset = (offset or 0) + n

    def wait(self, n: int, gap: int) -> None:
        elements, offset = self.elements(n, gap)
        woken = threading.Event()
        waiter = Waiter(elements, offset, woken.set)
        try:
            self.core.wait(waiter)
        except RingClosed:
            assert self.is_closed
            return
        self.line.append((waiter, woken))
        self.next_offset = (offset or 0) + n

    def forget(self, number: int) -> None:
        """Only the last in line, so that the elements of the others keep their places."""
        if self.line:
            waiter, _ = self.line[-1]
            self.core.forget(waiter)
            if not waiter.is_taken:
                self.line.pop()
                last = self.line[-1][0] if self.line else None
                if last is not None:
                    self.next_offset = (last.offset or 0) + len(last.elements)
                else:
                    self.next_offset = self.offsets[-1] + 1 if self.offsets else 0

    def look_at_line(self) -> None:
        """Those that wait are taken from the head of the line, and are woken for it."""
        while self.line and (self.line[0][0].is_taken or self.line[0][0].error):
            waiter, woken = self.line.pop(0)
            assert woken.is_set()
            assert waiter.is_taken != (waiter.error is not None)
            assert waiter.is_taken or self.is_closed
            if waiter.is_taken:
                self.taken(list(waiter.elements), waiter.offset)
        assert not any(waiter.is_taken or woken.is_set() for waiter, woken in self.line)
        assert self.core.slots.produced == len(self.offsets)
        assert len(self.core.waiters) == len(self.line)

    # ---- consumers

    def turn(self, place: int) -> bool:
        """A turn of this consumer, if it is awake; say whether it was."""
        lane, bell = self.lanes[place], self.lanes[place].bell
        assert isinstance(bell, ThreadBell)
        if self.has_ended[place] or (self.is_asleep[place] and not bell._lock.acquire(blocking=False)):
            return False
        self.is_asleep[place] = False
        lane.ahead = []
        got = self.core.turn(lane)
        self.finished[place] += self.in_hand[place]
        self.in_hand[place] = 0
        self.look_at_line()
        if isinstance(got, Errand):
            self.errands[place] -= 1
            got.future.set_result(None)
            if not lane.is_errand_turn:
                self.skip(place)
                assert self.reach(place) == self.finished[place], "it was the turn of the ring's elements"
        elif got is SLEEP:
            self.skip(place)
            assert self.reach(place) == self.finished[place], "it sleeps beside something to do"
            self.is_asleep[place] = True
        elif got is END:
            self.skip(place)
            assert self.is_closed
            assert self.finished[place] == len(self.offsets)
            self.core.ended(lane)
            self.has_ended[place] = True
        else:
            self.skip(place)
            self.check_batch(place, got)
        return True

    def ahead(self, place: int) -> None:
        """What a loop does that takes several batches at a time."""
        lane = self.lanes[place]
        if lane.ahead:
            got = lane.ahead.pop()
            lane.end += len(got)
            lane.next_piece += 1
            self.check_batch(place, got)

    def reach(self, place: int) -> int:
        return min([self.finished[one] for one in self.scenario.shapes[place].after], default=len(self.offsets))

    def skip(self, place: int) -> None:
        if self.scenario.has_offsets:
            skip_to = self.scenario.shapes[place].skip_to
            while self.finished[place] < self.reach(place) and self.offsets[self.finished[place]] < skip_to:
                self.finished[place] += 1
            assert self.lanes[place].done >= self.finished[place]

    def check_batch(self, place: int, got: list[int]) -> None:
        begin = self.finished[place] + self.in_hand[place]
        assert got == list(range(begin, begin + len(got)))
        assert 1 <= len(got) <= self.scenario.shapes[place].batch_size
        assert begin + len(got) <= self.reach(place)
        if self.scenario.has_offsets:
            offsets = self.offsets[begin : begin + len(got)]
            assert all(after == before + 1 for before, after in pairwise(offsets)), "a batch over a gap"
            assert self.lanes[place].offset == offsets[0]
        self.in_hand[place] += len(got)

    def hand(self, place: int) -> None:
        if not self.is_closed:
            self.core.hand(self.lanes[place], ["letter"])
            self.errands[place] += 1

    def close(self) -> None:
        self.is_closed = True
        self.core.close("closed")
        self.errands = [0] * len(self.lanes)

    # ---- all of it

    def act(self, act: Act) -> None:
        place = act.number % len(self.lanes)
        match act.verb:
            case "produce":
                self.produce(act.number, act.gap)
            case "wait":
                self.wait(act.number, act.gap)
            case "forget":
                self.forget(act.number)
            case "turn":
                self.turn(place)
            case "ahead":
                self.ahead(place)
            case "hand":
                self.hand(place)
            case "close" if act.number == 1:
                self.close()
            case "close":
                pass
        self.look_at_line()
        produced, used, waiting = self.core.look()
        assert (produced, used, waiting) == (len(self.offsets), self.used, len(self.line))

    def settle(self) -> None:
        """Everybody who is awake goes on, until nobody is."""
        for _ in range(20_000):
            if sum(self.turn(place) for place in range(len(self.lanes))) == 0:
                return
        raise AssertionError("it has no end")

    def check_rest(self) -> None:
        """Nothing is left, and nothing is kept alive."""
        assert self.line == []
        assert self.errands == [0] * len(self.lanes)
        assert self.finished == [len(self.offsets)] * len(self.lanes)
        assert not any(self.core.slots._pieces)
        assert not self.core.slots.head[2]
        assert self.core.look() == (len(self.offsets), 0, 0)


ERRANDS_AFTER_SKIPPING = Scenario(
    size=4,
    has_offsets=True,
    shapes=(Shape((), 1, 1), Shape((), 1, 1)),
    acts=(
        Act("produce", 1, 0),
        Act("turn", 1, 0),
        Act("hand", 2, 0),
        Act("hand", 2, 0),
        Act("turn", 2, 0),
        Act("turn", 2, 0),
    ),
)


@given(scenarios())
@example(ERRANDS_AFTER_SKIPPING)
def test_every_consumer_gets_everything_once_in_order_and_nobody_sleeps_beside_work(scenario: Scenario) -> None:
    model = Model(scenario)
    for act in scenario.acts:
        note(f"{act} {model.core.look()} {[lane.done for lane in model.lanes]}")
        model.act(act)
    model.settle()
    model.check_rest()
    model.close()
    model.settle()
    model.check_rest()
    assert all(model.has_ended)
    assert model.core.live == 0
