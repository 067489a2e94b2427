"""A soak as it was planned, as it was seen, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tests.faults.soak_verdicts import Verdict


class Plan(Struct, frozen=True, kw_only=True):
    """How a soak is made.

    work_s: what a job takes, about; so it is the places of the workers that are used up, and not the processors.
    share: of the measured drain rate, as the load. burst_s: how long that is measured. limit_s: the backlog may be the
    work of so many seconds. kills: it goes on until there were so many. amid_s: so long a victim is looked at for a
    moment at which a job runs in it, and then killed anyway: it is stopped for each look, perhaps with SQLite's write
    lock, for which all others wait. keep_s: jobs are pruned so long after their
    end. One of the processes is spared by all kills: what it takes is judged over the whole run.
    """

    store: str
    seconds: float
    processes: int = 4
    concurrency: int = 8
    threads: int = 4
    work_s: float = 0.03
    share: float = 0.8
    burst_s: float = 15.0
    sample_s: float = 5.0
    look_s: float = 1.0
    kill_s: tuple[float, float] = (3.0, 5.0)
    kills: int = 1
    amid_s: float = 0.2
    ask_s: float = 3.0
    replay_s: float = 10.0
    keep_s: float = 20.0
    lease_s: float = 5.0
    limit_s: float = 15.0

    @property
    def slots(self) -> int:
        """Jobs that run at a time."""
        return self.processes * (self.concurrency + self.threads + 1)


class Seen(Struct, kw_only=True):
    """What was seen from outside while it went on, beside the ledgers."""

    samples: list[dict[str, float]] = field(default_factory=list)
    killed: dict[int, float] = field(default_factory=dict)
    """When which process was, in monotonic time."""
    hits: int = 0
    """Kills that cut off a running job."""
    gaps_s: list[float] = field(default_factory=list)
    """How long ago workers that live were heard of, at each look."""
    answers_s: list[float] = field(default_factory=list)
    """How long the server took for each of its answers."""
    complaints: list[str] = field(default_factory=list)
    """Answers of the server that were none."""
    miscounts: list[str] = field(default_factory=list)
    """Looks at which the store's counts did not go with the ledgers, or the page's with the store's."""
    letters: set[int] = field(default_factory=set)
    """Jobs that had to be dead letters at a look, and were looked for."""
    missed: set[int] = field(default_factory=set)
    """Those of them that were not there."""
    pages: int = 0
    """Looks at which the page's counts were compared with the store's."""
    codes: dict[str, int] = field(default_factory=dict)
    """With what the programs ended when they were asked to."""
    log: str = ""
    """The supervisor's."""
    start_s: float = 0.0
    """How long a worker took to start, at most, while others worked."""
    rate: float = 0.0
    drain_rate: float = 0.0
    drained_s: float = 0.0
    """From the last job's enqueueing until every job had ended."""
    ticked_s: tuple[float, float] = (0.0, 0.0)
    """For how long the schedule ran: since all workers were there, and since the first may have been."""


class Soaked(Struct, frozen=True, kw_only=True):
    """What came of a soak."""

    store: str
    minutes: float
    rate: float
    """Jobs a second that were enqueued."""
    drain_rate: float
    """Jobs a second that workers do on this machine, killed as under the load, with a producer and a server beside."""
    done: int
    kills: int
    hits: int
    """Kills that cut off a running job."""
    acked: int
    refused: int
    """Times that the producer was told no, and asked again."""
    lost: int
    twice: int
    dead: int
    """Jobs that failed for good, and none of whose letters was missing while it had to be there."""
    recoveries_s: Sequence[float]
    seed: str
    samples: Sequence[Mapping[str, float]]
    verdicts: Sequence[Verdict]

    @property
    def is_kept(self) -> bool:
        """Whether everything held."""
        return all(one.is_kept for one in self.verdicts)
