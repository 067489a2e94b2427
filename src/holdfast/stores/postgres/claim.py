"""Claims jobs: looks at the heads of the open lanes, and takes by priority, due time and age within the caps."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

from holdfast.ports import Claim, Delivery
from holdfast.stores.lanes import Lane, Lanes
from holdfast.stores.picking import Head, most_of, pick
from holdfast.stores.postgres.arrays import ints
from holdfast.stores.postgres.db import Cursor, Db
from holdfast.stores.postgres.deliveries import COLUMNS, deliveries_of
from holdfast.stores.postgres.lanes import LaneReads
from holdfast.stores.postgres.queries import load

_SQL = load("claim.sql")
_SEEN: Final = 9
"""So many columns say what a claim has seen beside jobs."""


def _take(seen: str, may_take: str, answer: str) -> str:
    """The statement that takes, by itself or with all that a claim must know."""
    of_job = ", ".join(f"job.{column.strip()}" for column in COLUMNS.split(","))
    sql = _SQL["take"].replace(":seen", seen).replace(":may_take", _SQL[may_take]).replace(":answer", answer)
    return sql.replace(":jobs_columns", of_job)


_TAKE: Final = _take("", "may_take", f"{COLUMNS} FROM taken")
_CLAIM: Final = _take(_SQL["seen"], "may_take_all", f"seen.*, {COLUMNS} FROM seen LEFT JOIN taken ON true")
_HELD: Final = _SQL["held"].replace(":columns", COLUMNS)
_PROMOTED_AT_ONCE: Final = 1000
_FEWEST_HEADS: Final = 16
_ROUNDS: Final = 4
_ANY_LANE: Final = 2**62
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
        self._most = most_of(claim)
        self._taken_of: Counter[int] = Counter()
        """From each lane, so far."""
        self._look = lanes.worth_a_look(LaneReads(db), claim.queues, claim.caps) if claim.limit > 0 else None
        self._glance: Cursor | None = None
        self._taken: Cursor | None = None
        self._whole: Cursor | None = None
        self._has_taken = False
        self._is_refused = False
        self.next_due_s: float | None = None
        self.now = 0.0
        self.newest_value = 0
        self.server_started_at = 0.0

    def send_whole(self) -> bool:
        """Where there is one lane, look around and take by one statement; False where there is not."""
        wishes = self._wishes_of_one()
        if wishes:
            self._whole = self._take(_CLAIM, wishes, newest=self._lanes.newest)
        return bool(wishes)

    def send(self, *, is_alone: bool) -> None:
        """Make due jobs ready, look around, and take from the only lane there is, if there is only one.

        Whether this is alone in its transaction decides how durable that has to be.
        """
        claim = self._claim
        at_once = max(_PROMOTED_AT_ONCE, 2 * claim.limit)
        self._glance = self._db.run(
            _SQL["glance"], worker=claim.worker, token=claim.token, limit=at_once, is_alone=is_alone
        )
        wishes = self._wishes_of_one()
        self._taken = self._take(_TAKE, wishes, newest=self._lanes.newest) if wishes else None

    def answers(self) -> tuple[list[Delivery], dict[str, int]]:
        """What the claim brings, and the rows of these jobs."""
        seen, rows = self._answered()
        self.now, self.newest_value, self.server_started_at, *seen = seen
        is_alive, is_used, next_due_at, newest_lane, epoch, _ = seen
        claim, db = self._claim, self._db
        self._is_refused = is_used or not is_alive
        if is_alive and is_used:
            rows = db.rows(_HELD, token=claim.token, worker=claim.worker)
        elif is_alive and claim.limit > 0:
            rows = self._book(rows)
            is_new = self._lanes.refresh(LaneReads(db), newest_lane, epoch)
            if self._left > 0 and (is_new or not self._has_taken):
                rows += self._take_more(is_more=bool(rows))
            if self._look is not None and self._look.is_cut:
                next_due_at = min(next_due_at or math.inf, self.now + _SOON_S)
        if len(rows) < claim.limit and next_due_at is not None:
            self.next_due_s = max(0.0, next_due_at - self.now)
        deliveries = deliveries_of(db, self._lanes, rows, claim.token)
        return deliveries, {one.id: row[0] for one, row in zip(deliveries, rows, strict=True)}

    def _answered(self) -> tuple[Any, list[Any]]:
        """What was seen, and the rows of what was taken."""
        if self._whole is not None:
            answer = self._whole.fetchall()
            seen = answer[0][:_SEEN]
            self._has_taken = True
            if seen[5] is None or seen[5] > seen[0]:
                return seen, [row[_SEEN:] for row in answer if row[_SEEN] is not None]
            with self._db.together():  # something delayed is due
                self.send(is_alone=True)
        assert self._glance is not None  # noqa: S101 - it was sent
        (seen,) = self._glance.fetchall()
        self._has_taken = self._taken is not None
        return seen, [] if self._taken is None else self._taken.fetchall()

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
            found = self._book(self._take(_TAKE, wishes, is_more=is_more or bool(rows)).fetchall())
            rows += found
            if self._left <= 0 or len(found) == sum(wishes.values()):
                break
            query = "free_heads"
        return rows

    def _wishes(self, lanes: dict[int, Lane], query: str) -> Wishes:
        """Look at the first few of each lane, and at more of each as long as that is not enough to know the order."""
        most = {number: n for number in lanes if (n := self._most_of(number)) > 0}
        if not most:
            return {}
        size, at_most = max(_FEWEST_HEADS, 2 * self._left // len(most)), max(most.values())
        while True:
            size = min(size, at_most)
            heads: list[Head] = sorted(self._db.rows(_SQL[query], lanes=ints(list(most)), limit=size))
            seqs = pick(heads, lanes, self._left, self._room, most, size)
            if seqs is not None:
                lane_of = {seq: lane for _, _, seq, lane in heads}
                return dict(Counter(lane_of[seq] for seq in seqs))
            size *= 4

    def _wishes_of_one(self) -> Wishes:
        """What to take where there is only one lane; nothing where there are more."""
        if self._look is None or len(self._look.lanes) != 1:
            return {}
        (lane,) = self._look.lanes.values()
        n = min([self._most_of(lane.number), *(self._room[gate] for gate in lane.gates & self._room.keys())])
        return {lane.number: n} if n > 0 else {}

    def _most_of(self, lane: int) -> int:
        """How many of this lane may still be taken, whatever the caps say."""
        return min(self._left, self._most - self._taken_of[lane])

    def _take(self, sql: str, wishes: Wishes, *, is_more: bool = False, newest: int = _ANY_LANE) -> Cursor:
        claim = self._claim
        return self._db.run(
            sql,
            lanes=ints(list(wishes)),
            limits=ints(list(wishes.values())),
            worker=claim.worker,
            token=claim.token,
            is_alone=claim.is_alone,
            is_more=is_more,
            newest=newest,
        )

    def _book(self, rows: list[Any]) -> list[Any]:
        """What was taken uses up room."""
        self._left -= len(rows)
        lanes = Counter(row[1] for row in rows)
        self._taken_of += lanes
        if self._room:
            known = self._lanes.know(LaneReads(self._db), lanes.keys())
            for number, n in lanes.items():
                for gate in known[number].gates & self._room.keys():
                    self._room[gate] -= n
        return rows


def read_held(db: Db, lanes: Lanes, token: bytes, worker: str) -> list[Delivery]:
    """What still runs under a token that this worker has used."""
    return deliveries_of(db, lanes, db.rows(_HELD, token=token, worker=worker), token)
