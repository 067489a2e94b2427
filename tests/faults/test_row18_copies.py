"""Row 18: operators copy the file while it is in use, and delete its log. The documented copies lose nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import apsw
import pytest

from tests.faults.engines import SqliteEngine
from tests.faults.ledger import ClientLedger
from tests.faults.power_check import look
from tests.faults.report import Figures, Report
from tests.faults.workers import Fleet, poll

MOMENTS = 20
"""So often is the file copied with `cp` at most: right after a checkpoint the log has nothing of its own."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "store"
    made.mkdir()
    return made


def test_the_documented_copies_lose_nothing_and_others_what_is_in_the_log(
    folder: Path, tmp_path: Path, is_full: bool, report: Report
) -> None:
    engine = SqliteEngine(folder)
    jobs = 2_000 if is_full else 60
    with Fleet(engine.url, folder / "effects", tmp_path) as fleet:
        ledger = _produce(fleet, folder, jobs)
        (pid,) = fleet.running
        lost: dict[str, int] = {}
        for name, copy in (("VACUUM INTO", _vacuum), ("the backup API", _back_up)):
            before = _acked(ledger)
            held, damage = look(copy(engine, tmp_path / "copy.db"))
            lost[name] = len(before - held)
            (tmp_path / "copy.db").unlink()
            assert damage == "ok", f"{name}: {damage}"

        def in_the_log() -> int:
            """How many jobs a copy of the file alone would lose, where it is whole: amid a checkpoint it is not."""
            before = _acked(ledger)
            held, damage = look(_cp(engine, tmp_path / "copy.db"))
            (tmp_path / "copy.db").unlink()
            return len(before - held) if damage == "ok" else 0

        cp = [in_the_log()]
        while len(cp) < MOMENTS and max(cp) == 0:
            known = len(ledger.acked)
            poll(lambda known=known: len(_acked(ledger)) > known, 20, "more jobs are acked")  # type: ignore[misc]
            cp.append(in_the_log())
        lost["cp of shop.db alone"] = max(cp)
        assert fleet.running == [pid], fleet.log()
        fleet.kill_amid(pid, lambda: in_the_log() > 0, within_s=20)
    acked = _acked(ledger)
    for name, files in (("-shm deleted", ("shop.db", "shop.db-wal")), ("-wal deleted", ("shop.db",))):
        image = tmp_path / name
        image.mkdir()
        subprocess.run(["cp", *(folder / file for file in files), image], check=True)
        held, damage = look(image / "shop.db")
        assert damage == "ok"
        lost[f"{name} after a kill"] = len(acked - held)

    harmless = {name: lost[name] for name in ("VACUUM INTO", "the backup API", "-shm deleted after a kill")}
    assert set(harmless.values()) == {0}, harmless
    assert lost["cp of shop.db alone"] > 0, "nothing was in the log alone: this run shows nothing"
    assert lost["-wal deleted after a kill"] > 0
    report(
        "the file is copied while it is written, and parts of it are deleted",
        injected=len(lost) - 1 + len(cp),
        figures=Figures(acked=len(acked), lost=sum(harmless.values())),
        note="jobs missing by method: " + ", ".join(f"{name} {n:,}" for name, n in lost.items()),
    )


def test_a_log_that_is_deleted_under_a_process_stops_it_and_costs_nothing(
    folder: Path, tmp_path: Path, report: Report
) -> None:
    engine = SqliteEngine(folder)
    with Fleet(engine.url, folder / "effects", tmp_path) as fleet:
        ledger = _produce(fleet, folder, 60)
        (pid,) = fleet.running
        (folder / "shop.db-wal").unlink()
        assert fleet.wait(pid, 30) == 1
        log = fleet.log(pid)
        assert "replaced, moved or deleted while in use" in log
    acked = _acked(ledger)
    held, damage = look(folder / "shop.db")
    assert damage == "ok"
    lost = acked - held
    assert lost == set()
    report(
        "the log is deleted under a process that writes",
        injected=1,
        figures=Figures(acked=len(acked), lost=len(lost)),
        note="the process refuses to write and says so; when it ends, all that it had acked is in the database",
    )


def _produce(fleet: Fleet, folder: Path, jobs: int) -> ClientLedger:
    """A process that enqueues one by one, and has done so many."""
    pid = fleet.run("tests.faults.insistent", str(folder / "client"), "1000000", "10", "go")
    ledger = ClientLedger(folder / "client")

    def has_begun() -> bool:
        assert fleet.running == [pid], fleet.log()
        if (folder / "client").exists():
            ledger.reload()
        return len(ledger.acked) >= jobs

    poll(has_begun, 60, "jobs are acked")
    return ledger


def _acked(ledger: ClientLedger) -> frozenset[str]:
    """What the producer has been promised so far."""
    ledger.reload()
    return frozenset(ledger.acked)


def _vacuum(engine: SqliteEngine, target: Path) -> Path:
    engine.sql("VACUUM INTO ?", (str(target),))
    return target


def _back_up(engine: SqliteEngine, target: Path) -> Path:
    copy = apsw.Connection(str(target))
    try:
        with engine.connection() as db, copy.backup("main", db, "main") as backup:
            backup.step()
    finally:
        copy.close()
    return target


def _cp(engine: SqliteEngine, target: Path) -> Path:
    subprocess.run(["cp", engine.database, target], check=True)
    return target
