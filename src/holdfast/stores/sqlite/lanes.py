"""The lanes: jobs of one queue, task and set of gates, which are open or closed together."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import apsw
from msgspec import Struct, json

from holdfast.clock import new_token
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_row, read_rows, read_value

_SQL = load("lanes.sql")
_MOST_LOOKED_INTO: Final = 256
_MOST_PASSED_OVER: Final = 4096
_FEW: Final = 32
_MOST_WHOLE: Final = 1000
_MOST_KNOWN: Final = 5000
_SWEPT_AT_ONCE: Final = 2000

LaneKey = tuple[str, str, tuple[str, ...]]


class Lane(Struct, frozen=True):
    """One lane."""

    number: int
    queue: str
    task: str
    gates: frozenset[str]
    """With those of queue and task."""


class Look(Struct):
    """Lanes that a claim may take from."""

    lanes: dict[int, Lane]
    is_cut: bool = False
    """There were too many to look at all: the next claim goes on."""


class Lanes:
    """What a writing connection knows of the lanes: all while they are few, else those that it has met lately.

    With limits for single users there may be one for each user. A lane never changes, and its number is never another's
    (a rollback aside: so only what is committed is remembered); one without jobs may be dropped by any process, which
    begins a new epoch, and then all is forgotten here.
    """

    def __init__(self) -> None:
        self.by_number: dict[int, Lane] = {}
        self._numbers: dict[LaneKey, int] = {}
        self._epoch = ""
        self._newest = 0
        self._is_whole = True
        self._start = 0
        self._open: tuple[tuple[object, ...], dict[int, Lane]] = ((), {})

    # ---------------------------------------------------------------- for those who enqueue

    def get(self, key: LaneKey) -> int | None:
        """The number of the lane for these jobs, if it is known here; `check` comes first in each transaction."""
        return self._numbers.get(key)

    def check(self, db: apsw.Connection) -> None:
        """Forget all, if lanes were dropped."""
        self._enter(read_value(db, _SQL["epoch"]))

    @staticmethod
    def add(db: apsw.Connection, key: LaneKey) -> int:
        """The number of the lane for these jobs; makes it where there is none. `remember` is to follow the commit."""
        queue, task, gates = key
        names = (queue, task, json.encode(sorted(set(gates))).decode())
        found = read_rows(db, _SQL["find"], names)
        if not found:
            db.execute(_SQL["add"], names)
            return db.last_insert_rowid()
        number: int = found[0][0]
        return number

    def remember(self, key: LaneKey, number: int) -> None:
        """A lane that is committed."""
        if len(self._numbers) >= _MOST_KNOWN:
            self._numbers.clear()
        self._numbers[key] = number

    # ---------------------------------------------------------------- for those who claim

    def refresh(self, db: apsw.Connection, newest: int | None = None, epoch: str = "") -> None:
        """Hear of what was added; not inside of a transaction that adds some itself, as it may be rolled back."""
        if newest is None:
            newest, epoch = read_row(db, _SQL["state"])
        self._enter(epoch)
        if newest <= self._newest:
            return
        if self._is_whole:
            self._learn(read_rows(db, _SQL["newer"], (self._newest, _MOST_WHOLE + 1)))
            self._is_whole = len(self.by_number) <= _MOST_WHOLE
        self._newest = newest

    def know(self, db: apsw.Connection, numbers: Collection[int]) -> dict[int, Lane]:
        """At least these by number, which jobs of committed transactions have."""
        missing = array("q", [number for number in numbers if number not in self.by_number])
        if missing:
            if len(self.by_number) + len(missing) > _MOST_KNOWN and not self._is_whole:
                self.by_number = {}
                missing = array("q", numbers)
            self._learn(read_rows(db, _SQL["these"], (apsw.carray(missing),)))
        return self.by_number

    def worth_a_look(self, db: apsw.Connection, queues: tuple[str, ...] | None, caps: Mapping[str, int]) -> Look:
        """Of these queues, the lanes with a ready job and no gate that is shut, up to a bound; few come unseen.

        Lanes without jobs cost nothing, closed ones one step in the index each. Beyond the bound the next call goes on
        where this one stopped, so that every lane has its turn.
        """
        shut = frozenset(gate for gate, room in caps.items() if room <= 0)
        if self._is_whole:
            question = (queues, shut, self._newest, self._epoch)
            if self._open[0] != question:
                self._open = (question, _open_of(self.by_number.values(), queues, shut))
            if len(self._open[1]) <= _FEW:
                return Look(self._open[1])
        return self._look_for_jobs(db, queues, shut)

    def _look_for_jobs(self, db: apsw.Connection, queues: tuple[str, ...] | None, shut: frozenset[str]) -> Look:
        found: dict[int, Lane] = {}
        after, passed, is_second_round = self._start, 0, False
        while len(found) < _MOST_LOOKED_INTO and passed < _MOST_PASSED_OVER:
            numbers = json.decode(read_value(db, _SQL["with_jobs"], (after, _MOST_LOOKED_INTO)), type=list[int])
            is_full = len(numbers) == _MOST_LOOKED_INTO
            if is_second_round:
                numbers = [number for number in numbers if number <= self._start]
                is_full = is_full and len(numbers) == _MOST_LOOKED_INTO
            committed = [number for number in numbers if number <= self._newest]
            known = self.know(db, committed)
            found |= _open_of((known[number] for number in committed if number in known), queues, shut)
            passed += len(numbers)
            if is_full:
                after = numbers[-1]
            elif is_second_round or not self._start:
                self._start = 0
                return Look(found)
            else:
                after, is_second_round = 0, True
        self._start = after
        return Look(found, is_cut=True)

    # ---------------------------------------------------------------- inside

    def _enter(self, epoch: str) -> None:
        """In another epoch nothing is known."""
        if epoch != self._epoch:
            self.by_number = {}
            self._numbers = {}
            self._epoch = epoch
            self._newest = 0
            self._is_whole = True

    def _learn(self, rows: list[Any]) -> None:
        for number, queue, task, gates in rows:
            names = json.decode(gates, type=list[str])
            self.by_number[number] = Lane(number, queue, task, frozenset((f"queue:{queue}", f"task:{task}", *names)))
            self.remember((queue, task, tuple(names)), number)


def _open_of(lanes: Iterable[Lane], queues: tuple[str, ...] | None, shut: frozenset[str]) -> dict[int, Lane]:
    return {
        lane.number: lane for lane in lanes if (queues is None or lane.queue in queues) and shut.isdisjoint(lane.gates)
    }


def drop_empty_lanes(db: apsw.Connection, after: int) -> tuple[bool, int]:
    """Drop those without jobs among the next lanes; say whether there were any, and after which one to go on.

    Called inside of a transaction whose tallies are written.
    """
    last, n = read_row(db, _SQL["sweep_to"], (after, _SWEPT_AT_ONCE))
    if not n:
        return False, 0
    db.execute(_SQL["drop_tallies"], (after, last))
    db.execute(_SQL["drop"], (after, last))
    is_dropped = db.changes() > 0
    if is_dropped:
        db.execute(_SQL["begin_epoch"], (new_token().hex(),))
    return is_dropped, last if n == _SWEPT_AT_ONCE else 0
