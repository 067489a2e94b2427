"""Row 40: the disk fails to sync, or takes its time. Nothing is acked that was not synced after it was written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import msgspec

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import waits
from tests.faults.engines import SqliteEngine
from tests.faults.insistent import REFUSED
from tests.faults.load import Dice
from tests.faults.power_check import cuts, events_of, ledger_of, record
from tests.faults.report import Report, figures_of
from tests.faults.shop import TARGET
from tests.faults.storm import CALM
from tests.faults.workers import Fleet

pytestmark = waits


def test_nothing_is_acked_after_a_failed_sync_until_it_was_written_and_synced_again(
    strace: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    jobs = 150 if is_full else 15
    dice = Dice()
    inject = ("-e", "inject=fdatasync:error=EIO:when=12+7")
    told = record(strace, tmp_path, str(jobs), "5000", "go", inject=inject)
    events = events_of(tmp_path)
    failed = [event for event in events if event.what == "sync" and not event.is_ok]
    refused = told.count(REFUSED)
    assert refused > 2, "no sync failed that anybody waited for: this run shows nothing"
    assert told.count("reading or writing the disk failed") == refused

    # A kernel forgets the pages that it could not write: had anybody relied on a second sync alone, they were gone now.
    places = [n for n, event in enumerate(events, start=1) if event.what in {"sync", "append"}]
    chances = [lambda: False, lambda: dice.draw() < 0.5]
    found = list(cuts(events, tmp_path, tmp_path / "cut", places[:: 1 if is_full else 6], chances))
    broken = [cut for cut in found if cut.lost or cut.damage != "ok"]
    assert broken == []

    with closing(Arena(tmp_path, SqliteEngine(tmp_path), is_audited=False)) as arena:
        arena.client = ledger_of(tmp_path)
        arena.app.run_until_idle()
        evidence = arena.evidence()
    assert checker.check(evidence) == []
    assert completed(evidence) == jobs
    report(
        "a sync of the file fails (EIO), and the kernel forgets what it could not write",
        injected=len(failed),
        figures=figures_of(evidence),
        note=f"enqueues refused {refused}, all sent again; acked after a failed sync {len(broken)}, by {len(found)} "
        "power cuts",
        seed=dice.seed,
    )


def test_a_worker_goes_on_through_slow_and_failing_syncs(
    strace: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    wanted = 30 if is_full else 3
    slow_log, failing_log = tmp_path / "slow", tmp_path / "failing"
    with closing(Arena(tmp_path, SqliteEngine(tmp_path))) as arena, arena.fleet() as fleet:
        pids = [
            _work(fleet, strace, slow_log, "delay_enter=50000"),
            _work(fleet, strace, failing_log, "error=EIO:when=5+6"),
        ]
        for _ in range(20 * wanted):
            arena.enqueue([arena.call("work", n, seconds=0.01) for n in range(20)])
            arena.quiesce(60)
            slow, failed = slow_log.read_text().count("(DELAYED)"), failing_log.read_text().count("(INJECTED)")
            if min(slow, failed) >= wanted:
                break
        assert fleet.running == pids, fleet.log()
        fleet.stop()
        evidence = arena.evidence(fleet)
    jobs = len(evidence.acked)
    assert min(slow, failed) >= wanted, "hardly a sync was hit: this run shows nothing"
    assert checker.check(evidence) == []
    assert completed(evidence) == jobs
    assert checker.duplicates(evidence) == 0
    report(
        "every sync of one worker takes 50 ms longer, and one in six of another's fails",
        injected=slow + failed,
        figures=figures_of(evidence),
        note=f"{slow} slow, {failed} failed",
    )


def _work(fleet: Fleet, strace: str, log: Path, fault: str) -> int:
    """A worker process with this fault in its syncs."""
    # As a grandchild (-D) the tracer is in nobody's way: the worker is ours to stop.
    tracer = (strace, "-D", "-f", "-qq", "-o", str(log), "-e", "trace=fdatasync", "-e", f"inject=fdatasync:{fault}")
    settings = msgspec.json.encode(CALM).decode()
    return fleet.run("holdfast.runtime.process", TARGET, settings, prefix=tracer)
