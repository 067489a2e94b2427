"""What can be wrong with a machine, a store, its workers and their work; each with what would help."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Final

import apsw
from msgspec import Struct

from holdfast.app import App
from holdfast.app.streams import StreamLag
from holdfast.ops.redact import redacted_text
from holdfast.ops.text import ago, length, many, short, size
from holdfast.ports import Capabilities, Exchange, Stats
from holdfast.runtime.crawl_origins import QUEUE as CRAWL_QUEUE
from holdfast.runtime.crawl_trouble import crawl_names, is_of_crawl, unwritten
from holdfast.runtime.crawls import crawl_views
from holdfast.runtime.machine import LARGEST_LOG
from holdfast.runtime.ring_origins import QUEUE as RING_QUEUE
from holdfast.runtime.rings import ring_views, takes_jobs, troubles
from holdfast.runtime.streams.progress import in_one_line
from holdfast.types import BreakerMode, JobState

STUCK_S: Final = 300.0
"""A job that is due for longer, with workers alive, is stuck."""
LEAST_FREE: Final = 500_000_000
"""Bytes that should be free on the store's disk."""
SKEW_S: Final = 1.0
"""How far the store's clock may be from this machine's."""
SLOW_S: Final = 0.1
"""A store that takes longer for nothing at all is far away, or busy."""
SOUND_SQLITE: Final = (3, 51, 3)
"""Earlier versions may damage a database whose write-ahead log starts anew while another process writes."""

_CLOSED: Final = BreakerMode.CLOSED
_DEAD: Final = JobState.DEAD_LETTER
_MOST: Final = 300
_EXCHANGES: Final = 20


class Check(Struct, frozen=True):
    """One look at one thing."""

    name: str
    is_ok: bool
    text: str
    help: str = ""
    """What would help, where it is not."""


class Findings(Struct, frozen=True, kw_only=True):
    """All that the checks of a store look at."""

    capabilities: Capabilities
    stats: Stats
    breakers: Mapping[str, BreakerMode] = {}
    paused: tuple[str, ...] = ()
    """Queues."""
    apart_s: float = 0.0
    """How far the store's clock is ahead of this machine's."""
    took_s: Sequence[float] = (0.0,)
    """How long empty exchanges took, shortest first."""
    free: int | None = None
    """Bytes free on its disk, where it has one."""
    log: int | None = None
    """Bytes in its write-ahead log."""

    def count(self, *states: JobState) -> int:
        """How many jobs are in these states."""
        return sum(tally.n for tally in self.stats.tallies if tally.state in states)


def look_at(app: App, path: Path | None) -> Findings:
    """Look at an open store, whose file is at `path` if it has one."""
    log = None if path is None else path.with_name(f"{path.name}-wal")
    capabilities = app.store.capabilities  # opens it, which is not to be measured
    exchanges = sorted(app.bridge.run(_exchange(app)) for _ in range(_EXCHANGES))
    return Findings(
        capabilities=capabilities,
        stats=app.bridge.run(app.store.stats()),
        breakers={view.key: view.mode for view in app.breakers.list()},
        paused=tuple(view.name for view in app.queues.list() if view.is_paused),
        apart_s=exchanges[0][1],  # the quickest one knows best
        took_s=[took_s for took_s, _ in exchanges],
        free=None if path is None else shutil.disk_usage(path.parent).free,
        log=None if log is None else log.stat().st_size if log.exists() else 0,
    )


async def _exchange(app: App) -> tuple[float, float]:
    """How long an empty exchange takes, and how far the store's clock is ahead of this machine's."""
    began_s, began_at = app.clock.monotonic(), app.clock.now()
    reply = await app.store.exchange(Exchange())
    took_s = app.clock.monotonic() - began_s
    return took_s, reply.now - (began_at + took_s / 2)


# ---------------------------------------------------------------- the checks


def machine_checks() -> list[Check]:
    """Python and SQLite."""
    sqlite = apsw.sqlite_lib_version()
    numbers = tuple(int(part) for part in sqlite.split("."))
    return [
        Check("Python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer"),
        Check("SQLite", numbers >= SOUND_SQLITE, f"{sqlite} (apsw)", "pip install --upgrade apsw"),
    ]


def store_checks(found: Findings) -> list[Check]:
    """The store, its disk, its clock, its workers and its work."""
    checks = [_store(found), *_schema(found), _durability(found), *_warnings(found), _latency(found)]
    if found.free is not None:
        help_ = "free some space: when there is none, nothing can be enqueued"
        checks.append(Check("disk", found.free >= LEAST_FREE, f"{size(found.free)} free", help_))
    if found.log is not None:
        help_ = "a process keeps on reading: end what has the file open, such as another tool"
        checks.append(Check("log", found.log <= LARGEST_LOG, f"{size(found.log)} of write-ahead log", help_))
    looks = (_clock, _workers, _stuck, _letters, _breakers, _queues)
    return [*checks, *(look(found) for look in looks), *_rings(found), *_crawls(found)]


def task_check(found: Findings, known: Container[str]) -> Check:
    """Whether there are jobs, not done yet or dead letters, of tasks that the app does not know.

    Letters of rings and pages of crawls are no task's: the process that has the ring, or is on the crawl, takes them.
    """
    unknown: dict[str, int] = {}
    for tally in found.stats.tallies:
        is_open = tally.state is _DEAD or not tally.state.is_terminal
        if is_open and tally.task not in known and not tally.queue.startswith((RING_QUEUE, CRAWL_QUEUE)):
            unknown[tally.task] = unknown.get(tally.task, 0) + tally.n
    if not unknown:
        return Check("tasks", True, "the app knows the tasks of all jobs")
    names = short(", ".join(f"{name} ({many(n, 'job')})" for name, n in sorted(unknown.items())), _MOST)
    help_ = "import the task's module where the app is, or cancel its jobs"
    return Check("tasks", False, f"the app does not know {names}", help_)


def stream_checks(lags: Sequence[StreamLag]) -> list[Check]:
    """Whether the server of each stream answers, and how far its group is behind."""
    return [
        Check(
            f"stream {one.name}",
            not one.error,
            one.error or f"{one.location} as {one.group}: {many(one.lag or 0, 'message')} behind",
            "start the server, or mend the URL of @app.stream",
        )
        for one in lags
    ]


def _store(found: Findings) -> Check:
    kind = found.capabilities
    return Check("store", True, f"{kind.location} ({kind.version})" if kind.version else kind.location)


def _schema(found: Findings) -> list[Check]:
    schema = found.capabilities.schema
    return [Check("schema", True, schema)] if schema else []


def _durability(found: Findings) -> Check:
    kind = found.capabilities
    label = "" if kind.is_durable else "not durable: "
    help_ = "`docs/how-to/choose-a-store.md` says what each store survives, and what to set"
    return Check("durability", kind.is_durable, f"{label}{kind.durability}", help_)


def _warnings(found: Findings) -> list[Check]:
    return [Check("warning", False, line) for line in found.capabilities.warnings]


def _latency(found: Findings) -> Check:
    took_s = found.took_s
    middle_s = took_s[len(took_s) // 2]
    text = f"p50 {middle_s * 1000:.1f} ms, max {took_s[-1] * 1000:.1f} ms for an empty exchange"
    help_ = "the store is far away or busy: every batch waits so long; put workers near it, or give it a quicker disk"
    return Check("latency", middle_s <= SLOW_S, text, help_)


def _clock(found: Findings) -> Check:
    apart_s = found.apart_s
    text = "the store's clock is this machine's"
    if abs(apart_s) > SKEW_S:
        text = f"the store's clock is {length(abs(apart_s))} {'ahead of' if apart_s > 0 else 'behind'} this machine's"
    elif abs(apart_s) >= 0.001:
        text = f"the store's clock is within {length(abs(apart_s))} of this machine's"
    help_ = (
        "leases and delays go by the store's clock alone and are right; but instants you give or see are off: use NTP"
    )
    return Check("clock", abs(apart_s) <= SKEW_S, text, help_)


def _workers(found: Findings) -> Check:
    workers = [worker for worker in found.stats.workers if takes_jobs(worker)]
    if workers:
        running = sum(worker.running for worker in workers)
        return Check("workers", True, f"{many(len(workers), 'worker')} alive, {many(running, 'job')} running")
    to_do = sum(
        tally.n
        for tally in found.stats.tallies
        if not tally.state.is_terminal and not tally.queue.startswith(CRAWL_QUEUE)
    )
    text = f"none, and {many(to_do, 'job') if to_do else 'nothing'} to do"
    return Check("workers", not to_do, text, "holdfast worker TARGET")


def _stuck(found: Findings) -> Check:
    stats = found.stats
    late = {
        queue: at
        for queue, at in stats.oldest_ready_at.items()
        if stats.now - at > STUCK_S and not queue.startswith(CRAWL_QUEUE)  # pages wait for their turn by design
    }
    names = ", ".join(f"{queue} (due {ago(at, stats.now)})" for queue, at in late.items() if queue not in found.paused)
    help_ = "more workers, or one for these queues; a breaker, a limit or an unknown task may hold them back"
    if rings := [queue.removeprefix(RING_QUEUE) for queue in late if queue.startswith(RING_QUEUE)]:
        help_ = f"start the program that has the ring {short(', '.join(rings), _MOST)}: no worker takes its letters"
        help_ += "" if len(rings) == len(late) else "; for the others, more workers, or one for these queues"
    if not names or not stats.workers:
        return Check("stuck jobs", True, "none")
    return Check("stuck jobs", False, f"in {short(names, _MOST)}", help_)


def _letters(found: Findings) -> Check:
    n = found.count(_DEAD)
    return Check("dead letters", n == 0, str(n) if n else "none", "holdfast dlq groups")


def _breakers(found: Findings) -> Check:
    crawls = crawl_names(found.stats, ())
    names = ", ".join(
        f"{key} ({mode.value})"
        for key, mode in sorted(found.breakers.items())
        if mode is not _CLOSED and not is_of_crawl(key, crawls)
    )
    help_ = "`holdfast breakers` shows the cause; `holdfast breakers reset KEY` closes one by hand"
    return Check("breakers", not names, short(names, _MOST) or "all closed", help_)


def _queues(found: Findings) -> Check:
    names = ", ".join(found.paused)
    return Check("queues", not names, f"paused: {names}" if names else "none is paused", "holdfast queues resume NAME")


def _rings(found: Findings) -> list[Check]:
    """Whether the rings that live processes report are well; nothing where there are none."""
    views = ring_views(found.stats)
    if not views:
        return []
    lines = [line for view in views for line in troubles(view)]
    text = redacted_text(in_one_line(lines)) or f"{many(len(views), 'ring')}, every consumer moves"
    return [Check("rings", not lines, text, "`holdfast rings` shows every consumer; its process's log says more")]


def _crawls(found: Findings) -> list[Check]:
    """Whether the crawls that processes are on can write their items; nothing where there are none."""
    views = [view for view in crawl_views(found.stats, ()) if view.processes]
    if not views:
        return []
    lines = [line for view in views for line in unwritten(view)]
    text = redacted_text(in_one_line(lines)) or f"{many(len(views), 'crawl')}, items can be written"
    return [
        Check(
            "crawls",
            not lines,
            text,
            "make room, or mend the place that items are written to: until then they are kept with their pages",
        )
    ]
