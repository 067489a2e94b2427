"""Row 2: workers are killed at their n-th call to the store: while they start, work, only beat, and stop."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.checker import Fault
from tests.faults.conftest import small_on
from tests.faults.engines import SqliteEngine
from tests.faults.load import Dice
from tests.faults.report import Report, figures_of
from tests.faults.shop import TARGET
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, Fleet, is_traced, poll

PHASES: Final = ("start", "work", "beat", "stop")
# How many such calls a thread makes in each of them at least: up to there a kill hits for certain.
MOST: Final = {"start": 4, "work": 6, "beat": 3, "stop": 2}
DENSE: Final = 3
"""Up to here every place is tried, and beyond it some."""
FARTHEST: Final = 200
STRIKING_S: Final = 60.0
REACHED_S: Final = 2.0
"""What a worker does not call within this it does not call."""
SERVER_CALLS: Final = ("sendto", "recvfrom")
"""A request is not sent any more; or it is, and its answer is not read."""
QUICK = replace(
    SETTINGS, room=Room(concurrency=4, threads=2, isolates=1), lease_s=LEASE_S, heartbeat_s=0.2, grace_s=1.0
)


class Ladder:
    """Places of one phase of a worker, ever farther on, until one is not reached; beyond the first few by chance."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._place = 1
        self._misses = 0
        self.farthest = 0
        self.is_over = False

    @property
    def place(self) -> int:
        """The next one; when there are no more, one of those that were reached."""
        return 1 + self._dice.below(max(1, self.farthest)) if self.is_over else self._place

    def tried(self, *, is_hit: bool) -> None:
        """What came of it; what is missed is tried once more before it is the end."""
        if self.is_over:
            return
        if is_hit:
            self.farthest, self._misses = self._place, 0
            self._place += 1 + (self._dice.below(2 * self._place) if self._place >= DENSE else 0)
            self.is_over = self._place > FARTHEST
        else:
            self._misses += 1
            self.is_over = self._misses == 2


@small_on("sqlite")
def test_a_kill_at_any_call_to_the_store_loses_nothing(
    arena: Arena, strace: str, is_full: bool, report: Report
) -> None:
    dice = Dice()
    calls = ("pwrite64",) if isinstance(arena.engine, SqliteEngine) else SERVER_CALLS
    ladders = {call: {phase: Ladder(dice) for phase in PHASES} for call in calls}
    hits: Counter[tuple[str, str]] = Counter()
    rounds = 0
    began_s = CLOCK.monotonic()
    with arena.fleet() as fleet:
        while not rounds or (is_full and CLOCK.monotonic() - began_s < STRIKING_S):
            call = calls[rounds % len(calls)]
            ladder = ladders[call]
            if rounds >= len(calls) and all(one.is_over for some in ladders.values() for one in some.values()):
                break
            numbers = {phase: one.place if is_full else 1 + dice.below(MOST[phase]) for phase, one in ladder.items()}
            hit = _strike(arena, fleet, strace, call, numbers)
            for phase, one in ladder.items():
                one.tried(is_hit=phase in hit)
            hits.update((call, phase) for phase in hit)
            rounds += 1
            _recover(arena)
            evidence = arena.evidence(fleet)
            violations = checker.no_loss(evidence) + checker.one_terminal(evidence)
            assert violations == [], (call, numbers)
            # Of a round's workers the deaths of two are free. Those of the others count, and of processes for suspects,
            # which are traced as well; but there is no time for the six of them that would use a job up.
            assert completed(evidence) == len(evidence.acked), (call, numbers, arena.states(evidence.acked))
        evidence = arena.evidence(fleet)

    violations = checker.check(evidence)
    assert violations == []
    assert hits.total() >= rounds * len(PHASES) / 2, f"too few of the kills hit anything: {hits}"
    if is_full:
        assert set(hits) == {(call, phase) for call in calls for phase in PHASES}, f"some kills hit nothing: {hits}"
    told = [
        f"{call} in {phase} {hits[call, phase]}"
        + (f" (n to {one.farthest}{'' if one.is_over else '+'})" if is_full else "")
        for call, ladder in ladders.items()
        for phase, one in ladder.items()
    ]
    report(
        "a worker is killed at its n-th write, request or answer of the store: starting, working, idle, stopping",
        injected=hits.total(),
        # What it cut off was run by the test itself, when it came to it.
        figures=replace(figures_of(evidence), recoveries=()),
        note=f"places tried {rounds * len(PHASES)}, those with n > {DENSE} by chance; hit: {', '.join(told)}; + where "
        f"the time was over before a place was not reached; violations {len(violations)}",
        seed=dice.seed,
    )


def _strike(arena: Arena, fleet: Fleet, strace: str, call: str, numbers: dict[str, int]) -> list[str]:
    """Let four workers each reach its place, and say which were killed there."""
    settings = msgspec.json.encode(QUICK).decode()
    pids = {phase: fleet.start(QUICK) for phase in PHASES[1:]}
    poll(lambda: {one.pid for one in arena.stats().workers} == set(pids.values()), 30, "the workers register")
    at = CLOCK.monotonic()
    with ExitStack() as tracers:
        for phase in ("work", "beat"):
            tracers.enter_context(_attached(strace, call, numbers[phase], pids[phase]))
        prefix = (strace, "-D", *_options(call, numbers["start"]))
        pids["start"] = fleet.run("holdfast.runtime.process", TARGET, settings, prefix=prefix)
        known = arena.started()
        arena.enqueue([arena.call(("work", "toil")[n % 2], n, seconds=0.02) for n in range(10 + 2 * numbers["work"])])
        poll(lambda: arena.started() > known, 20, "something runs")
        with _attached(strace, call, numbers["stop"], pids["stop"]):
            fleet.send(pids["stop"], signal.SIGTERM)
            fleet.wait(pids["stop"])
        poll(lambda: _is_there(arena, fleet, pids["start"]), 30, "the last worker has begun, or is gone")
        began_s = CLOCK.monotonic()
        while set(pids.values()) & set(fleet.running) and CLOCK.monotonic() - began_s < REACHED_S:
            CLOCK.sleep(0.02)
    for pid in set(pids.values()) & set(fleet.running):  # fewer calls than that were made
        fleet.send(pid, signal.SIGTERM)
    codes = {phase: fleet.wait(pid) for phase, pid in pids.items()}
    assert set(codes.values()) <= {0, 3, -signal.SIGKILL}, fleet.log()
    hit = [phase for phase, code in codes.items() if code == -signal.SIGKILL]
    fleet.faults += [Fault(f"{call} in {phase}", pids[phase], at, CLOCK.monotonic()) for phase in hit]
    return hit


def _is_there(arena: Arena, fleet: Fleet, pid: int) -> bool:
    return pid not in fleet.running or pid in {one.pid for one in arena.stats().workers}


@contextmanager
def _attached(strace: str, call: str, number: int, pid: int) -> Iterator[None]:
    """Trace every thread of a process, which is killed by the n-th such call that one of them makes from now on."""
    tracer = subprocess.Popen([strace, *_options(call, number), "-p", str(pid)], stderr=subprocess.DEVNULL)
    try:
        poll(lambda: tracer.poll() is not None or is_traced(pid), 20, "the tracer is there")
        yield
    finally:
        tracer.terminate()
        tracer.wait(20)


def _options(call: str, number: int) -> Sequence[str]:
    inject = f"inject={call}:signal=KILL:when={number}"
    return ("-f", "-qq", "-o", os.devnull, "-e", f"trace={call}", "-e", inject)


def _recover(arena: Arena) -> None:
    """Run what is left, all leases being over."""
    store: Any = arena.app.store
    if isinstance(arena.engine, SqliteEngine):  # which knows by itself that a process of this machine is gone
        assert arena.engine.sql("PRAGMA integrity_check") == [("ok",)]
    else:
        store.clock_offset_s = 2 * LEASE_S
    arena.app.run_until_idle()
    store.clock_offset_s = 0.0
    assert arena.unfinished() == 0
