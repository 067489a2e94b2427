"""One write transaction under way, and the bookkeeping that is written once at its end."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import apsw
from msgspec import json

from holdfast.stores.lanes import LaneKey, Lanes
from holdfast.stores.sqlite.clock import StoreClock
from holdfast.stores.sqlite.lanes import LaneReads, add_lane
from holdfast.stores.sqlite.marks import FIRST, Mark, add_marks
from holdfast.stores.sqlite.queries import load

_SQL = load("batch.sql")
_TICK_S: Final = 1e-6
_SWEEP_EVERY: Final = 32


class Books:
    """What a writing connection knows beside the database: kept between its transactions."""

    __slots__ = (
        "db",
        "clock",
        "lanes",
        "key_window_s",
        "last_at",
        "claims_since_sweep",
        "lanes_swept_to",
        "marks_swept_to",
    )

    def __init__(self, db: apsw.Connection, clock: StoreClock, lanes: Lanes, key_window_s: float) -> None:
        self.db = db
        self.clock = clock
        self.lanes = lanes
        self.key_window_s = key_window_s
        self.last_at = 0.0
        self.claims_since_sweep = 0
        self.lanes_swept_to = 0
        self.marks_swept_to = FIRST


class Batch:
    """The operations of one transaction: each writes its own rows, and `flush` the sums over all of them."""

    __slots__ = ("db", "books", "has_news", "new_lanes", "marks", "_are_lanes_checked", "_tallies", "_claims")

    def __init__(self, books: Books) -> None:
        self.db = books.db
        self.books = books
        self.has_news = False
        """Whether a worker may have something to do now."""
        self.new_lanes: dict[LaneKey, int] = {}
        """Those that this transaction has added, or found in the table."""
        self.marks: set[Mark] = set()
        """In which blocks this transaction has added jobs, by what they are found by."""
        self._are_lanes_checked = False
        self._tallies: defaultdict[tuple[int, str], int] = defaultdict(int)
        self._claims: dict[bytes, tuple[str, bytes, int]] = {}

    def tick(self) -> float:
        """The instant now; later than any that this connection was given before, so that it names one operation."""
        books = self.books
        books.last_at = now = max(books.clock.now(), books.last_at + _TICK_S)
        return now

    def lane_of(self, key: LaneKey) -> int:
        """The number of the lane for these jobs; a new one where there is none."""
        lanes = self.books.lanes
        if not self._are_lanes_checked:
            lanes.enter(LaneReads(self.db).epoch())
            self._are_lanes_checked = True
        number = lanes.get(key)
        if number is None:
            number = self.new_lanes.get(key)
            if number is None:
                number = self.new_lanes[key] = add_lane(self.db, key)
        return number

    def move(self, lane: int, before: str, after: str, n: int = 1) -> None:
        """So many jobs went from one state to another."""
        self._tallies[lane, before] -= n
        self._tallies[lane, after] += n

    def add(self, lane: int, state: str, n: int = 1) -> None:
        """There are so many more, or fewer, in a state."""
        self._tallies[lane, state] += n

    def hold(self, token: bytes, worker: str, seqs: bytes, n: int) -> None:
        """A worker holds these from now on."""
        self._claims[token] = (worker, seqs, n)
        self.books.claims_since_sweep += 1

    def let_go(self, token: bytes, n: int = 1) -> None:
        """So many are no longer held under a token."""
        worker, seqs, held = self._claims.get(token, ("", b"", 0))
        self._claims[token] = (worker, seqs, held - n)

    def is_claimed(self, token: bytes) -> bool:
        """Whether this transaction holds or lets go something under a token, which is not written yet."""
        return token in self._claims

    def is_claimed_since(self, token: bytes) -> bool:
        """The same for this one and all above it."""
        return any(one >= token for one in self._claims)

    def lanes_dropped(self) -> None:
        """This transaction has dropped lanes: what is known of them is to be looked at again."""
        self._are_lanes_checked = False

    def committed(self) -> None:
        """What this transaction has added may be remembered now."""
        for key, number in self.new_lanes.items():
            self.books.lanes.remember(key, number)

    def sweep_claims(self) -> None:
        """Forget the claims that are settled to their end."""
        self.books.claims_since_sweep = 0
        self.db.execute(_SQL["sweep_claims"])

    def flush(self) -> None:
        """Write the sums."""
        if self._tallies:
            rows = [(lane, state, n) for (lane, state), n in self._tallies.items() if n]
            self._tallies.clear()
            if rows:
                self.db.execute(_SQL["add_tallies"], (json.encode(rows).decode(),))
        if self.marks:
            add_marks(self.db, self.marks)
            self.marks.clear()
        if self._claims:
            claims = [(token.hex(), worker, seqs.hex(), n) for token, (worker, seqs, n) in self._claims.items()]
            self._claims.clear()
            self.db.execute(_SQL["add_claims"], (json.encode(claims).decode(),))
            if self.books.claims_since_sweep >= _SWEEP_EVERY:
                self.sweep_claims()
