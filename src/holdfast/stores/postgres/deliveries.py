"""Makes deliveries of the rows of claimed jobs."""

from __future__ import annotations

from typing import Any, Final

from holdfast.ports import Delivery
from holdfast.stores.lanes import Lanes
from holdfast.stores.notes import notes_of
from holdfast.stores.postgres.arrays import ints, plain
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.lanes import LaneReads
from holdfast.stores.postgres.queries import load
from holdfast.types import Notes

_SQL = load("claim.sql")
COLUMNS: Final = _SQL["columns"]


def deliveries_of(db: Db, lanes: Lanes, rows: list[Any], token: bytes) -> list[Delivery]:
    """Rows of `COLUMNS`, in their order."""
    if not rows:
        return []
    by_number = lanes.know(LaneReads(db), {row[1] for row in rows})
    with_notes = [row[0] for row in rows if row[16]]
    notes = read_notes(db, with_notes) if with_notes else {}
    deliveries = []
    for row in rows:
        lane = by_number[row[1]]
        delivery = Delivery(
            id=plain(row[2]),
            task=lane.task,
            queue=lane.queue,
            payload=row[3],
            token=token,
            attempt=row[4],
            due_at=row[5],
            created_at=row[6],
            claimed_at=row[7],
            retries=row[8],
            elapsed_s=row[9],
            tenant=plain(row[10]),
            user=plain(row[11]),
            project=plain(row[12]),
            trace=plain(row[13]),
            is_suspect=row[14],
            orphaned=row[15],
        )
        if row[16]:
            delivery.notes = notes.get(row[0])
        if row[17]:
            delivery.blame = plain(row[19])
            delivery.is_alone = row[18] or delivery.blame != ""
            delivery.worker = plain(row[20])
        deliveries.append(delivery)
    return deliveries


def read_notes(db: Db, seqs: list[int]) -> dict[int, Notes]:
    """What these jobs have remembered, by place; those without any are left out."""
    return notes_of((seq, plain(step), data) for seq, step, data in db.rows(_SQL["notes"], seqs=ints(seqs)))
