"""Reads claimed jobs: all of them in one row of the database."""

from __future__ import annotations

from array import array
from typing import Final

import apsw
from msgspec import Struct, json

from holdfast.ports import Delivery
from holdfast.stores.lanes import Lanes
from holdfast.stores.notes import notes_of
from holdfast.stores.sqlite.lanes import LaneReads
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_row, read_rows
from holdfast.types import Notes

_SQL = load("claim.sql")


class _Rest(Struct, array_like=True):
    """What only some jobs have."""

    created_at: float
    retries: int
    elapsed_s: float
    settled: int
    tenant: str
    user: str
    project: str
    trace: str | None
    is_suspect: int
    orphaned: int
    is_orphan: int
    is_alone: int
    blame: str
    worker: str
    claimed_at: float
    seq: int | None


class _Row(Struct, array_like=True):
    id: str
    lane: int
    attempt: int
    due_at: float
    size: int
    rest: _Rest | None


_decode: Final = json.Decoder(list[_Row]).decode
_BEFORE: Final = {2: "retrying", 3: "waiting"}
"""The state that a job waited in for its claim, by the number of its latest settlement; else it was queued."""


class Claimed(Struct):
    """Jobs that are held under a token."""

    deliveries: list[Delivery]
    lanes: list[int]
    """Of each of them."""
    sources: dict[tuple[int, str], int]
    """How many came from each lane and state."""


def read_claimed(db: apsw.Connection, lanes: Lanes, seqs: array[int], token: bytes) -> Claimed:
    """Those of these jobs that run under this token, in the order of seqs."""
    claimed = Claimed([], [], {})
    if not seqs:
        return claimed
    question = {"seqs": apsw.carray(seqs), "token": token}
    text, payloads, claimed_at = read_row(db, _SQL["deliveries"], question)
    rows = _decode(text)
    with_notes = array("q", [row.rest.seq for row in rows if row.rest is not None and row.rest.seq is not None])
    notes = read_notes(db, with_notes) if with_notes else {}
    by_number, sources = lanes.know(LaneReads(db), {row.lane for row in rows}), claimed.sources
    start = 0
    for row in rows:
        end = start + row.size
        lane = by_number[row.lane]
        delivery = Delivery(
            id=row.id,
            task=lane.task,
            queue=lane.queue,
            payload=payloads[start:end],
            token=token,
            attempt=row.attempt,
            created_at=row.due_at,
            due_at=row.due_at,
            claimed_at=claimed_at,
        )
        start = end
        source = (row.lane, "queued")
        if row.rest is not None:
            _add_rest(delivery, row.rest, notes)
            source = (row.lane, _BEFORE.get(row.rest.settled, "queued"))
        sources[source] = sources.get(source, 0) + 1
        claimed.deliveries.append(delivery)
        claimed.lanes.append(row.lane)
    return claimed


def _add_rest(delivery: Delivery, rest: _Rest, notes: dict[int, Notes]) -> None:
    delivery.created_at = rest.created_at
    delivery.retries = rest.retries
    delivery.elapsed_s = rest.elapsed_s
    delivery.tenant = rest.tenant
    delivery.user = rest.user
    delivery.project = rest.project
    delivery.trace = rest.trace
    delivery.is_suspect = bool(rest.is_suspect)
    delivery.orphaned = rest.orphaned
    delivery.claimed_at = rest.claimed_at
    if rest.seq is not None:
        delivery.notes = notes.get(rest.seq)
    if rest.is_orphan:
        delivery.is_alone = bool(rest.is_alone) or rest.blame != ""
        delivery.blame = rest.blame
        delivery.worker = rest.worker


def read_notes(db: apsw.Connection, seqs: array[int]) -> dict[int, Notes]:
    """What these jobs have remembered, by place; those without any are left out."""
    return notes_of(read_rows(db, _SQL["notes"], (apsw.carray(seqs),)))
