"""A program with a ring, to be killed on the way: `python -m tests.faults.ring_pipeline SETTINGS`.

Its source is the whole numbers, each at its own offset, so any run may begin anywhere. Two consumers, a quick one and a
slow one, write each batch into their ledger with one write and have checkpoints of their own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.ring import Disruptor

NAMES = ("quick", "slow")
RING = "numbers"
_AT_A_TIME = 7
_CLOCK = SystemClock()


class Settings(Struct, frozen=True, kw_only=True):
    """How a run goes."""

    folder: str
    until: int | None = None
    """Ends before this number; None: when it is told to."""
    url: str = ""
    """The store that has the checkpoints; files, where it is empty."""
    quiet_at: int | None = None
    """Before this number the source says nothing, until the file `go` is there."""

    def ledger(self, consumer: str) -> Path:
        """What a consumer has done."""
        return Path(self.folder, f"{consumer}.ledger")

    def checkpoint(self, consumer: str) -> Path:
        """Where its checkpoint is, unless a store has it."""
        return Path(self.folder, f"{consumer}.checkpoint")


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One batch, or the end of a consumer."""

    pid: int
    first: int = 0
    last: int = 0
    is_close: bool = False


class Summary(Struct, frozen=True, kw_only=True):
    """What a run that came to its end says of itself, on its last line."""

    start_offset: int
    produced: int


class _Writer:
    """A consumer that takes its time and then writes down what it was given."""

    def __init__(self, path: Path, seconds: float) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._seconds = seconds

    def consume(self, elements: Sequence[int]) -> None:
        if list(elements) != list(range(elements[0], elements[0] + len(elements))):
            raise AssertionError(f"elements are missing or out of order: {elements}")
        _CLOCK.sleep(self._seconds)
        self._write(Line(pid=os.getpid(), first=elements[0], last=elements[-1]))

    def close(self) -> None:
        self._write(Line(pid=os.getpid(), is_close=True))

    def _write(self, line: Line) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")


def run(settings: Settings) -> None:
    """Go on from the checkpoints, to the end or for ever."""
    with ExitStack() as stack:
        app = stack.enter_context(closing(App(settings.url))) if settings.url else None
        ring: Disruptor[int] = Disruptor(name=RING, size=256, app=app)
        try:
            with ring:
                for name, seconds in zip(NAMES, (0.001, 0.006), strict=True):
                    place = True if settings.url else settings.checkpoint(name)
                    writer = _Writer(settings.ledger(name), seconds)
                    ring.register_consumer(writer, name=name, batch_size=50, checkpoint=place)
                offset = ring.start_offset
                print(f"begins at {offset}", flush=True)
                while (end := _next_end(settings, offset)) > offset:
                    ring.produce(range(offset, end), offset=offset)
                    offset = end
        finally:
            summary = Summary(start_offset=ring.start_offset, produced=ring.stats().produced)
            print(msgspec.json.encode(summary).decode(), flush=True)


def _next_end(settings: Settings, offset: int) -> int:
    while offset == settings.quiet_at and not Path(settings.folder, "go").exists():
        _CLOCK.sleep(0.02)
    ends = [one for one in (settings.until, settings.quiet_at) if one is not None and one > offset]
    return offset if offset == settings.until else min([offset + _AT_A_TIME, *ends])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background jobs ignore it
    run(msgspec.json.decode(sys.argv[1], type=Settings))
