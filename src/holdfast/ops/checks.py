"""What can be wrong with a machine, a store, its workers and their work; each with what would help."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Container
from pathlib import Path
from typing import Final

from msgspec import Struct

from holdfast.app import App
from holdfast.app.stats import AppStats
from holdfast.ops.text import ago, length, many, short, size
from holdfast.ports import Clock, Stats
from holdfast.types import BreakerMode, JobState

STUCK_S: Final = 300.0
"""A job that is due for longer, with workers alive, is stuck."""
LEAST_FREE: Final = 500_000_000
"""Bytes that should be free on the store's disk."""
LARGEST_LOG: Final = 256_000_000
"""A larger write-ahead log is not emptied as it should be."""
SKEW_S: Final = 5.0
"""How far the store's clock may be from wall time."""
SOUND_SQLITE: Final = (3, 51, 3)
"""Earlier versions may damage a write-ahead log that is reset while it is being read."""

_CLOSED: Final = BreakerMode.CLOSED


class Check(Struct, frozen=True):
    """One look at one thing."""

    name: str
    is_ok: bool
    text: str
    help: str = ""
    """What would help, where it is not."""


class Patient(Struct, frozen=True):
    """A store to be looked at."""

    app: App
    path: Path | None
    """Its file, where it has one."""
    clock: Clock


def machine_checks() -> list[Check]:
    """Python and SQLite."""
    return [
        Check("Python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer"),
        _sqlite_version(),
    ]


def _sqlite_version() -> Check:
    import apsw  # noqa: PLC0415 - needed here alone

    version = apsw.sqlite_lib_version()
    numbers = tuple(int(part) for part in version.split("."))
    return Check("SQLite", numbers >= SOUND_SQLITE, f"{version} (apsw)", "pip install --upgrade apsw")


def store_checks(patient: Patient) -> list[Check]:
    """The store, its disk, its clock, its workers and its work."""
    app = patient.app
    capabilities = app.store.capabilities
    raw, stats = app.bridge.run(app.store.stats()), app.stats(0)
    durable = "" if capabilities.is_durable else ", NOT durable: what it has said yes to may be lost"
    checks = [
        Check(
            "store", capabilities.is_durable, capabilities.location + durable, "use ?synchronous=full, on a local disk"
        )
    ]
    if patient.path is not None:
        checks += [_disk(patient.path), _log(patient.path)]
    checks += [_clock(stats.now, patient.clock), _workers(stats)]
    looks: tuple[Callable[[App, Stats, AppStats], Check], ...] = (_stuck, _letters, _breakers, _queues)
    return checks + [look(app, raw, stats) for look in looks]


def task_checks(patient: Patient, known: Container[str]) -> Check:
    """Whether there are jobs, not yet done, of tasks that the app does not know."""
    stats = patient.app.bridge.run(patient.app.store.stats())
    unknown: dict[str, int] = {}
    for tally in stats.tallies:
        if tally.task not in known and tally.n and (not tally.state.is_terminal or tally.state is JobState.DEAD_LETTER):
            unknown[tally.task] = unknown.get(tally.task, 0) + tally.n
    if not unknown:
        return Check("tasks", True, "the app knows the tasks of all jobs")
    names = ", ".join(f"{name} ({many(n, 'job')})" for name, n in sorted(unknown.items()))
    return Check(
        "tasks", False, f"nobody knows: {short(names, 300)}", "import the module of the task in the app, or cancel them"
    )


def _disk(path: Path) -> Check:
    free = shutil.disk_usage(path.parent).free
    return Check(
        "disk",
        free >= LEAST_FREE,
        f"{size(free)} free at {path.parent}",
        "free some space: without it nothing is enqueued",
    )


def _log(path: Path) -> Check:
    log = path.with_name(path.name + "-wal")
    found = log.stat().st_size if log.exists() else 0
    help_ = "a process keeps a read open: end the one that looks at the file with another tool"
    return Check("log", found <= LARGEST_LOG, f"{size(found)} in the write-ahead log", help_)


def _clock(now: float, clock: Clock) -> Check:
    apart_s = now - clock.now()
    text = f"the store's clock is {length(abs(apart_s))} {'ahead of' if apart_s > 0 else 'behind'} the machine's"
    is_ok = abs(apart_s) <= SKEW_S
    return Check("clock", is_ok, text if abs(apart_s) >= 1 else "the store's clock is the machine's", _CLOCK_HELP)


_CLOCK_HELP: Final = "the machine's clock was set since its start: delays are right, but times are shown off by that"


def _workers(stats: AppStats) -> Check:
    waiting = sum(n for name, n in stats.jobs.items() if not JobState(name).is_terminal)
    if stats.workers:
        running = sum(worker.running for worker in stats.workers)
        return Check("workers", True, f"{many(len(stats.workers), 'worker')} alive, {many(running, 'job')} running")
    if not waiting:
        return Check("workers", True, "none, and nothing to do")
    return Check("workers", False, f"none, and {many(waiting, 'job')} to do", "holdfast worker TARGET")


def _stuck(app: App, raw: Stats, stats: AppStats) -> Check:
    paused = {view.name for view in app.queues.list() if view.is_paused}
    late = {
        queue: at
        for queue, at in raw.oldest_ready_at.items()
        if raw.now - at > STUCK_S and queue not in paused and raw.workers
    }
    if not late:
        return Check("stuck jobs", True, "none")
    names = ", ".join(f"{queue} (due {ago(at, raw.now)})" for queue, at in sorted(late.items()))
    help_ = "more workers, or one for these queues; a breaker, a limit or an unknown task may hold them back"
    return Check("stuck jobs", False, f"in {short(names, 300)}", help_)


def _letters(app: App, raw: Stats, stats: AppStats) -> Check:
    n = stats.jobs.get(JobState.DEAD_LETTER.value, 0)
    return Check("dead letters", n == 0, str(n) if n else "none", "holdfast dlq groups")


def _breakers(app: App, raw: Stats, stats: AppStats) -> Check:
    found = [f"{key} ({mode.value})" for key, mode in sorted(stats.breakers.items()) if mode is not _CLOSED]
    help_ = "look at the cause with `holdfast breakers`; `holdfast breakers reset KEY` closes one by hand"
    return Check("breakers", not found, short(", ".join(found), 300) or "all closed", help_)


def _queues(app: App, raw: Stats, stats: AppStats) -> Check:
    paused = [view.name for view in app.queues.list() if view.is_paused]
    return Check(
        "queues", not paused, f"paused: {', '.join(paused)}" if paused else "none paused", "holdfast queues resume NAME"
    )
