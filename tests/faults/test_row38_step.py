"""Row 38: the clock of a host is set while everything runs. Ticks fire once, delays are kept, no limit is passed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence, Fault
from tests.faults.conftest import AUDITED, full_only, waits
from tests.faults.engines import Engine, PostgresEngine, RedisEngine, SqliteEngine
from tests.faults.report import Report, figures_of
from tests.faults.stepping import SteppedClock, SteppedPostgres, SteppedRedis
from tests.faults.tick_shop import MAX_CALLS, TARGET, WINDOW_S, add_limited
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll, recovery_bound
from tests.servers import children

HOUR_S = 3600
DELAY_S = 0.5
LEASE_S = 6.0
"""So long that a busy machine loses none by itself."""
ROOM = replace(SETTINGS, room=Room(concurrency=4, threads=2, isolates=2), lease_s=LEASE_S, heartbeat_s=1.0)
LULL_S = 3.0
"""If nothing that is limited has begun for so long, nothing will before the next step."""
KEPT = 0.9
"""Of a limit's window: a run that would begin more than a tenth after its permit asks again (asking.py, `_LATE`)."""
TICKING = frozenset({"second", "hour", "night"})
stores = pytest.mark.parametrize(
    "engine", ["sqlite", *(pytest.param(name, marks=full_only) for name in ("postgres", "redis"))], indirect=True
)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A store whose server, if it has one, goes by a clock that is set."""
    if request.param == "sqlite":
        yield SqliteEngine(tmp_path)
    elif request.param == "postgres":
        with SteppedPostgres() as server, closing(PostgresEngine(server)) as engine:
            yield engine
    else:
        with SteppedRedis(AUDITED) as cache, closing(RedisEngine(cache)) as other:
            yield other


@pytest.fixture
def clock(engine: Engine, tmp_path: Path) -> SteppedClock:
    """The clock of the host with the workers, and with the server, if there is one."""
    server = getattr(engine, "server", None)
    return SteppedClock(tmp_path) if server is None else server.clock


@pytest.fixture
def arena(tmp_path: Path, engine: Engine) -> Iterator[Arena]:
    """With jobs that are limited."""
    with closing(Arena(tmp_path, engine)) as arena:
        add_limited(arena.app, tmp_path / "effects")
        yield arena


class Host:
    """Two workers on a host whose clock is set, and what is seen of them meanwhile."""

    def __init__(self, arena: Arena, fleet: Fleet, clock: SteppedClock) -> None:
        self._arena, self._clock = arena, clock
        began_s = CLOCK.monotonic()
        self._supervisor = _supervised(fleet, clock, 2)
        poll(lambda: len(arena.stats().workers) == 2, 20, "the workers are there")
        self.start_s = CLOCK.monotonic() - began_s
        """What a process needs to start, here and now."""
        self.steps: list[tuple[float, float]] = []
        """How far ahead it was set, and when."""
        self.early: list[str] = []
        """Jobs that ran before they were due."""

    @property
    def ahead_at(self) -> list[float]:
        """When it was set ahead of where it had been."""
        return [at for (before_s, _), (ahead_s, at) in pairwise([(0.0, 0.0), *self.steps]) if ahead_s > before_s]

    def step(self, ahead_s: float) -> float:
        """Set the clock so much ahead of the machine's; what it says then."""
        self.steps.append((ahead_s, CLOCK.monotonic()))
        return self._clock.step(ahead_s)

    def delay(self) -> None:
        """Enqueue a few jobs that are due a little later, and see that they do not come sooner."""
        calls = [self._arena.app.tasks["work"].options(delay=DELAY_S).bind(n) for n in range(3)]
        asked_s = CLOCK.monotonic()
        jobs = self._arena.enqueue(calls)
        poll(lambda: _started(self._arena, "work").keys() >= set(jobs), 20, "what was delayed runs")
        began = _started(self._arena, "work")
        self.early += [job for job in jobs if began[job] - asked_s < DELAY_S]

    def ticks_from(self, instant: float) -> None:
        """Wait until a tick from there on has run."""
        poll(lambda: any(_instant(job) >= instant for job in _started(self._arena, "second")), 20, "its seconds tick")

    def uses_up(self) -> None:
        """Wait until all has begun that the limit lets begin after so many steps of a server's clock.

        What may begin before the next step would begin after it, beside what that one lets begin. A job that a step has
        cut off begins twice, and what a worker was granted that is given up just then never does.
        """
        most = MAX_CALLS * (1 + len(self.ahead_at))
        begun, since_s = 0, CLOCK.monotonic()

        def is_over() -> bool:
            nonlocal begun, since_s
            before = begun
            begun = sum(one.what == "start" and one.task == "limited" for one in self._arena.effects())
            if begun > before:
                since_s = CLOCK.monotonic()
            return begun >= most or CLOCK.monotonic() - since_s > LULL_S

        poll(is_over, 20, "the limit is used up")

    def wait_for(self, job: str) -> None:
        """Wait until it has completed."""
        poll(lambda: self._arena.states([job])["completed"] == 1, 40, "what the dead one held runs")

    def kill_one(self, jobs: list[str]) -> Fault:
        """Kill the worker that runs one of these."""
        poll(lambda: _started(self._arena, "once").keys() >= set(jobs), 20, "they run")
        pid = next(one.pid for one in self._arena.effects() if one.job == jobs[0])
        assert pid in children(self._supervisor)
        at = CLOCK.monotonic()
        os.kill(pid, signal.SIGKILL)
        return Fault("kill", pid, at, CLOCK.monotonic())


# Not beside others: how soon a job runs again depends on how soon a process starts.
@stores
def test_a_clock_that_is_set_fires_no_tick_twice_and_passes_no_limit(
    arena: Arena, engine: Engine, clock: SteppedClock, is_full: bool, report: Report
) -> None:
    is_server = not isinstance(engine, SqliteEngine)
    rounds = 3 if is_full else 1
    kills: list[Fault] = []
    with arena.fleet() as fleet:
        host = Host(arena, fleet, clock)
        arena.enqueue([arena.call("limited", n) for n in range(200)])
        for number in range(rounds):
            ahead_s = 10 * number * HOUR_S
            for further_s in (0, HOUR_S):
                host.ticks_from(host.step(ahead_s + further_s))
                if is_server:
                    host.uses_up()
            held = arena.enqueue([arena.call("once", 60.0) for _ in range(2)])
            kills.append(host.kill_one(held))
            host.step(ahead_s)
            host.wait_for(held[0])
            arena.app.jobs.cancel(held)
            host.step(ahead_s - 1)  # as a leap second does
            host.delay()
            host.ticks_from(host.step(ahead_s + HOUR_S + 60))
            if is_server:
                host.uses_up()
        fleet.stop()
        arena.app.jobs.cancel([job for job, one in arena.records().items() if not one.state.is_terminal])
        evidence = arena.evidence(fleet)

    ticks = [job for job, one in evidence.jobs.items() if one.task in TICKING]
    evidence = replace(
        evidence,
        attempted=[*evidence.attempted, *ticks],
        faults=[*kills, *(_hits(evidence, host.ahead_at) if is_server else [])],
        # A lease counts anew from the first sweep after the clock went back; a worker starts, and a suspect's process.
        recovery_s=recovery_bound(LEASE_S, start_s=host.start_s, in_turn=2, sweeps=2),
    )
    assert checker.check(evidence) == []
    assert host.early == []
    too_fast = _too_fast(evidence, host.ahead_at if is_server else [])
    assert too_fast == []
    assert len(ticks) >= 3 * rounds, "too few ticks: this run shows nothing"
    assert len({(evidence.jobs[job].task, _instant(job)) for job in ticks}) == len(ticks), "a tick has two jobs"
    ends = Counter(one.job for one in evidence.effects if one.what == "end" and one.task in TICKING)
    report(
        f"the clock {'of the server and the workers' if is_server else 'of the workers'} is set an hour ahead, back, "
        "back by a second, and ahead again",
        injected=len(host.steps),
        figures=figures_of(evidence),
        note=f"ticks {len(ticks)}, run twice {sum(n - 1 for n in ends.values())}; delays cut short {len(host.early)}; "
        f"limits passed {len(too_fast)}"
        + (", but for once more after each step ahead" if is_server else "")
        + checker.told_bound(evidence),
    )


@waits
@full_only
@pytest.mark.parametrize("engine", ["postgres", "redis"], indirect=True)
def test_a_clock_of_a_server_that_is_set_back_ends_no_lease(arena: Arena, clock: SteppedClock, report: Report) -> None:
    clock.step(HOUR_S)
    with arena.fleet() as fleet:
        host = Host(arena, fleet, clock)
        held = arena.enqueue([arena.call("once", 2 * LEASE_S) for _ in range(8)])
        poll(lambda: _started(arena, "once").keys() >= set(held), 20, "they run")
        holders = {one.pid for one in arena.effects() if one.task == "once"}
        host.step(0)
        # Both live on, so that whoever took a lease for over could give its jobs to the other one.
        poll(lambda: arena.states(held)["completed"] == len(held), 40, "they end")
        fleet.stop()
        arena.app.jobs.cancel([job for job, one in arena.records().items() if not one.state.is_terminal])
        evidence = arena.evidence(fleet)

    evidence = replace(evidence, attempted=list({*evidence.attempted, *evidence.jobs}))
    assert len(holders) == 2, "one worker had everything: this run shows nothing"
    assert checker.check(evidence) == []
    again = sum(len(runs) - 1 for job, runs in checker.runs_by_job(evidence.effects).items() if job in held)
    assert again == 0
    report(
        "the clock of the server and the workers is set back by an hour while both workers run jobs",
        injected=len(host.steps),
        figures=figures_of(evidence),
        note=f"jobs that ran for two leases {len(held)}, of them run again {again}",
    )


@waits
@full_only
@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "night",
    [datetime(2026, 10, 24, 23, 50, tzinfo=UTC), datetime(2026, 3, 28, 23, 50, tzinfo=UTC)],
    ids=["twice", "left out"],
)
def test_a_night_in_which_the_clocks_change_fires_each_tick_once(
    arena: Arena, clock: SteppedClock, night: datetime, report: Report
) -> None:
    with arena.fleet() as fleet:
        _supervised(fleet, clock, 2)
        poll(lambda: len(arena.stats().workers) == 2, 20, "the workers are there")
        clock.run_from(night.timestamp(), 600)
        poll(lambda: len(_started(arena, "hour")) >= 3, 60, "the hours strike")
        fleet.stop()
        evidence = arena.evidence(fleet)
    ticks = Counter(one.task for one in evidence.jobs.values())
    evidence = replace(evidence, attempted=list(evidence.jobs))

    assert checker.check(evidence) == []
    assert ticks["night"] == 1, "02:30, of a night that has it twice or not at all"
    assert ticks["hour"] >= 3, "too few ticks: this run shows nothing"
    twice = len(evidence.jobs) - len({(one.task, _instant(job)) for job, one in evidence.jobs.items()})
    assert twice == 0, "a tick has two jobs"
    report(
        f"a night in which the clocks change, {night:%B %Y}, 600 times as fast",
        injected=1,
        figures=figures_of(evidence),
        note=f"ticks of 02:30 in Berlin {ticks['night']}, of every hour {ticks['hour']}; fired twice {twice}",
    )


def _supervised(fleet: Fleet, clock: SteppedClock, count: int) -> int:
    """A supervisor with so many workers that go by a clock; its id."""
    settings = msgspec.json.encode(ROOM).decode()
    return fleet.run("tests.faults.supervise", settings, str(count), TARGET, env=clock.env)


def _started(arena: Arena, task: str) -> dict[str, float]:
    """The jobs of a task that have begun, and when they did first."""
    starts = [one for one in arena.effects() if one.task == task and one.what == "start"]
    return {one.job: one.at for one in sorted(starts, key=lambda one: -one.at)}


def _instant(job: str) -> float:
    """The tick that a job is of: its id begins with it."""
    return int(job.replace("-", "")[:12], 16) / 1000


def _hits(evidence: Evidence, ahead_at: Sequence[float]) -> list[Fault]:
    """A server's clock that goes ahead ends all leases at once: that may hit whatever runs.

    One that goes back hits nothing: leases last longer by as much, until a sweep lets them begin anew.
    """
    pids = {one.pid for one in evidence.effects}
    return [Fault("step", pid, at, at + LEASE_S) for at in ahead_at for pid in pids]


def _too_fast(evidence: Evidence, ahead_at: Sequence[float]) -> list[str]:
    """Where more than the limit began within nine tenths of its window: by the tenth that is left a run may be late.

    A server whose clock goes ahead has forgotten what was before, so that the limit may be used up once more.
    """
    starts = sorted(one.at for one in evidence.effects if one.what == "start" and one.task == "limited")
    assert len(starts) >= MAX_CALLS, "nothing was limited: this run shows nothing"
    found = []
    for n, first in enumerate(starts):
        until = first + KEPT * WINDOW_S
        most = MAX_CALLS * (1 + sum(first <= at <= until for at in ahead_at))
        begun = sum(at < until for at in starts[n:])
        if begun > most:
            found.append(f"{begun} starts within {KEPT * WINDOW_S:g} s, not {most}")
    return found
