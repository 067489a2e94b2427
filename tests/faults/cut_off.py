"""A host that is cut off from the store: what runs on it then, what it says too late, and who goes on meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence, Fault
from tests.faults.gate_shop import TARGET
from tests.faults.hosts import Host
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll, recovery_bound
from tests.servers import children

LEASE_S: Final = 1.5
EACH: Final = 2
"""Jobs whose first run ends while the host is cut off, within its lease; and jobs whose first run does not."""
CUT_S: Final = 3 * LEASE_S
_SETTINGS: Final = replace(
    SETTINGS, room=Room(concurrency=2 * EACH, threads=2, isolates=1), lease_s=LEASE_S, heartbeat_s=LEASE_S / 5
)
_TEXT: Final = msgspec.json.encode(_SETTINGS).decode()


def supervised(fleet: Fleet, arena: Arena, host: Host, env: Mapping[str, str] = {}) -> int:
    """A supervisor with one worker on a host; the supervisor's id."""
    return host.run(fleet, arena.engine.url, "tests.faults.supervise", _TEXT, "1", TARGET, env=env)


class Strike:
    """One cut: jobs run on one host, another is ready to take over, and then something is done to the first one."""

    def __init__(self, arena: Arena, fleet: Fleet, supervisor: int, here: Host, env: Mapping[str, str] = {}) -> None:
        self._arena = arena
        gates = [arena.folder / f"gate-{len(arena.client.acked)}-{n}" for n in range(2)]
        self._gate = gates[0]
        jobs = arena.enqueue([arena.call("held", str(gate)) for gate in gates for _ in range(EACH)])
        self.finished, self.unfinished = jobs[:EACH], jobs[EACH:]
        poll(lambda: {one.job for one in arena.effects()} >= set(jobs), 20, "all jobs run on the only host")
        (self.victim,) = children(supervisor)
        began_s = CLOCK.monotonic()
        self.other = here.run(fleet, arena.engine.url, "holdfast.runtime.process", TARGET, _TEXT, env=env)
        poll(lambda: self.other in {worker.pid for worker in arena.stats().workers}, 20, "the other worker is there")
        self._start_s = CLOCK.monotonic() - began_s
        self.at = 0.0

    def bound_s(self, lease_s: float = LEASE_S, away_s: float = 0.0) -> float:
        """How soon after the cut the other host has begun its jobs, in the one process that it has for suspects."""
        return recovery_bound(lease_s, start_s=self._start_s, away_s=away_s)

    def fall(self, cut: Callable[[], None]) -> Fault:
        """Cut it off, and let some of its jobs end then."""
        self.at = CLOCK.monotonic()
        cut()
        self._gate.touch()
        poll(lambda: len(self._lasts()) == EACH, 20, "they end")
        assert set(self._lasts()) == {"end"}, "they were stopped before they ended: this run shows nothing"
        return Fault("cut off", self.victim, self.at, self.at + LEASE_S)

    def _lasts(self) -> list[str]:
        """How the first runs of those that are to end have come to their end."""
        mine = [one for one in self._arena.effects() if one.pid == self.victim and one.job in self.finished]
        return [one.what for one in mine if one.what != "start"]

    def last(self) -> None:
        """Leave it so for three leases, and until the other host has done everything."""
        poll(lambda: self._arena.unfinished() == 0, 30, "everything runs on the other host")
        CLOCK.sleep(max(0.0, self.at + CUT_S - CLOCK.monotonic()))


def refused(fleet: Fleet) -> int:
    """How many settlements the store has refused so far."""
    return sum(int(n) for n in re.findall(r"(\d+) settlements came too late", fleet.log()))


def wait_refused(fleet: Fleet, count: int) -> None:
    """Wait until so many were."""
    poll(lambda: refused(fleet) >= count, 30, "all that it has to say comes too late")


def moves(evidence: Evidence) -> dict[str, float]:
    """Each job that began on a host that was cut off and again on another: seconds from the cut to that.

    Not the checker's recoveries: a worker that is cut off stops its jobs by itself before others begin them.
    """
    cut = {fault.pid: fault.at for fault in evidence.faults}
    return {
        job: following.start.at - cut[run.start.pid]
        for job, runs in checker.runs_by_job(evidence.effects).items()
        for run, following in pairwise(runs)
        if run.start.pid in cut
    }
