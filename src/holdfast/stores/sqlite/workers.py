"""Workers: their leases, what the dead ones leave behind, and what running jobs want remembered."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import apsw
from msgspec import json

from holdfast.ports import Beat, Delivery, Note, WorkerRecord
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.claim import held_under
from holdfast.stores.sqlite.deliveries import read_claimed
from holdfast.stores.sqlite.lanes import LaneReads
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_row, read_rows, read_value

_SQL = load("workers.sql")
_decode_seqs = json.Decoder(list[int]).decode


def beat(db: apsw.Connection, worker: WorkerRecord, now: float) -> Beat:
    """Register a worker, renew its lease, or take its leave."""
    row = {"id": worker.id, "now": now, "lease_s": worker.lease_s, "record": json.encode(worker)}
    if worker.lease_s <= 0:
        del row["lease_s"]
        db.execute(_SQL["leave"], row)
        return Beat(is_alive=False)
    db.execute(_SQL["beat"], row)
    if not db.changes():
        return Beat(is_alive=False)
    cancelled = read_rows(db, _SQL["tell_cancelled"], (worker.id,))
    held = dict(read_rows(db, _SQL["held_by"], (worker.id,)))
    return Beat(is_alive=True, cancelled=tuple(id for (id,) in cancelled), held=held)  # noqa: A001


def alive_workers(db: apsw.Connection) -> list[str]:
    """Every worker that was not given up."""
    return [id for (id,) in read_rows(db, _SQL["alive"])]  # noqa: A001


def reclaim(
    batch: Batch, worker: str, token: bytes, limit: int, dead: Sequence[str]
) -> tuple[list[Delivery], list[str]]:
    """Give up the workers whose lease is over and those known to be dead, and hand their jobs to this one.

    Answers with the jobs and with the workers that were given up now.
    """
    db = batch.db
    batch.flush()
    is_alive, is_used = read_row(db, _SQL["is_alive"], {"worker": worker, "token": token})
    if not is_alive:
        return [], []
    if not batch.new_lanes:
        batch.books.lanes.refresh(LaneReads(db))
    if is_used:
        return held_under(batch, token, worker), []
    now = batch.tick()
    db.execute(_SQL["give_up"], {"now": now, "by": worker, "dead": json.encode(list(dead)).decode()})
    gone: list[str] = []
    if db.changes():
        gone = [id for (id,) in read_rows(db, _SQL["given_up"], {"now": now})]  # noqa: A001
    seqs = _adopt(batch, token, limit)
    if not seqs:
        return [], gone
    batch.hold(token, worker, seqs.tobytes(), len(seqs))
    return read_claimed(db, batch.books.lanes, seqs, token).deliveries, gone


def _adopt(batch: Batch, token: bytes, limit: int) -> array[int]:
    """Put up to so many orphans under a new token."""
    db = batch.db
    adopted = array("q")
    for old, held in read_rows(db, _SQL["orphans"]):
        room = limit - len(adopted)
        if room <= 0:
            break
        seqs = {"seqs": apsw.carray(array("q", held)), "token": old}
        some = array("q", _decode_seqs(read_value(db, _SQL["held"], seqs))[:room])
        if some:
            db.execute(_SQL["adopt"], {"seqs": apsw.carray(some), "old": old, "new": token})
            batch.let_go(old, len(some))
            adopted += some
    return adopted


def remember(batch: Batch, note: Note) -> bool:
    """Write down what a running job wants remembered, if its lease holds."""
    has_notes = note.checkpoint is not None or note.step is not None
    row = {
        "id": note.id,
        "token": note.token,
        "progress": note.progress,
        "blame": note.blame,
        "has_notes": int(has_notes),
    }
    batch.db.execute(_SQL["note"], row)
    if not batch.db.changes():
        return False
    if note.checkpoint is not None:
        batch.db.execute(_SQL["add_note"], {"id": note.id, "step": "c", "data": note.checkpoint})
    if note.step is not None:
        name, data = note.step
        batch.db.execute(_SQL["add_note"], {"id": note.id, "step": f"s{name}", "data": data})
    return True
