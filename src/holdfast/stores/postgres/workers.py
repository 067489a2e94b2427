"""Workers: their leases, what the dead ones leave behind, and what running jobs want remembered."""

from __future__ import annotations

from contextlib import suppress

import psycopg
from msgspec import json

from holdfast.ports import Beat, Delivery, Note, WorkerRecord
from holdfast.stores.lanes import Lanes
from holdfast.stores.postgres.arrays import blobs, escaped, ints, plain, texts
from holdfast.stores.postgres.claim import read_held
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.lanes import LaneReads
from holdfast.stores.postgres.queries import load

_SQL = load("workers.sql")


def beat(db: Db, worker: WorkerRecord) -> Beat:
    """Register a worker, renew its lease, or take its leave."""
    name, record = escaped(worker.id), json.encode(worker)
    if worker.lease_s <= 0:
        db.run(_SQL["leave"], worker=name, record=record)
        return Beat(is_alive=False)
    with db.together():
        renewed = db.run(_SQL["beat"], worker=name, lease_s=worker.lease_s, record=record)
        cancelled = db.run(_SQL["cancelled"], worker=name)
        held = db.run(_SQL["held_by"], worker=name)
    if not renewed.fetchall():
        return Beat(is_alive=False)
    told = tuple(plain(id) for (id,) in cancelled.fetchall())  # noqa: A001
    if told:  # and not before the answer has arrived: one that was lost is asked for again
        with suppress(psycopg.Error):  # they are told again then, which does no harm
            db.run(_SQL["forget_cancelled"], worker=name, ids=texts(told))
    return Beat(is_alive=True, cancelled=told, held={bytes(token): n for token, n in held.fetchall()})


def reclaim(db: Db, lanes: Lanes, worker: str, token: bytes, limit: int) -> list[Delivery]:
    """Give up the workers whose lease is over, and hand their jobs to this one."""
    name = escaped(worker)
    is_alive, is_used = db.row(_SQL["is_alive"], worker=name, token=token)
    if not is_alive:
        return []
    lanes.refresh(LaneReads(db))
    if not is_used:
        with db.together():
            db.run(_SQL["end_frozen"])
            db.run(_SQL["mend_leases"])
            db.run(_SQL["give_up"], worker=name)
            orphans = db.run(_SQL["orphans"], limit=limit)
        found = orphans.fetchall()
        if not found:
            return []
        tokens, seqs = zip(*found, strict=True)
        db.run(_SQL["adopt"], worker=name, token=token, seqs=ints(seqs), tokens=blobs(tokens))
    return read_held(db, lanes, token, name)


def remember(db: Db, note: Note) -> bool:
    """Write down what a running job wants remembered, if its lease holds."""
    steps = [] if note.checkpoint is None else [("c", note.checkpoint)]
    if note.step is not None:
        steps.append((escaped(f"s{note.step[0]}"), note.step[1]))
    values = {
        "id": escaped(note.id),
        "token": note.token,
        "progress": note.progress,
        "blame": None if note.blame is None else escaped(note.blame),
        "has_notes": bool(steps),
    }
    if not steps:
        return bool(db.rows(_SQL["note"], **values))
    with db.transaction():
        found = db.rows(_SQL["note"], **values)
        for step, data in steps if found else ():
            with db.together():
                db.run(_SQL["forget_note"], seq=found[0][0], step=step)
                db.run(_SQL["add_note"], seq=found[0][0], step=step, data=data)
    return bool(found)
