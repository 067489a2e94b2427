"""Row 21 on several hosts: PostgreSQL crashes while one of them is cut off. Whatever that one says later is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import full_only, waits
from tests.faults.cut_off import CUT_S, EACH, Strike, moves, refused, supervised, wait_refused
from tests.faults.engines import PostgresEngine
from tests.faults.gate_shop import add_held
from tests.faults.hosts import Network, hosts, housed
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, poll
from tests.servers import children

pytestmark = [full_only, waits]
STORE = "postgres"


@pytest.fixture
def network() -> Iterator[Network]:
    """Two hosts."""
    with hosts(2) as network:
        yield network


@pytest.fixture
def engine(network: Network) -> Iterator[PostgresEngine]:
    """A store that they reach by network."""
    with housed("postgres", network) as engine:
        assert isinstance(engine, PostgresEngine)
        yield engine


@pytest.fixture
def arena(tmp_path: Path, engine: PostgresEngine) -> Iterator[Arena]:
    """With jobs that end when they are told to."""
    with closing(Arena(tmp_path, engine)) as arena:
        add_held(arena.app, tmp_path / "effects")
        yield arena


def test_a_crash_while_a_host_is_cut_off_loses_nothing_and_unfences_nobody(
    arena: Arena, engine: PostgresEngine, network: Network, report: Report
) -> None:
    there, here = network.hosts
    with arena.fleet() as fleet:
        supervisor = supervised(fleet, arena, there)
        strike = Strike(arena, fleet, supervisor, here)
        fault = strike.fall(there.cut)
        crashed_s = CLOCK.monotonic()
        engine.server.kill()
        engine.server.start()
        away_s = CLOCK.monotonic() - crashed_s
        late_jobs = arena.enqueue([arena.call("work", n) for n in range(50)])
        strike.last()
        there.mend()
        wait_refused(fleet, 2 * EACH)
        poll(lambda: children(supervisor) not in ([], [strike.victim]), 30, "it is replaced")
        poll(lambda: len(arena.stats().workers) == 2, 20, "and is back")
        late = refused(fleet)
        fleet.stop()
        bound_s = strike.bound_s(away_s=away_s)
        evidence = replace(arena.evidence(fleet), faults=[fault], recovery_s=bound_s)

    assert checker.check(evidence) == []
    assert late == 2 * EACH
    assert arena.states(late_jobs) == {"completed": len(late_jobs)}
    took = moves(evidence)
    assert len(took) == 2 * EACH, "nothing was cut off"
    assert max(took.values()) <= bound_s
    report(
        f"the server is killed and started again while one host of two is cut off, for 3 leases ({CUT_S:g} s)",
        injected=1,
        figures=replace(figures_of(evidence), recoveries=list(took.values())),
        note=f"late settlements refused {late}, accepted {2 * EACH - late}; the server was away for {away_s:.1f} s; "
        f"running elsewhere after at most {max(took.values()):.2f} s (bound {bound_s:.1f} s)",
    )
