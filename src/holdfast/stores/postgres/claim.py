"""Claims jobs: looks at the heads of the open lanes, and takes by priority, due time and age within the caps."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

from holdfast.ports import Claim, Delivery
from holdfast.stores.lanes import Lane, Lanes
from holdfast.stores.picking import Head, pick
from holdfast.stores.postgres.arrays import ints
from holdfast.stores.postgres.db import Cursor, Db
from holdfast.stores.postgres.deliveries import COLUMNS, deliveries_of
from holdfast.stores.postgres.lanes import LaneReads
from holdfast.stores.postgres.queries import load

_SQL = load("claim.sql")
_JOBS_COLUMNS: Final = ", ".join(f"job.{column.strip()}" for column in COLUMNS.split(","))
_TAKE: Final = _SQL["take"].replace(":columns", COLUMNS).replace(":jobs_columns", _JOBS_COLUMNS)
_HELD: Final = _SQL["held"].replace(":columns", COLUMNS)
_PROMOTED_AT_ONCE: Final = 1000
_FEWEST_HEADS: Final = 16
_ROUNDS: Final = 4
_SOON_S: Final = 0.02
"""When to ask again, where there were too many lanes to look at all of them."""

Wishes = dict[int, int]
"""How many to take from each lane."""


class Claiming:
    """A claim on its way: what can be asked without an answer is sent first, together with all else of an exchange."""

    def __init__(self, db: Db, claim: Claim, lanes: Lanes) -> None:
        self._db = db
        self._claim = claim
        self._lanes = lanes
        self._room = dict(claim.caps)
        self._left = claim.limit
        self._look = lanes.worth_a_look(LaneReads(db), claim.queues, claim.caps) if claim.limit > 0 else None
        self._glance: Cursor | None = None
        self._taken: Cursor | None = None
        self._is_refused = False
        self.next_due_s: float | None = None
        self.now = 0.0
        self.newest_value = 0

    def send(self, *, is_alone: bool) -> None:
        """Make due jobs ready, look around, and take from the only lane there is, if there is only one.

        Whether this is alone in its transaction decides how durable that has to be.
        """
        claim = self._claim
        at_once = max(_PROMOTED_AT_ONCE, 2 * claim.limit)
        self._glance = self._db.run(
            _SQL["glance"], worker=claim.worker, token=claim.token, limit=at_once, is_alone=is_alone
        )
        if self._look is not None and len(self._look.lanes) == 1:
            wishes = self._wishes_of_one()
            self._taken = self._take(wishes, is_more=False) if wishes else None

    def answers(self) -> tuple[list[Delivery], dict[str, int]]:
        """What the claim brings, and the rows of these jobs."""
        assert self._glance is not None  # noqa: S101 - it was sent
        (row,) = self._glance.fetchall()
        self.now, self.newest_value, is_alive, is_used, next_due_at, newest_lane, epoch, _ = row
        claim, db = self._claim, self._db
        rows: list[Any] = []
        self._is_refused = is_used or not is_alive
        if is_alive and is_used:
            rows = db.rows(_HELD, token=claim.token, worker=claim.worker)
        elif is_alive and claim.limit > 0:
            if self._taken is not None:
                rows = self._book(self._taken.fetchall())
            is_new = self._lanes.refresh(LaneReads(db), newest_lane, epoch)
            if self._left > 0 and (is_new or self._taken is None):
                rows += self._take_more(is_more=bool(rows))
            if self._look is not None and self._look.is_cut:
                next_due_at = min(next_due_at or math.inf, self.now + _SOON_S)
        if len(rows) < claim.limit and next_due_at is not None:
            self.next_due_s = max(0.0, next_due_at - self.now)
        deliveries = deliveries_of(db, self._lanes, rows, claim.token)
        return deliveries, {one.id: row[0] for one, row in zip(deliveries, rows, strict=True)}

    def look_again(self, rows: dict[str, int]) -> list[Delivery]:
        """What came since; its rows are added to those."""
        if self._is_refused or self._left <= 0:
            return []
        self._lanes.refresh(LaneReads(self._db))
        more = self._take_more(is_more=bool(rows))
        deliveries = deliveries_of(self._db, self._lanes, more, self._claim.token)
        rows |= {one.id: row[0] for one, row in zip(deliveries, more, strict=True)}
        return deliveries

    # ---------------------------------------------------------------- from several lanes

    def _take_more(self, *, is_more: bool) -> list[Any]:
        """Look at the heads of all open lanes, choose, take; again as long as others were faster."""
        rows: list[Any] = []
        query = "heads"
        for _ in range(_ROUNDS):
            self._look = look = self._lanes.worth_a_look(LaneReads(self._db), self._claim.queues, self._room)
            wishes = self._wishes(look.lanes, query)
            if not wishes:
                break
            found = self._book(self._take(wishes, is_more=is_more or bool(rows)).fetchall())
            rows += found
            if self._left <= 0 or len(found) == sum(wishes.values()):
                break
            query = "free_heads"
        return rows

    def _wishes(self, lanes: dict[int, Lane], query: str) -> Wishes:
        """Look at the first few of each lane, and at more of each as long as that is not enough to know the order."""
        if not lanes:
            return {}
        size = max(_FEWEST_HEADS, 2 * self._left // len(lanes))
        while True:
            size = min(size, self._left)
            heads: list[Head] = sorted(self._db.rows(_SQL[query], lanes=ints(list(lanes)), limit=size))
            seqs = pick(heads, lanes, self._left, self._room, size)
            if seqs is not None:
                lane_of = {seq: lane for _, _, seq, lane in heads}
                return dict(Counter(lane_of[seq] for seq in seqs))
            size *= 4

    def _wishes_of_one(self) -> Wishes:
        assert self._look is not None  # noqa: S101 - it was looked for
        (lane,) = self._look.lanes.values()
        n = min([self._left, *(self._room[gate] for gate in lane.gates & self._room.keys())])
        return {lane.number: n} if n > 0 else {}

    def _take(self, wishes: Wishes, *, is_more: bool) -> Cursor:
        claim = self._claim
        return self._db.run(
            _TAKE,
            lanes=ints(list(wishes)),
            limits=ints(list(wishes.values())),
            worker=claim.worker,
            token=claim.token,
            is_alone=claim.is_alone,
            is_more=is_more,
        )

    def _book(self, rows: list[Any]) -> list[Any]:
        """What was taken uses up room."""
        self._left -= len(rows)
        if self._room:
            known = self._lanes.know(LaneReads(self._db), {row[1] for row in rows})
            for number, n in Counter(row[1] for row in rows).items():
                for gate in known[number].gates & self._room.keys():
                    self._room[gate] -= n
        return rows


def read_held(db: Db, lanes: Lanes, token: bytes, worker: str) -> list[Delivery]:
    """What still runs under a token that this worker has used."""
    return deliveries_of(db, lanes, db.rows(_HELD, token=token, worker=worker), token)
