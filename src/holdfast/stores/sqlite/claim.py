"""Claims jobs: looks at the heads of the open lanes, and takes by priority, due time and age within the caps."""

from __future__ import annotations

import math
from array import array
from typing import Final

import apsw
from msgspec import json

from holdfast.ports import Claim, Delivery
from holdfast.stores.lanes import Lane
from holdfast.stores.picking import Head, most_of, pick
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.deliveries import read_claimed
from holdfast.stores.sqlite.lanes import LaneReads
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_row, read_rows, read_value

_SQL = load("claim.sql")
_PROMOTED_AT_ONCE: Final = 1000
_FEWEST_HEADS: Final = 16
_SOON_S: Final = 0.02
"""When to ask again, where there were too many lanes to look at all of them."""
_decode_seqs = json.Decoder(list[int]).decode
_decode_heads = json.Decoder(list[Head]).decode


def claim_jobs(batch: Batch, claim: Claim, now: float, known: dict[str, int]) -> tuple[list[Delivery], float | None]:
    """What the claim brings, and the seconds until a delayed job is due where it brings less than it may.

    The lane of each job is remembered in `known`.
    """
    db = batch.db
    if batch.is_claimed_since(claim.token):
        batch.flush()
    glance = {"worker": claim.worker, "token": claim.token}
    is_alive, is_used, next_due_at, newest_lane, lanes_epoch = read_row(db, _SQL["glance"], glance)
    if not batch.new_lanes:
        batch.books.lanes.refresh(LaneReads(db), newest_lane, lanes_epoch)
    deliveries: list[Delivery] = []
    if is_alive and is_used:
        deliveries = held_under(batch, claim.token, claim.worker)
    elif is_alive and claim.limit > 0:
        if next_due_at is not None and next_due_at <= now:
            db.execute(_SQL["promote"], {"now": now, "limit": max(_PROMOTED_AT_ONCE, 2 * claim.limit)})
            next_due_at = read_value(db, _SQL["next_due"])
        look = batch.books.lanes.worth_a_look(LaneReads(db), claim.queues, claim.caps)
        deliveries = _take(batch, claim, look.lanes, now, known)
        if look.is_cut:
            next_due_at = min(next_due_at or math.inf, now + _SOON_S)
    if len(deliveries) >= claim.limit or next_due_at is None:
        return deliveries, None
    return deliveries, max(0.0, next_due_at - now)


def held_under(batch: Batch, token: bytes, worker: str) -> list[Delivery]:
    """What still runs under a token that this worker has used."""
    found = read_rows(batch.db, _SQL["seqs_of"], (token, worker))
    seqs = array("q", found[0][0]) if found else array("q")
    return read_claimed(batch.db, batch.books.lanes, seqs, token).deliveries


def _take(batch: Batch, claim: Claim, lanes: dict[int, Lane], now: float, known: dict[str, int]) -> list[Delivery]:
    seqs = _choose(batch.db, lanes, claim)
    if not seqs:
        return []
    changes = {
        "token": claim.token,
        "worker": claim.worker,
        "is_alone": int(claim.is_alone),
        "now": now,
        "seqs": apsw.carray(seqs),
    }
    batch.db.execute(_SQL["take"], changes)
    claimed = read_claimed(batch.db, batch.books.lanes, seqs, claim.token)
    for (lane, state), n in claimed.sources.items():
        batch.move(lane, state, "running", n)
    if claimed.deliveries:
        batch.hold(claim.token, claim.worker, seqs.tobytes(), len(claimed.deliveries))
    known.update(zip([one.id for one in claimed.deliveries], claimed.lanes, strict=True))
    return claimed.deliveries


def _choose(db: apsw.Connection, lanes: dict[int, Lane], claim: Claim) -> array[int]:
    """The jobs to take, in order."""
    if not lanes:
        return array("q")
    if len(lanes) > 1:
        return _merge(db, lanes, claim)
    (lane,) = lanes.values()
    limit = min([most_of(claim), *(claim.caps[gate] for gate in lane.gates & claim.caps.keys())])
    question = {"lane": lane.number, "limit": limit}
    return array("q", _decode_seqs(read_value(db, _SQL["heads_of_one"], question)))


def _merge(db: apsw.Connection, lanes: dict[int, Lane], claim: Claim) -> array[int]:
    """Look at the first few of each lane, and at more of each as long as that is not enough to know the order."""
    size, at_most = max(_FEWEST_HEADS, 2 * claim.limit // len(lanes)), most_of(claim)
    numbers, most = apsw.carray(array("q", lanes)), dict.fromkeys(lanes, at_most)
    while True:
        size = min(size, at_most)
        text = read_value(db, _SQL["heads"], {"lanes": numbers, "limit": size})
        heads = sorted(_decode_heads(text))
        seqs = pick(heads, lanes, claim.limit, claim.caps, most, size)
        if seqs is not None:
            return seqs
        size *= 4
