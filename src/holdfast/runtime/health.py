"""How an app is: its checks, what its store counts, and the score of both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.policy.health import LATELY_MIN, Signs, Status, reasons_of, score_of, status_of
from holdfast.ports import Capabilities, Clock, Count, Exchange, Exchanged, Stats, Store
from holdfast.runtime.checks import CheckResult, CheckRunner, HealthCheck
from holdfast.runtime.crawl_origins import QUEUE as CRAWL_QUEUE
from holdfast.runtime.crawl_trouble import crawl_names, of_tasks, refuse_unwritten
from holdfast.runtime.crawls import crawl_views
from holdfast.runtime.machine import check_file, check_memory
from holdfast.runtime.ring_origins import QUEUE as RING_QUEUE
from holdfast.runtime.rings import refuse_troubled, ring_views, takes_jobs
from holdfast.runtime.shared.by_hand import BreakerView, breaker_views
from holdfast.runtime.shared.guards import is_paused
from holdfast.runtime.shared.names import QUEUE
from holdfast.runtime.streams.views import StreamView, stream_views
from holdfast.types import BreakerMode, JobState

STORE: Final = "store"
DISK: Final = "disk"
MEMORY: Final = "memory"
STREAMS: Final = "streams"
RINGS: Final = "rings"
CRAWLS: Final = "crawls"
UPKEEP: Final = "upkeep"
BUILT_IN: Final = (STORE, DISK, MEMORY, STREAMS, RINGS, CRAWLS, UPKEEP)
"""The names of the checks that every app has; the last four only where it has streams, or a process reports a ring, or
a crawl, or the store's engine has an upkeep of its own."""

WRITTEN: Final = "health_writes"
"""What is counted by the check of the store, so that it writes something; it travels to nobody."""
WRITE_S: Final = 10.0
"""How often a process writes it at most."""

_TIMEOUT_S: Final = 5.0
_OPEN: Final = frozenset({BreakerMode.OPEN, BreakerMode.FORCED_OPEN})
_UNKNOWN: Final = "unknown, as the store has not been reached yet"


class Health(Struct, frozen=True, kw_only=True):
    """How an app is, as `app.health()` answers."""

    healthy: bool
    """False only where the status is "unhealthy"."""
    status: Status
    score: float
    """From 0 to 1; `policy/health.py` has the table."""
    reasons: tuple[str, ...]
    """A short sentence for each thing that takes something off the score; none at a score of 1."""
    success_rate: float | None
    """The share of the attempts of the last five minutes that completed their job; None without any."""
    open_breakers: tuple[str, ...]
    """Keys, sorted; those held open by hand too."""
    dead_letters: int
    workers: int
    durability: str
    """What survives what, in one sentence; a label, and never a reason for a lower score."""
    is_durable: bool
    """Whether what the store has said yes to survives a power cut."""
    checks: Mapping[str, CheckResult]


class Look(Struct, frozen=True, kw_only=True):
    """One look into a store."""

    reply: Exchanged
    stats: Stats
    breakers: tuple[BreakerView, ...]
    paused: frozenset[str]
    """Queues."""
    asked: Mapping[str, int] = {}
    """The lag of streams that no worker reports, by name, where their servers were asked for it."""

    @property
    def streams(self) -> list[StreamView]:
        """Every stream that a worker reports."""
        return stream_views(self.stats, ())

    @property
    def lags(self) -> dict[str, int]:
        """The lag of every stream whose lag is known, by name."""
        reported = {view.name: view.lag for view in self.streams if view.lag is not None}
        return dict(self.asked) | reported

    def lag_s(self, queue: str | None = None) -> float | None:
        """For how long the oldest job that could run has been due, of one queue or of all; None where there is none.

        Jobs of a paused queue could not run. Pages of a crawl wait for their turn by design, for days if there are
        many, so that only whoever asks for their queue is told.
        """
        at = [
            ready_at
            for name, ready_at in self.stats.oldest_ready_at.items()
            if name not in self.paused and (name == queue or (queue is None and not name.startswith(CRAWL_QUEUE)))
        ]
        return max(0.0, self.stats.now - min(at)) if at else None

    @property
    def workers(self) -> int:
        """Live workers that run jobs."""
        return sum(map(takes_jobs, self.stats.workers))

    @property
    def takers(self) -> int:
        """Live workers that could take something of what is due; the process of a ring takes its letters alone.

        A crawl that nobody is on is stopped, which is no illness.
        """
        ready = (queue for queue in self.stats.oldest_ready_at if not queue.startswith(CRAWL_QUEUE))
        due = [queue for queue in ready if queue not in self.paused]
        is_of_rings = all(queue.startswith(RING_QUEUE) for queue in due)
        return len(self.stats.workers) if is_of_rings else self.workers

    @property
    def dead_letters(self) -> int:
        """How many there are."""
        return sum(tally.n for tally in self.stats.tallies if tally.state is JobState.DEAD_LETTER)

    @property
    def open_breakers(self) -> tuple[str, ...]:
        """The keys of those that let nothing through."""
        return tuple(view.key for view in self.breakers if view.mode in _OPEN)

    @property
    def crawls(self) -> frozenset[str]:
        """The names of those that the store knows of."""
        return crawl_names(self.stats, self.reply.values)

    def count(self, name: str, minutes: int = LATELY_MIN) -> int:
        """How many were counted under a name in the latest minutes, without the pages of crawls.

        A page that is missing, or a site that is down, says nothing of how this system is.
        """
        since = int(self.stats.now // 60) - minutes
        lately = [count for count in self.stats.counts if count.name == name and count.minute > since]
        return sum(count.n for count in lately if not count.task.startswith(CRAWL_QUEUE))

    def success_rate(self, minutes: int = LATELY_MIN) -> float | None:
        """The share of the latest attempts that completed their job; None without any."""
        completed = self.count("completed", minutes)
        ended = completed + self.count("retried", minutes) + self.count("failed", minutes)
        return completed / ended if ended else None


async def look_into(store: Store, minutes: int = LATELY_MIN) -> Look:
    """Look into a store: an empty exchange, then what it counts."""
    reply = await store.exchange(Exchange())
    stats = await store.stats(int(reply.now // 60) - minutes)
    return Look(
        reply=reply,
        stats=stats,
        breakers=tuple(breaker_views(reply.values, reply.now)),
        paused=frozenset(
            value.key.removeprefix(QUEUE)
            for value in reply.values
            if value.key.startswith(QUEUE) and is_paused(value.data)
        ),
    )


class Examiner:
    """Examines one app, again and again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._runner = CheckRunner(clock)
        self._written_s: float | None = None
        self._capabilities: Capabilities | None = None
        self.checks: dict[str, HealthCheck] = {}
        """Those that users have added, by name."""

    async def examine(
        self,
        store: Store,
        file: Path | None,
        breakers: Collection[str],
        streams: Callable[[], Awaitable[None]] | None = None,
    ) -> Health:
        """Run every check and score what is found. Raises nothing, however ill the store is.

        file: the store's, if it is one. breakers: the keys that the app's tasks use. streams: whether
        the app's streams move, where it has any.
        """
        built_in = self._built_in(store, file)
        if streams is not None:
            built_in.append(HealthCheck(name=STREAMS, look=streams, timeout_s=_TIMEOUT_S))
        outcomes = await self._runner.run([*built_in, *self.checks.values()])
        found: Look | None = outcomes[STORE].value
        if found is not None:
            self._remember(store)
            outcomes |= await self._runner.run([*_of_upkeep(found), *_of_rings(found), *_of_crawls(found)])
        results = {name: outcome.result for name, outcome in outcomes.items()}
        failed = {name for name, result in results.items() if result.status != "ok"}
        is_critical = STORE in failed or any(self.checks[name].is_critical for name in failed - {*BUILT_IN})
        signs = _signs(found, breakers, len(failed), is_critical=is_critical)
        score = score_of(signs)
        status = status_of(score)
        kind = self._capabilities
        open_breakers = () if found is None else found.open_breakers
        return Health(
            healthy=status != "unhealthy",
            status=status,
            score=score,
            reasons=reasons_of(
                signs,
                open_breakers=() if found is None else of_tasks(open_breakers, found.crawls),
                failed_checks=sorted(failed),
            ),
            success_rate=None if found is None else found.success_rate(),
            open_breakers=open_breakers,
            dead_letters=0 if found is None else found.dead_letters,
            workers=0 if found is None else found.workers,
            durability=_UNKNOWN if kind is None else kind.durability,
            is_durable=kind is not None and kind.is_durable,
            checks=results,
        )

    def _built_in(self, store: Store, file: Path | None) -> list[HealthCheck]:
        async def look() -> Look:
            found = await look_into(store)
            await self._write(store, found.stats.now)
            return found

        checks = [
            HealthCheck(name=STORE, look=look, timeout_s=_TIMEOUT_S, is_critical=True),
            HealthCheck(name=MEMORY, look=check_memory, timeout_s=_TIMEOUT_S),
        ]
        if file is not None:
            checks.append(HealthCheck(name=DISK, look=partial(check_file, file), timeout_s=_TIMEOUT_S))
        return checks

    async def _write(self, store: Store, now: float) -> None:
        """Count this look, now and then: a store that is full, or a copy of another, still answers what is read."""
        now_s = self._clock.monotonic()
        if self._written_s is None or now_s - self._written_s >= WRITE_S:
            await store.exchange(Exchange(counts=[Count(int(now // 60), "", WRITTEN, 1)]))
            self._written_s = now_s

    def _remember(self, store: Store) -> None:
        """What a store survives is told also while it is away."""
        try:
            self._capabilities = store.capabilities
        except StoreError:
            return  # it went away since it was looked into: what was known before still holds


def _of_upkeep(found: Look) -> list[HealthCheck]:
    """Whether the store's engine keeps up, by the look that was taken; none where it has no upkeep."""
    troubles = found.stats.troubles

    async def look() -> None:
        if troubles:
            raise StoreError("; ".join(troubles))

    return [] if troubles is None else [HealthCheck(name=UPKEEP, look=look, timeout_s=_TIMEOUT_S)]


def _of_rings(found: Look) -> list[HealthCheck]:
    """Whether the rings that live processes report are well, by the look that was taken; none where there are none."""
    views = ring_views(found.stats)

    async def look() -> None:
        refuse_troubled(views)

    return [HealthCheck(name=RINGS, look=look, timeout_s=_TIMEOUT_S)] if views else []


def _of_crawls(found: Look) -> list[HealthCheck]:
    """Whether the crawls that live processes report can write their items; none where no process is on one."""
    views = [view for view in crawl_views(found.stats, found.reply.values) if view.processes]

    async def look() -> None:
        refuse_unwritten(views)

    return [HealthCheck(name=CRAWLS, look=look, timeout_s=_TIMEOUT_S)] if views else []


def _signs(found: Look | None, breakers: Collection[str], failed_checks: int, *, is_critical: bool) -> Signs:
    if found is None:
        return Signs(is_critical=True)
    lag_s = found.lag_s()
    crawls = found.crawls
    return Signs(
        is_critical=is_critical,
        success_rate=found.success_rate(),
        breakers=len({*of_tasks([view.key for view in found.breakers], crawls), *breakers}),
        open_breakers=len(of_tasks(found.open_breakers, crawls)),
        failed_checks=failed_checks,
        workers=found.takers,
        is_due=lag_s is not None,
        lag_s=lag_s or 0.0,
        new_letters=found.count("dead"),
    )
