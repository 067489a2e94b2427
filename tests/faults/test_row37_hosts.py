"""Row 37 on several hosts: their clocks are four hours apart, and one is cut off. Leases go by the store's clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import full_only, on, waits
from tests.faults.cut_off import CUT_S, EACH, Strike, moves, supervised, wait_refused
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.gate_shop import add_held
from tests.faults.hosts import Network, hosts, housed
from tests.faults.report import Report, figures_of
from tests.faults.stepping import SteppedClock
from tests.faults.workers import poll
from tests.servers import children

pytestmark = [full_only, waits]
WRONG_S = 7_200.0


@pytest.fixture
def network() -> Iterator[Network]:
    """Two hosts."""
    with hosts(2) as network:
        yield network


@pytest.fixture
def engine(request: pytest.FixtureRequest, network: Network) -> Iterator[PostgresEngine | RedisEngine]:
    """A store that they reach by network."""
    with housed(request.param, network) as engine:
        yield engine


@pytest.fixture
def arena(tmp_path: Path, engine: PostgresEngine | RedisEngine) -> Iterator[Arena]:
    """With jobs that end when they are told to."""
    with closing(Arena(tmp_path, engine)) as arena:
        add_held(arena.app, tmp_path / "effects")
        yield arena


@pytest.mark.parametrize("sign", [1, -1], ids=["ahead", "behind"])
@on("postgres", "redis")
def test_hosts_with_wrong_clocks_take_over_in_time_and_no_sooner(
    arena: Arena, network: Network, tmp_path: Path, sign: int, report: Report
) -> None:
    clocks = []
    for number, ahead_s in enumerate((sign * WRONG_S, -sign * WRONG_S)):
        folder = tmp_path / f"clock{number}"
        folder.mkdir()
        clocks.append(clock := SteppedClock(folder))
        clock.step(ahead_s)
    there, here = network.hosts
    with arena.fleet() as fleet:
        supervisor = supervised(fleet, arena, there, clocks[0].env)
        strike = Strike(arena, fleet, supervisor, here, clocks[1].env)
        lasting = arena.enqueue([arena.call("work", n, seconds=CUT_S) for n in range(2)])
        poll(lambda: arena.states(lasting)["completed"] == len(lasting), 30, "jobs of three leases run")
        before = arena.evidence(fleet)
        fault = strike.fall(there.cut)
        strike.last()
        there.mend()
        wait_refused(fleet, 2 * EACH)
        poll(lambda: children(supervisor) not in ([], [strike.victim]), 30, "it is replaced")
        poll(lambda: len(arena.stats().workers) == 2, 20, "and is back")
        fleet.stop()
        bound_s = strike.bound_s()
        evidence = replace(arena.evidence(fleet), faults=[fault], recovery_s=bound_s)

    early = sum(len(runs) - 1 for runs in checker.runs_by_job(before.effects).values())
    assert early == 0, "a lease was taken early"
    assert checker.check(evidence) == []
    took = moves(evidence)
    assert len(took) == 2 * EACH, "nothing was cut off"
    too_long = sum(took_s > bound_s for took_s in took.values())
    assert too_long == 0, "a lease was kept too long"
    report(
        f"the clock of one host {'ahead' if sign > 0 else 'behind'} by two hours and that of another as much the other "
        f"way; the first is cut off for 3 leases ({CUT_S:g} s)",
        injected=1,
        figures=replace(figures_of(evidence), recoveries=list(took.values())),
        note=f"taken early {early}, kept too long {too_long}, late settlements accepted "
        f"{len(checker.stale_results(evidence))}; running elsewhere after at most {max(took.values()):.2f} s "
        f"(bound {bound_s:.1f} s)",
    )
