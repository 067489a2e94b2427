"""What is seen of a world beside its ledgers: permits and periods of the breaker, and who was well when others died."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Final

from msgspec import Struct, field

from holdfast.policy.breaker import Permit
from holdfast.runtime.shared.breakers import read_breaker
from holdfast.runtime.shared.names import breaker_gate
from holdfast.stores.memory.store import MemoryStore
from tests.simulation.parts import SimClock

_GATE: Final = breaker_gate("other")


class Life(Struct):
    """A worker, from its start to its end."""

    born_s: float
    ended_s: float = math.inf
    """From here on it looks after nothing any more: it was killed, or told to stop."""
    ills: list[tuple[float, float]] = field(default_factory=list)
    """From when until when something was wrong with it, or with its way to the store."""

    def is_well(self, since_s: float, until_s: float) -> bool:
        """Whether nothing was wrong in all that time."""
        return not any(first <= until_s and since_s <= last for first, last in self.ills)

    def overlaps(self, since_s: float, until_s: float) -> bool:
        """Whether it lived in any of that time."""
        return self.born_s <= until_s and since_s < self.ended_s


class Orphan(Struct, frozen=True):
    """A job that a worker held when it was killed."""

    job: str
    machine: int
    at: float


class Watch:
    """One world's."""

    def __init__(self, store: MemoryStore, clock: SimClock) -> None:
        self._store = store
        self._clock = clock
        self.lives: dict[int, Life] = {}
        """Of workers, by the number of their machine."""
        self.orphans: list[Orphan] = []
        self.changes: defaultdict[str, list[float]] = defaultdict(list)
        """When the state of each job changed."""
        self.claims: dict[tuple[str, str], float] = {}
        """When each job was handed out under each token."""
        self.permits: dict[tuple[str, str], Permit] = {}
        """The breaker's, by job and token."""
        self.periods: dict[int, float] = {}
        """The periods of the breaker, and when the store first had each."""
        self.releases: set[tuple[int, float]] = set()
        """Which machines went on at which instant after they had been held."""
        self._see_values()

    def born(self, machine: int) -> None:
        """A worker begins."""
        self.lives[machine] = Life(self._clock.monotonic())

    def ends(self, machine: int) -> None:
        """It is told to stop, or has left."""
        life = self.lives[machine]
        life.ended_s = min(life.ended_s, self._clock.monotonic())

    def killed(self, machine: int, worker: str) -> None:
        """A worker is gone; what it held is whoever's finds it."""
        self.ends(machine)
        now_s = self._clock.monotonic()
        self.lives[machine].ills.append((now_s, now_s))
        held = self._store._workers.get(worker)
        if held is not None:
            self.orphans += [Orphan(job, machine, now_s) for jobs in held.held.values() for job in jobs]

    def ill(self, machine: int, lasts_s: float) -> None:
        """Something is wrong with it for so long."""
        if machine in self.lives:
            now_s = self._clock.monotonic()
            self.lives[machine].ills.append((now_s, now_s + lasts_s))

    def changed(self, job: str, after: str, token: str) -> None:
        """The store has changed the state of a job."""
        now_s = self._clock.monotonic()
        self.changes[job].append(now_s)
        if after == "running":
            self.claims.setdefault((job, token), now_s)

    def over_at(self, period: int) -> float:
        """When the store first had a later period of the breaker."""
        return min((at for other, at in self.periods.items() if other > period), default=math.inf)

    def _see_values(self) -> None:
        values = self._store._values
        change = values.change

        def seen(one: object, now: float) -> bool:
            is_done = change(one, now)  # type: ignore[arg-type]
            value = values._values.get(_GATE)
            if is_done and value is not None and value.data is not None:
                breaker = read_breaker(value.data)
                assert breaker is not None
                self.periods.setdefault(breaker.state.period, self._clock.monotonic())
            return is_done

        values.change = seen  # type: ignore[method-assign, assignment]
