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

HELD_S = 60.0
"""How long the transaction is left open, at full size."""
EVERY_S = 0.02
"""Between two rounds then: as fast as it can, the log would have gigabytes."""
BLOCK = 100
AT_ONCE = 5
_MB = 1_000_000


class Load:
    """A worker's way through jobs, one exchange after the other, and how long each took."""

    def __init__(self, arena: Arena, *, size: int, every_s: float) -> None:
        self._arena = arena
        self._ballast = "x" * size
        self._every_s = every_s
        self._held: list[Settlement] = []
        arena.app.bridge.run(arena.app.store.heartbeat(WorkerRecord(id="worker", lease_s=600.0)))

    def run(self, rounds: int) -> Sequence[float]:
        """Enqueue, settle and claim so many times."""
        took = []
        store = self._arena.app.store
        for _ in range(rounds):
            self._arena.enqueue([self._arena.call("work", 0, ballast=self._ballast) for _ in range(AT_ONCE)])
            claim = Claim(worker="worker", token=new_token(), limit=AT_ONCE)
            began_s = CLOCK.monotonic()
            reply = self._arena.app.bridge.run(store.exchange(Exchange(settlements=self._held, claim=claim)))
            took.append(CLOCK.monotonic() - began_s)
            assert all(reply.settled)
            assert len(reply.deliveries) == AT_ONCE
            self._held = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in reply.deliveries]
            CLOCK.sleep(self._every_s)
        return took


def test_one_who_reads_on_and_on_is_told_of_and_slows_no_claim(
    tmp_path: Path, is_full: bool, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_full:
        monkeypatch.setattr(machine, "LARGEST_LOG", LOG_BYTES + 2 * _MB)
    engine = SqliteEngine(tmp_path)
    log = tmp_path / "shop.db-wal"
    arena = Arena(tmp_path, engine, is_audited=False)
    load = Load(arena, size=20_000, every_s=EVERY_S) if is_full else Load(arena, size=50_000, every_s=0.0)
    rounds = BLOCK if is_full else 10
    alone = load.run(5 * rounds)
    assert log.stat().st_size < LOG_BYTES, "the log grows without a reader"
    assert _disk(arena) == "ok"
    with engine.connection() as db:
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM holdfast_jobs").fetchall()
        began_s = CLOCK.monotonic()
        end_s = began_s + (HELD_S if is_full else 0.0)
        read = list(load.run(5 * rounds))
        for _ in range(100):
            if log.stat().st_size > machine.LARGEST_LOG and CLOCK.monotonic() >= end_s:
                break
            read += load.run(rounds)
        held_s = CLOCK.monotonic() - began_s
        largest = log.stat().st_size
        told = _disk(arena)
    assert largest > machine.LARGEST_LOG, "the reader held nothing up: this run shows nothing"
    assert "shop.db-wal" in told
    assert "keeps on reading" in told
    load.run(4 * rounds)
    cut_to = log.stat().st_size
    assert cut_to <= LOG_BYTES, "the log stays large when nobody reads any more"
    assert _disk(arena) == "ok"
    lost = set(arena.client.acked) - arena.records().keys()
    arena.close()

    assert lost == set()
    assert quantile(read, 0.5) <= 3 * quantile(alone, 0.5) + 0.005
    slow_ms, base_ms = (1_000 * _p99(one) for one in (read, alone))
    if is_full:  # of a few rounds it is the slowest one, which says more of the machine
        assert slow_ms <= 3 * base_ms + 2.0, f"claims p99 {slow_ms:.1f} ms, without the reader {base_ms:.1f} ms"
    report(
        "a read transaction is left open under load",
        injected=1,
        figures=Figures(acked=len(arena.client.acked), lost=len(lost)),
        note=f"for {held_s:.0f} s; log {largest / _MB:.0f} MB, and health tells; claims p99 in the median block of "
        f"{BLOCK} {slow_ms:.0f} ms, without it {base_ms:.0f} ms; log of {cut_to / _MB:.0f} MB when the reader is gone",
    )


def _p99(took: Sequence[float]) -> float:
    """That of the median block: a hiccup of the machine is not what a reader costs."""
    blocks = [took[start : start + BLOCK] for start in range(0, len(took), BLOCK)]
    return quantile([quantile(block, 0.99) for block in blocks], 0.5)


def _disk(arena: Arena) -> str:
    """What health says of the disk."""
    result = arena.app.health().checks["disk"]
    return result.error or result.status
