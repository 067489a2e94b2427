"""How rings are doing, put together from what their processes have reported last and what the inbox holds of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias

from msgspec.structs import asdict

from holdfast.errors import CheckpointError, RingStuck
from holdfast.ports import ConsumerReport, RingReport, Stats, WorkerRecord
from holdfast.runtime.streams.progress import in_one_line
from holdfast.types import JobState

ConsumerState: TypeAlias = Literal["idle", "running", "waiting", "stuck"]
"""What a consumer is at: nothing, its batch, something else (`doing` says what), or one batch for too long."""

_LONGEST_WHY: Final = 200


class ConsumerView(ConsumerReport, frozen=True, kw_only=True):
    """A consumer of a ring in one process: what it reported last, and what the inbox holds of it."""

    in_inbox: int = 0
    """Dead letters of it that are in the inbox now, whichever process has written them."""

    @property
    def state(self) -> ConsumerState:
        """What it is at."""
        if self.is_stuck:
            return "stuck"
        if self.doing:
            return "waiting"
        return "running" if self.running_s > 0.0 else "idle"

    @property
    def mean_s(self) -> float | None:
        """How long a batch has taken, on the average; None before the first."""
        return self.batch_s / self.batches if self.batches else None


class RingView(RingReport, frozen=True, kw_only=True):
    """A ring in one process, as of its last heartbeat. A name that several processes use is there once for each."""

    worker: str
    host: str
    pid: int
    seen_at: float
    """When the store heard of it last."""
    consumers: tuple[ConsumerView, ...] = ()


def task_of(ring: str, consumer: str) -> str:
    """The name that the dead letters of a consumer are kept under."""
    return f"{ring}/{consumer}"


def takes_jobs(worker: WorkerRecord) -> bool:
    """Whether it runs jobs: a ring's process takes up letters of its ring, a crawl's its pages, and nothing else."""
    return not worker.rings and not worker.crawls


def ring_views(stats: Stats) -> list[RingView]:
    """Every ring that a live process reports, by name, host and process."""
    letters: dict[str, int] = {}
    for tally in stats.tallies:
        if tally.state is JobState.DEAD_LETTER:
            letters[tally.task] = letters.get(tally.task, 0) + tally.n
    found = [_view(worker, report, letters) for worker in stats.workers for report in worker.rings]
    return sorted(found, key=lambda one: (one.name, one.host, one.pid, one.worker))


def _view(worker: WorkerRecord, report: RingReport, letters: dict[str, int]) -> RingView:
    consumers = tuple(
        ConsumerView(**asdict(one), in_inbox=letters.get(task_of(report.name, one.name), 0)) for one in report.consumers
    )
    fields = asdict(report) | {"consumers": consumers}
    return RingView(**fields, worker=worker.id, host=worker.host, pid=worker.pid, seen_at=worker.seen_at)


def refuse_troubled(views: Sequence[RingView]) -> None:
    """Raise RingStuck where a consumer is stuck, CheckpointError where a checkpoint cannot be saved; one line each."""
    stuck = {task_of(view.name, one.name): one.lag for view in views for one in view.consumers if one.is_stuck}
    lines = [line for view in views for line in troubles(view)]
    if stuck:
        raise RingStuck(in_one_line(lines), stuck)
    if lines:
        raise CheckpointError(in_one_line(lines))


def troubles(view: RingReport) -> Iterator[str]:
    """A line for each thing that keeps a ring from moving, or from starting again where it was; what is stuck first."""
    for one in sorted(view.consumers, key=lambda one: -one.running_s):
        if one.is_stuck:
            doing = f", {_cut(one.doing)}" if one.doing else ""
            since = f"has been at batch {one.batch} for {one.running_s:.0f} s{doing}"
            yield f"ring {view.name}: consumer {one.name} {since}"
    for one in view.consumers:
        if one.checkpoint_error:
            why = _cut(one.checkpoint_error)
            yield f"ring {view.name}: the checkpoint of consumer {one.name} cannot be saved: {why}"


def names_of(views: Iterable[RingView]) -> list[str]:
    """Their names, each once."""
    return sorted({view.name for view in views})


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_WHY else line[: _LONGEST_WHY - 1] + "…"
