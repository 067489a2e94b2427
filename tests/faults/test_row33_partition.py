"""Row 33: one host of two is cut off from the store for three leases. The other takes over; the first one is fenced."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.runtime.worker import Exit
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import full_only, waits
from tests.faults.cut_off import CUT_S, EACH, LEASE_S, Strike, moves, refused, supervised, wait_refused
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.gate_shop import add_held
from tests.faults.hosts import Network, hosts, housed
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, poll
from tests.servers import children

pytestmark = waits
stores = pytest.mark.parametrize("engine", ["redis", pytest.param("postgres", marks=full_only)], indirect=True)


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


@stores
def test_a_host_that_was_cut_off_is_fenced_and_goes_on_by_itself(
    arena: Arena, network: Network, is_full: bool, report: Report
) -> None:
    there, here = network.hosts
    rounds = 5 if is_full else 1
    strikes, faults, back = [], [], []
    with arena.fleet() as fleet:
        supervisor = supervised(fleet, arena, there)
        for number in range(1, rounds + 1):
            strikes.append(strike := Strike(arena, fleet, supervisor, here))
            faults.append(strike.fall(there.cut))
            strike.last()
            there.mend()
            mended_s = CLOCK.monotonic()
            # What it had finished, and what it had stopped and gives back.
            wait_refused(fleet, 2 * EACH * number)
            fleet.send(strike.other, signal.SIGTERM)
            assert fleet.wait(strike.other) == Exit.DRAINED
            arena.enqueue([arena.call("work", number)])
            arena.quiesce(20)
            back.append(CLOCK.monotonic() - mended_s)
        late = refused(fleet)
        fleet.stop()
        bound_s = max(one.bound_s() for one in strikes)
        evidence = replace(arena.evidence(fleet), faults=faults, recovery_s=bound_s)

    assert checker.check(evidence) == []
    assert late == rounds * 2 * EACH
    took = moves(evidence)
    assert len(took) == late, "nothing was cut off"
    assert max(took.values()) <= bound_s
    report(
        f"the cable of one host of two is pulled for 3 leases ({CUT_S:g} s)",
        injected=rounds,
        figures=replace(figures_of(evidence), recoveries=list(took.values())),
        note=f"late settlements refused {late}, accepted {len(checker.stale_results(evidence))}; back at work "
        f"{max(back):.1f} s after it was mended; running elsewhere after at most {max(took.values()):.2f} s "
        f"(bound {bound_s:.1f} s)",
    )


@full_only
@stores
def test_a_host_that_hears_no_answers_lets_go_and_what_it_has_said_counts_once(
    arena: Arena, network: Network, report: Report
) -> None:
    there, here = network.hosts
    with arena.fleet() as fleet:
        supervisor = supervised(fleet, arena, there)
        strike = Strike(arena, fleet, supervisor, here)
        fault = strike.fall(there.deafen)
        strike.last()
        there.undeafen()
        poll(lambda: children(supervisor) not in ([], [strike.victim]), 30, "it is replaced")
        poll(lambda: len(arena.stats().workers) == 2, 20, "and is back")
        fleet.stop()
        bound_s = strike.bound_s(2 * LEASE_S)  # what it sent when deaf may have renewed its lease once
        evidence = replace(arena.evidence(fleet), faults=[fault], recovery_s=bound_s)

    assert checker.check(evidence) == []
    took = moves(evidence)
    assert took.keys() >= set(strike.unfinished), "nothing was cut off"
    assert max(took.values()) <= bound_s
    again = len(took.keys() & set(strike.finished))
    report(
        f"nothing that the store answers reaches one host of two, for 3 leases ({CUT_S:g} s)",
        injected=1,
        figures=replace(figures_of(evidence), recoveries=list(took.values())),
        note=f"of {EACH} jobs that it finished and told the store of meanwhile, {again} ran again; running "
        f"elsewhere after at most {max(took.values()):.2f} s (bound {bound_s:.1f} s)",
    )
