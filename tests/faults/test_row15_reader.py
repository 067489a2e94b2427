"""Row 15: somebody reads the SQLite file and does not end. Claims stay quick, and the log's growth is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.clock import new_token
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.runtime import machine
from holdfast.stores.sqlite.connection import LOG_BYTES
from holdfast.types import Change
from tests.faults.arena import Arena
from tests.faults.checker import quantile
from tests.faults.engines import SqliteEngine
from tests.faults.report import Figures, Report
from tests.faults.workers import CLOCK

AT_ONCE = 5
BALLAST = "x" * 50_000
_MB = 1_000_000


class Load:
    """A worker's way through jobs, one exchange after the other, and how long each took."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._held: list[Settlement] = []
        arena.app.bridge.run(arena.app.store.heartbeat(WorkerRecord(id="worker", lease_s=600.0)))

    def run(self, rounds: int) -> Sequence[float]:
        """Enqueue, settle and claim so many times."""
        took = []
        store = self._arena.app.store
        for _ in range(rounds):
            self._arena.enqueue([self._arena.call("work", 0, ballast=BALLAST) for _ in range(AT_ONCE)])
            claim = Claim(worker="worker", token=new_token(), limit=AT_ONCE)
            began_s = CLOCK.monotonic()
            reply = self._arena.app.bridge.run(store.exchange(Exchange(settlements=self._held, claim=claim)))
            took.append(CLOCK.monotonic() - began_s)
            assert all(reply.settled)
            assert len(reply.deliveries) == AT_ONCE
            self._held = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in reply.deliveries]
        return took


def test_one_who_reads_on_and_on_is_told_of_and_slows_no_claim(
    tmp_path: Path, is_full: bool, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_full:
        monkeypatch.setattr(machine, "LARGEST_LOG", LOG_BYTES + 2 * _MB)
    engine = SqliteEngine(tmp_path)
    log = tmp_path / "shop.db-wal"
    arena = Arena(tmp_path, engine, is_audited=False)
    load = Load(arena)
    rounds = 300 if is_full else 40
    alone = load.run(rounds)
    assert log.stat().st_size < LOG_BYTES, "the log grows without a reader"
    assert _disk(arena) == "ok"
    with engine.connection() as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
        read = list(load.run(rounds))
        for _ in range(100):
            if log.stat().st_size > machine.LARGEST_LOG:
                break
            read += load.run(rounds // 4)
        largest = log.stat().st_size
        told = _disk(arena)
    assert largest > machine.LARGEST_LOG, "the reader held nothing up: this run shows nothing"
    assert "shop.db-wal" in told
    assert "keeps on reading" in told
    load.run(rounds)
    assert log.stat().st_size <= LOG_BYTES, "the log stays large when nobody reads any more"
    assert _disk(arena) == "ok"
    held = len(arena.records())
    arena.close()

    assert held == len(arena.client.acked)
    assert quantile(read, 0.5) <= 3 * quantile(alone, 0.5) + 0.005
    slow_ms, base_ms = (1_000 * quantile(one, 0.99) for one in (read, alone))
    report(
        "a read transaction is left open under load",
        injected=1,
        figures=Figures(acked=held, lost=0),
        note=f"log {largest / _MB:.0f} MB, and health tells; claims p99 {slow_ms:.0f} ms, without it {base_ms:.0f} ms; "
        f"log cut to {LOG_BYTES // _MB} MB when the reader is gone",
    )


def _disk(arena: Arena) -> str:
    """What health says of the disk."""
    result = arena.app.health().checks["disk"]
    return result.error or result.status
