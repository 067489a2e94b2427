"""Consumers that write down what they got, and the places of a ring that fail as told, for tests of its core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import pytest

from holdfast.ring.checkpoints import Checkpoint
from holdfast.ring.core import END, SLEEP, Core
from holdfast.ring.given_up import GivenUp
from holdfast.ring.lane import Lane

PATIENCE_S: Final = 20.0
"""How long a test waits for what must come: longer than any machine is slow, and shorter than its time limit."""


class Kept:
    """A consumer that keeps its batches."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.closed = 0

    def consume(self, elements: Sequence[Any]) -> None:
        self.batches.append(list(elements))

    def close(self) -> None:
        self.closed += 1

    @property
    def elements(self) -> list[Any]:
        return flat(self.batches)


class Held(Kept):
    """A consumer that is at its first batch until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = threading.Event()
        self.go = threading.Event()

    def consume(self, elements: Sequence[Any]) -> None:
        self.has_begun.set()
        assert self.go.wait(PATIENCE_S)
        super().consume(elements)


class Failing(Kept):
    """A consumer that keeps every call, and raises in those for which it is told so."""

    def __init__(self, error_of: Callable[[list[Any], int], BaseException | None]) -> None:
        super().__init__()
        self._error_of = error_of
        self.calls: list[list[Any]] = []

    def consume(self, elements: Sequence[Any]) -> None:
        self.calls.append(list(elements))
        error = self._error_of(list(elements), len(self.calls))
        if error is not None:
            raise error
        super().consume(elements)


class Told:
    """An error handler that keeps what it was told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, list[Any], BaseException]] = []

    def __call__(self, consumer: Any, elements: Sequence[Any], error: BaseException) -> None:
        self.calls.append((consumer, list(elements), error))


class Box:
    """A place for dead letters that is away for some calls."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.letters: list[GivenUp] = []
        self.writes: list[tuple[GivenUp, ...]] = []
        self.closed = 0

    def write(self, given_up: Sequence[GivenUp]) -> int:
        self.writes.append(tuple(given_up))
        if self._errors:
            raise self._errors.pop(0)
        self.letters += given_up
        return len(given_up)

    def close(self) -> None:
        self.closed += 1


class Marks:
    """A place for one checkpoint that fails for some calls."""

    def __init__(self, loaded: Checkpoint | None = None, errors: Sequence[Exception | None] = ()) -> None:
        self.loaded = loaded
        self._errors = list(errors)
        self.saved: list[Checkpoint] = []
        self.resets = self.closed = 0

    def load(self) -> Checkpoint | None:
        return self.loaded

    def save(self, checkpoint: Checkpoint) -> None:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        self.saved.append(checkpoint)

    def reset(self) -> None:
        self.resets += 1

    def close(self) -> None:
        self.closed += 1


def place(patch: pytest.MonkeyPatch, *, letters: Box | None = None, marks: Marks | None = None) -> None:
    """Let consumers that are registered with a path from here on have these instead of files."""
    if letters is not None:
        patch.setattr("holdfast.ring.places.file_letters", lambda path, **_: letters)
    if marks is not None:
        patch.setattr("holdfast.ring.places.file_checkpoints", lambda path, **_: marks)


def mark_at(offset: int) -> Marks:
    """A checkpoint of a consumer that has done everything before this offset, in batches of one."""
    return Marks(Checkpoint(offset=offset, batch=offset, processed=offset))


# ---------------------------------------------------------------- the core alone, without threads


def core_of(size: int, *lanes: Lane) -> Core:
    """A core with these consumers."""
    core = Core(size)
    for lane in lanes:
        core.join(lane)
    return core


def produce(core: Core, elements: list[Any], offset: int | None = None) -> bool:
    """The way of `Disruptor.produce` to the point where it would wait."""
    return (offset is None and core.offer(elements)) or core.take_in(elements, offset)


def flat(batches: Iterable[list[Any]]) -> list[Any]:
    """The elements of all batches."""
    return list(chain.from_iterable(batches))


def drain(core: Core, lane: Lane) -> list[list[Any]]:
    """All that a consumer can get now, in its batches."""
    batches = []
    while (got := core.turn(lane)) is not SLEEP and got is not END:
        batches.append(got)
        assert len(batches) < 10_000, "it gets something for ever"
    return batches


def until(is_so: Callable[[], object]) -> None:
    """Wait until this is so."""
    look = threading.Event()
    for _ in range(int(PATIENCE_S * 1000)):
        if is_so():
            return
        look.wait(0.001)
    raise AssertionError("it has not come to that in time")
