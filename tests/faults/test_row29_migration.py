"""Row 29: many processes open a new store at once, or one that another version has made. One migrates; none guesses."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import StoreError
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import every_store
from tests.faults.engines import Engine
from tests.faults.ledger import ClientLedger
from tests.faults.report import Report, figures_of
from tests.faults.shop import open_shop
from tests.faults.workers import CLOCK, Fleet, poll

STARTERS = 6
EACH = 3


@every_store
def test_one_of_many_starters_makes_the_store_and_the_others_wait(
    tmp_path: Path, engine: Engine, report: Report
) -> None:
    began_s = CLOCK.monotonic()
    with Fleet(engine.url, tmp_path / "effects", tmp_path) as fleet:
        # Each of them enqueues its jobs, and then works until nothing is left.
        ledgers = [tmp_path / f"client-{n}" for n in range(STARTERS)]
        pids = [fleet.run("tests.faults.load", str(path), str(EACH)) for path in ledgers]
        codes = [fleet.wait(pid, 60) for pid in pids]
        took_s = CLOCK.monotonic() - began_s
        assert codes == [0] * STARTERS, fleet.log()
    arena = Arena(tmp_path, engine, is_audited=False)
    for path in ledgers:
        ledger = ClientLedger(path)
        arena.client.attempt(ledger.attempted)
        arena.client.ack(ledger.acked)
    evidence = arena.evidence()
    arena.close()

    assert checker.check(evidence) == []
    assert completed(evidence) == STARTERS * EACH
    report(
        "processes open a new store at once",
        injected=STARTERS,
        figures=figures_of(evidence),
        note=f"opened by {codes.count(0)} of {STARTERS}, all done in {took_s:.1f} s",
    )


@every_store
def test_a_store_of_a_newer_version_is_left_alone_and_old_workers_go_on(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    arena.enqueue([arena.call("work", n, seconds=0.05) for n in range(60)])
    with arena.fleet() as fleet:
        fleet.start()
        poll(lambda: arena.started() >= 10, 20, "a worker is busy")
        arena.engine.set_version(99)
        late = open_shop(arena.engine.url, tmp_path / "effects")
        with pytest.raises(StoreError, match="99"):
            late.tasks["work"].enqueue(1)
        late.close()
        pid = fleet.start()
        code = fleet.wait(pid)
        assert "99" in fleet.log(pid)
        arena.quiesce(30)
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    assert code == 2
    report(
        "somebody opens a store of a newer version",
        injected=2,
        figures=figures_of(evidence),
        note=f"a producer and a worker refused in words, exit {code}; the worker that had it open went on",
    )
