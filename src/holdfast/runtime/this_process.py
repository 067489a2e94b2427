"""Which process this is, so that another one of the same machine can tell for certain that it is gone."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from holdfast.ports import WorkerRecord

_PROC: Final = Path("/proc")
_DEAD: Final = frozenset("XZ")
_STARTED: Final = 19
"""The place of the start time in a stat line, after the name of the program: pid, name and state come before it."""


def process_mark() -> str:
    """This boot, this space of process ids, this process and its start; empty where the machine does not say."""
    start = _start_of(os.getpid())
    place = _place()
    return f"{place}/{os.getpid()}/{start}" if place and start else ""


def is_gone(mark: str) -> bool:
    """Whether the process with this mark is gone; False where nobody here can tell, as on another machine."""
    place, _, rest = mark.rpartition("/")
    place, _, pid = place.rpartition("/")
    if not place or not pid.isdecimal() or place != _place():
        return False
    return _start_of(int(pid)) != rest


def is_dead(worker: WorkerRecord, now: float) -> bool:
    """Whether a worker is none any more, though nobody has given it up yet: its lease is over, or its process gone."""
    return worker.seen_at + worker.lease_s <= now or is_gone(worker.process)


def end_if_forked(pid: int, error: BaseException | None = None) -> None:
    """End this process unless it has this id: it was forked by a user's code that came back, or raised, in the child.

    There it would go on as a second worker, with the leases, the queues and the connections of the first.
    """
    if os.getpid() != pid:
        _end(error)


def _end(error: BaseException | None) -> NoReturn:
    """As a program ends of this, but nothing is closed: it belongs to the parent."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # there is none, nobody reads it, or it is closed
            stream.flush()
    os._exit(code)


def _place() -> str:
    """The boot of this machine, and the space that its process ids are in; empty where it does not say."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """When a process began, in the clock ticks of its boot; empty for one that is gone, or only waits to be buried."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, UnicodeDecodeError):
        return ""
    return "" if not fields or fields[0] in _DEAD else fields[_STARTED]
