"""Ctrl-C at any point of a call: the ring goes on, nothing is taken twice, and nothing is lost of what was taken.

An interrupt comes between two instructions, and only after one at which Python looks for signals: a call, the beginning
of a function, or a jump back. Each such point of the ring's own code is interrupted once.
"""

from __future__ import annotations

import asyncio
import dis
import errno
import functools
import gc
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

import holdfast.ring
from holdfast.errors import RingClosed, RingFull
from holdfast.ring import Disruptor
from holdfast.ring.core import Core, Waiter
from holdfast.ring.lane import Lane, ThreadBell
from tests.unit.ring.rings import PATIENCE_S, Kept, core_of, drain, flat, produce

_HERE: Final = str(Path(holdfast.ring.__file__).parent)
_LOOKS: Final = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD", "RESUME"}


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    """Or a ring that another test has left might be closed in the middle of a call that is interrupted."""
    gc.disable()
    yield
    gc.enable()


@functools.cache
def _points(code: CodeType) -> tuple[dict[int, str], dict[int, int]]:
    """The instructions of a function, and where an error in each of them is handled."""
    names = {one.offset: one.opname for one in dis.get_instructions(code)}
    handlers = {
        offset: entry.target
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        for offset in range(entry.start, entry.end)
    }
    return names, handlers


def interrupted(call: Callable[[], object], at: int) -> bool:
    """Make this call, with an interrupt at the point of this number; say whether it came so far."""
    before: dict[FrameType, int] = {}
    left = at

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(_HERE):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            names, handlers = _points(frame.f_code)
            last, now = before.get(frame, -1), frame.f_lasti
            before[frame] = now
            # One whose error is handled elsewhere is past the end of a block that the real interrupt would be in.
            if names.get(last) in _LOOKS and handlers.get(last) == handlers.get(now):
                left -= 1
                if not left:
                    raise KeyboardInterrupt
        return trace

    was = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        assert left <= 0
        return True
    except (RingFull, RingClosed):
        return False
    finally:
        sys.settrace(was)
    return False


def each_point(make: Callable[[], Any], call: Callable[[Any], object]) -> Iterator[Any]:
    """What is made, after this call was interrupted: at each point once."""
    for at in range(1, 2_000):
        made = make()
        if not interrupted(lambda: call(made), at):  # noqa: B023 - called at once
            assert at > 3, "nothing was interrupted at all"
            return
        yield made
    raise AssertionError("it has no end")


class Stage:
    """A small ring without threads, with two consumers and some producers that wait; and what should come of it."""

    def __init__(self, taken: list[list[int]], waiting: Sequence[list[int]] = (), offset: int | None = None) -> None:
        self.lanes = [Lane("a", [], 3)]
        self.lanes.append(Lane("b", [self.lanes[0]], 50))
        self.core: Core = core_of(64, *self.lanes)
        self.seen: dict[str, list[int]] = {"a": [], "b": []}
        self.asleep: set[str] = set()
        self.offset = offset
        self.sent: list[list[int]] = []
        self.waiters: list[tuple[Waiter, threading.Event]] = []
        for elements in taken:
            assert produce(self.core, elements, self.next_offset(elements))
        for elements in waiting:
            self.core.wait(self.waiter(elements))
        assert all(not waiter.is_taken for waiter, _ in self.waiters)

    def next_offset(self, elements: list[int]) -> int | None:
        self.sent.append(elements)
        return None if self.offset is None else self.offset + elements[0]

    def waiter(self, elements: list[int]) -> Waiter:
        woken = threading.Event()
        waiter = Waiter(elements, self.next_offset(elements), woken.set)
        self.waiters.append((waiter, woken))
        return waiter

    def turn(self) -> None:
        """Whoever is awake goes on, until nobody is."""
        for _ in range(6):
            for lane in self.lanes:
                assert isinstance(lane.bell, ThreadBell)
                if lane.name not in self.asleep or lane.bell._lock.acquire(blocking=False):
                    self.seen[lane.name] += flat(drain(self.core, lane))
                    self.asleep.add(lane.name)

    def check(self, *, returned: list[list[int]], is_closed: bool = False) -> None:
        """All that was taken comes once, whole and in order, and the ring goes on."""
        for waiter, woken in self.waiters:
            self.core.forget(waiter)
            assert waiter.is_taken != (waiter.error is not None) or not woken.is_set()
        self.turn()
        assert self.core.look()[1:] == (0, 0), "nothing waits for somebody to come by"
        waited = [list(waiter.elements) for waiter, _ in self.waiters if waiter.is_taken]
        last = [] if is_closed else [[10_000]]
        for elements in last:
            assert produce(self.core, elements, self.next_offset(elements))
        self.turn()
        a = self.seen["a"]
        assert a == self.seen["b"]
        assert a == flat(one for one in self.sent if set(one) <= set(a)), "whole, once, and in order"
        for elements in [*returned, *waited, *last]:
            assert set(elements) <= set(a)
        for waiter, _ in self.waiters:
            assert waiter.is_taken == (set(waiter.elements) <= set(a))
        assert self.core.look() == (len(a), 0, 0)
        assert not any(self.core.slots._pieces)
        assert not self.core.lock.locked()


def long(n: int, first: int) -> list[int]:
    return list(range(first, first + n))


@pytest.mark.parametrize("elements", [[100], long(40, 100)], ids=["short", "long"])
@pytest.mark.parametrize("offset", [None, 5])
@pytest.mark.parametrize("is_asleep", [True, False])
def test_an_interrupt_where_there_is_room(elements: list[int], offset: int | None, is_asleep: bool) -> None:
    def make() -> Stage:
        stage = Stage([[1], [2, 3]], offset=offset)
        if is_asleep:
            stage.turn()
        return stage

    for stage in each_point(make, lambda stage: produce(stage.core, elements, stage.next_offset(elements))):
        stage.turn()
        stage.check(returned=[[1], [2, 3]])
    for stage in each_point(make, lambda stage: produce(stage.core, elements, stage.next_offset(elements))):
        assert produce(stage.core, [200, 201], stage.next_offset([200, 201]))
        stage.check(returned=[[1], [2, 3], [200, 201]])


def test_an_interrupt_of_one_that_has_to_wait() -> None:
    for stage in each_point(lambda: Stage([long(60, 0)]), lambda stage: stage.core.wait(stage.waiter(long(10, 100)))):
        stage.turn()
        stage.check(returned=[long(60, 0)])


@pytest.mark.parametrize("offset", [None, 5])
def test_an_interrupt_of_one_that_lets_others_in(offset: int | None) -> None:
    """By no longer waiting: those behind it have room, and are not forgotten half-way."""

    def make() -> Stage:
        return Stage([long(50, 0)], [long(40, 100), [200, 201], [210], long(10, 220)], offset)

    for stage in each_point(make, lambda stage: stage.core.forget(stage.waiters[0][0])):
        stage.turn()
        for waiter, woken in stage.waiters[1:]:
            assert waiter.is_taken, "a consumer goes on with what was interrupted"
            assert woken.is_set()
        stage.check(returned=[long(50, 0)])


def test_an_interrupt_of_one_that_closes_the_ring() -> None:
    def make() -> Stage:
        return Stage([long(60, 0)], [long(10, 100), [200]])

    for stage in each_point(make, lambda stage: stage.core.close("closed")):
        stage.core.close("closed again")
        for waiter, woken in stage.waiters:
            assert isinstance(waiter.error, RingClosed)
            assert woken.is_set()
        stage.check(returned=[long(60, 0)], is_closed=True)


def test_an_interrupt_of_one_that_closes_leaves_nobody_waiting_for_ever() -> None:
    def make() -> Stage:
        return Stage([long(60, 0)], [long(10, 100), [200]])

    for stage in each_point(make, lambda stage: stage.core.close("closed")):
        stage.turn()
        for waiter, woken in stage.waiters:
            assert woken.is_set()
            assert waiter.is_taken != bool(stage.core.why_closed)
        stage.check(returned=[long(60, 0)], is_closed=bool(stage.core.why_closed))


class Valve(Kept):
    """A consumer that gets on with one batch whenever somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.permits = threading.Semaphore(0)
        self.released = self.entered = 0

    def release(self) -> None:
        self.released += 1
        self.permits.release()

    @property
    def is_shut(self) -> bool:
        """Whether it waits, and every batch before has left the ring."""
        return self.entered > self.released

    def consume(self, elements: Any) -> None:
        self.entered += 1
        assert self.permits.acquire(timeout=PATIENCE_S)
        super().consume(elements)


def test_an_interrupt_of_produce_at_every_point_while_it_waits_and_while_it_does_not() -> None:
    valve, is_over, turn = Valve(), threading.Event(), threading.Lock()
    ring = Disruptor[int](name="prices", size=64)
    ring.register_consumer(valve)

    def open_it() -> None:
        while not is_over.wait(0.0005):
            with turn:
                if ring.stats().blocked:
                    valve.release()

    opener = threading.Thread(target=open_it)
    opener.start()
    numbers = itertools.count()
    sent: list[tuple[list[int], bool]] = []
    points: dict[tuple[int, bool], int] = {}

    def fill() -> None:
        """Until there is no room, and none comes before somebody waits for it."""
        with turn:
            while True:
                is_shut = valve.is_shut
                if ring.try_produce(some := [next(numbers)]):
                    sent.append((some, True))
                elif is_shut:
                    return

    def run(n: int, is_full: bool) -> None:
        for at in range(1, 2_000):
            if is_full:
                fill()
            elements = [next(numbers) for _ in range(n)]
            was = interrupted(lambda: ring.produce(elements), at)  # noqa: B023 - called at once
            sent.append((elements, not was))
            if not was:
                points[n, is_full] = at
                return

    try:
        for n in (1, 40, 100):
            for is_full in (False, True):
                run(n, is_full)
    finally:
        is_over.set()
        opener.join()
        valve.permits.release(100_000)
    ring.produce([-1])
    ring.close(PATIENCE_S)
    seen = set(valve.elements)
    taken = [one for one, _ in sent if set(one) & seen]
    assert valve.elements == [*flat(taken), -1], "whole, once and in order"
    assert all(set(one) <= seen for one, has_returned in sent if has_returned)
    assert all(number > 25 for (_, is_full), number in points.items() if is_full), "it was interrupted as it waited"


class Async:
    """An async consumer that does what a sync one does."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def consume(self, elements: Any) -> None:
        self._kept.consume(elements)

    async def close(self) -> None:
        self._kept.close()


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("is_late", [True, False], ids=["late", "never"])
def test_an_interrupt_while_a_consumer_s_thread_is_started(
    is_async: bool, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may run when another was started in its place; or never, when it cannot even tell `start` that it is there."""
    late: list[threading.Thread] = []

    def interrupted_start(thread: threading.Thread) -> None:
        monkeypatch.undo()
        if is_late:
            late.append(threading.Thread(target=thread._target))  # type: ignore[attr-defined]
        else:
            thread.run = lambda: None  # type: ignore[method-assign]
            thread.start()
        raise KeyboardInterrupt

    kept = Kept()
    ring = Disruptor[int](name="prices", size=64)
    ring.register_consumer(Async(kept) if is_async else kept)
    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        ring.produce([1])
    ring.produce([2, 3])
    ring.close(PATIENCE_S)
    for thread in late:
        thread.start()
        thread.join(PATIENCE_S)
    assert kept.elements == [2, 3]
    assert kept.closed == 1, "one of them alone has run"


def test_a_consumer_for_which_no_loop_can_be_had_is_told_of_by_close(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    ring = Disruptor[int](name="prices", size=64)
    ring.register_consumer(Async(Kept()))
    monkeypatch.setattr(asyncio, "Runner", fail)
    ring.start()
    with pytest.raises(OSError, match="Too many open files"):
        ring.close(PATIENCE_S)
    with pytest.raises(RingClosed):
        ring.produce([1])


def test_an_interrupt_of_one_that_waits_for_a_time_does_not_end_the_consumer_that_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Condition that is interrupted as it takes its lock again releases it all the same, though `set` holds it."""
    valve, main = Valve(), threading.current_thread()
    ring = Disruptor[int](name="prices", size=4)
    ring.register_consumer(valve, batch_size=4)
    ring.produce([0, 1, 2, 3])
    take_again = threading.Condition._acquire_restore  # type: ignore[attr-defined]

    def interrupted_there(self: threading.Condition, state: object) -> None:
        if threading.current_thread() is main:
            raise KeyboardInterrupt
        take_again(self, state)

    monkeypatch.setattr(threading.Condition, "_acquire_restore", interrupted_there)
    valve.permits.release(100)
    ring.produce([4, 5], timeout=PATIENCE_S)
    ring.close(PATIENCE_S)
    assert valve.elements == [0, 1, 2, 3, 4, 5]
