"""How far a crawl is, and what became of a run: records, and how they are worked out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from holdfast.ports import DomainReport, Stats
from holdfast.runtime.crawl_origins import queue_of
from holdfast.types import JobState

_LATELY_S: Final = 5.0
_RATED_S: Final = 0.2


class Progress(Struct, frozen=True, kw_only=True):
    """How far a crawl is, over all of its processes; counts with "here" are of this run."""

    name: str
    done: int = 0
    pending: int = 0
    waiting: int = 0
    """Of the pending: those that wait for a time, such as a retry."""
    dead: int = 0
    skipped: int = 0
    in_flight: int = 0
    done_here: int = 0
    failed_here: int = 0
    """Attempts that failed here."""
    items_here: int = 0
    rate_per_s: float = 0.0
    """Pages done here lately, a second."""
    eta_s: float | None = None
    held: Mapping[str, float] = {}
    """Domains that nothing is asked of now, and for how many seconds still."""


class CrawlSummary(Struct, frozen=True, kw_only=True):
    """What became of a run."""

    name: str
    is_finished: bool
    """Whether nothing was left to do; otherwise the next run goes on."""
    done: int = 0
    """Pages done, in all runs."""
    pending: int = 0
    dead: int = 0
    skipped: int = 0
    done_here: int = 0
    items_here: int = 0
    took_s: float = 0.0
    not_followed: Mapping[str, int] = {}
    """Links that were not followed here, by why."""


class Rate:
    """Pages a second, lately."""

    def __init__(self, began_s: float) -> None:
        self.per_s = 0.0
        self._began_s = began_s
        self._noted_s = began_s
        self._done = 0

    def note(self, now_s: float, done: int) -> None:
        """So many are done by now."""
        passed_s = now_s - self._noted_s
        if passed_s < _RATED_S:
            return
        rate = (done - self._done) / passed_s
        weight = 1.0 if self._noted_s == self._began_s else 1.0 - math.exp(-passed_s / _LATELY_S)
        self.per_s += weight * (rate - self.per_s)
        self._noted_s, self._done = now_s, done


def progress_of(
    name: str,
    stats: Stats,
    *,
    rate_per_s: float,
    reports: Iterable[DomainReport],
    done_here: int,
    failed_here: int,
    items_here: int,
) -> Progress:
    """How far the crawl of this name is, by what the store has and its domains say."""
    queue = queue_of(name)
    n = dict.fromkeys(JobState, 0)
    for tally in stats.tallies:
        if tally.queue == queue:
            n[tally.state] += tally.n
    pending = sum(count for state, count in n.items() if not state.is_terminal)
    return Progress(
        name=name,
        done=n[JobState.COMPLETED],
        pending=pending,
        waiting=n[JobState.WAITING] + n[JobState.RETRYING],
        dead=n[JobState.DEAD_LETTER],
        skipped=n[JobState.CANCELLED] + n[JobState.FAILED],
        in_flight=n[JobState.RUNNING],
        done_here=done_here,
        failed_here=failed_here,
        items_here=items_here,
        rate_per_s=rate_per_s,
        eta_s=pending / rate_per_s if pending and rate_per_s > 0.0 else None,
        held={one.domain: one.held_s for one in reports if one.held_s > 0.0},
    )
