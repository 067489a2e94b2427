"""How crawls are doing, put together from what is stored of them and what their processes have reported last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.ports import CrawlReport, Stats, Value
from holdfast.runtime.crawl_origins import QUEUE, queue_of
from holdfast.runtime.this_process import is_dead
from holdfast.types import JobState

CrawlState: TypeAlias = Literal["running", "stopped", "finished"]
"""What a crawl is at: some process is on it; there is work left and none is; or nothing is left to do."""

VALUE: Final = "crawl:"
"""What is stored of a crawl is the value of this key and its name."""


class CrawlRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is stored of a crawl itself."""

    seeds: tuple[str, ...] = ()
    """Where it began; at most the first few."""
    domains: tuple[str, ...] = ()
    """The domains of all seeds, and of where these redirect to: links within them are followed."""
    started_at: float = 0.0
    finished_at: float | None = None
    """When nothing was left to do, the last time; None while there is."""

    @property
    def id(self) -> str:
        """Tells a crawl from an earlier one of the same name, which was removed since."""
        return f"{self.started_at:.6f}"


class CrawlProcess(CrawlReport, frozen=True, kw_only=True):
    """A crawl in one process, as of its last heartbeat."""

    worker: str
    host: str
    pid: int
    seen_at: float


class CrawlView(Struct, frozen=True, kw_only=True):
    """One crawl, over all of its processes."""

    name: str
    state: CrawlState
    seeds: tuple[str, ...] = ()
    started_at: float = 0.0
    finished_at: float | None = None
    done: int = 0
    """Pages that were fetched and parsed."""
    pending: int = 0
    """Pages that wait for their turn, those in flight among them."""
    waiting: int = 0
    """Of these, pages that wait for a time: a retry, a domain that is held, or a breaker."""
    dead: int = 0
    """Pages that were given up; they are in the inbox."""
    skipped: int = 0
    """Pages that robots.txt, a handler or a person has left out."""
    in_flight: int = 0
    rate_per_s: float = 0.0
    """Pages that were done lately, a second, by all of its processes."""
    processes: tuple[CrawlProcess, ...] = ()

    @property
    def eta_s(self) -> float | None:
        """Seconds until what is known now is done, at the rate of now; None where nobody can say."""
        return self.pending / self.rate_per_s if self.pending and self.rate_per_s > 0.0 else None


_decode: Final = msgspec.json.Decoder(CrawlRecord).decode
encode_record: Final = msgspec.json.Encoder().encode

_SKIPPED: Final = frozenset({JobState.CANCELLED, JobState.FAILED})
_TIMED: Final = frozenset({JobState.WAITING, JobState.RETRYING})


def read_record(data: bytes | None) -> CrawlRecord | None:
    """What is stored of a crawl; None where that is nothing, or nothing that can be read."""
    try:
        return None if data is None else _decode(data)
    except (ValueError, RecursionError):
        return None


def crawl_views(stats: Stats, values: Iterable[Value]) -> list[CrawlView]:
    """Every crawl that the store knows of, by name."""
    records: dict[str, CrawlRecord] = {}
    for value in values:
        name = value.key.removeprefix(VALUE)
        if value.key.startswith(VALUE) and "/" not in name and (record := read_record(value.data)) is not None:
            records[name] = record
    tallies: dict[str, dict[JobState, int]] = {}
    for tally in stats.tallies:
        if tally.queue.startswith(QUEUE) and tally.n:
            of_crawl = tallies.setdefault(tally.queue.removeprefix(QUEUE), {})
            of_crawl[tally.state] = of_crawl.get(tally.state, 0) + tally.n
    processes: dict[str, list[CrawlProcess]] = {}
    for worker in stats.workers:
        for report in () if worker.crawls and is_dead(worker, stats.now) else worker.crawls:
            about = {"worker": worker.id, "host": worker.host, "pid": worker.pid, "seen_at": worker.seen_at}
            processes.setdefault(report.name, []).append(CrawlProcess(**asdict(report), **about))  # type: ignore[arg-type]
    names = sorted(records.keys() | tallies.keys() | processes.keys())
    return [_view(name, records.get(name), tallies.get(name, {}), processes.get(name, [])) for name in names]


def pending_in(stats: Stats, crawl: str) -> int:
    """How many pages of a crawl have not ended."""
    queue = queue_of(crawl)
    return sum(tally.n for tally in stats.tallies if tally.queue == queue and not tally.state.is_terminal)


def _view(
    name: str, record: CrawlRecord | None, tallies: dict[JobState, int], processes: Sequence[CrawlProcess]
) -> CrawlView:
    pending = sum(n for state, n in tallies.items() if not state.is_terminal)
    state: CrawlState = "running" if processes else "stopped" if pending else "finished"
    about = record or CrawlRecord()
    return CrawlView(
        name=name,
        state=state,
        seeds=about.seeds,
        started_at=about.started_at,
        finished_at=about.finished_at if state == "finished" else None,
        done=tallies.get(JobState.COMPLETED, 0),
        pending=pending,
        waiting=sum(n for state, n in tallies.items() if state in _TIMED),
        dead=tallies.get(JobState.DEAD_LETTER, 0),
        skipped=sum(n for state, n in tallies.items() if state in _SKIPPED),
        in_flight=tallies.get(JobState.RUNNING, 0),
        rate_per_s=sum(one.rate_per_s for one in processes),
        processes=tuple(sorted(processes, key=lambda one: (one.host, one.pid, one.worker))),
    )
