"""The lanes: jobs of one queue, task and set of gates, which are open or closed together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import apsw
from msgspec import Struct, json

from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value

_SQL = load("lanes.sql")
_MOST_LOOKED_INTO: Final = 256
_MOST_PASSED_OVER: Final = 4096
_FEW: Final = 32

LaneKey = tuple[str, str, tuple[str, ...]]


class Lane(Struct, frozen=True):
    """One lane."""

    number: int
    queue: str
    task: str
    gates: frozenset[str]
    """With those of queue and task."""


class Lanes:
    """The lanes of a database, as far as this process has seen them: rows are only ever added."""

    def __init__(self) -> None:
        self.by_number: dict[int, Lane] = {}
        self._numbers: dict[LaneKey, int] = {}
        self._newest = 0
        self._start = 0
        self._open: tuple[tuple[object, ...], dict[int, Lane]] = ((), {})

    def get(self, key: LaneKey) -> int | None:
        """The number of the lane for these jobs, if it is known here."""
        return self._numbers.get(key)

    @staticmethod
    def add(db: apsw.Connection, key: LaneKey) -> int:
        """The number of the lane for these jobs; makes it where there is none. `refresh` is to follow the commit."""
        queue, task, gates = key
        names = (queue, task, json.encode(sorted(set(gates))).decode())
        db.execute(_SQL["add"], names)
        number: int = read_value(db, _SQL["find"], names)
        return number

    def alias(self, key: LaneKey, number: int) -> None:
        """Remember a lane under its gates in another order."""
        if number in self.by_number:
            self._numbers[key] = number

    def refresh(self, db: apsw.Connection, newest: int | None = None) -> None:
        """Read what was added; not inside of a transaction that adds some itself, as it may be rolled back."""
        if newest is not None and newest <= self._newest:
            return
        for number, queue, task, gates in read_rows(db, _SQL["newer"], (self._newest,)):
            names = json.decode(gates, type=list[str])
            self.by_number[number] = Lane(number, queue, task, frozenset((f"queue:{queue}", f"task:{task}", *names)))
            self._numbers[queue, task, tuple(names)] = number
            self._newest = number

    def open_for(self, queues: tuple[str, ...] | None, caps: Mapping[str, int]) -> dict[int, Lane]:
        """The lanes of these queues with no gate that is shut."""
        shut = frozenset(gate for gate, room in caps.items() if room <= 0)
        question = (queues, shut, self._newest)
        if self._open[0] != question:
            lanes = {
                number: lane
                for number, lane in self.by_number.items()
                if (queues is None or lane.queue in queues) and shut.isdisjoint(lane.gates)
            }
            self._open = (question, lanes)
        return self._open[1]

    def worth_a_look(self, db: apsw.Connection, lanes: dict[int, Lane]) -> list[int]:
        """Of these, the ones with a ready job, up to a bound; with few lanes all of them, unseen.

        Lanes without jobs cost nothing, closed ones one step in the index each. Beyond the bound the next call goes on
        where this one stopped, so that every lane has its turn.
        """
        if len(lanes) <= _FEW:
            return list(lanes)
        found: list[int] = []
        after, passed, is_second_round = self._start, 0, False
        while len(found) < _MOST_LOOKED_INTO and passed < _MOST_PASSED_OVER:
            text = read_value(db, _SQL["with_jobs"], (after, _MOST_LOOKED_INTO))
            numbers = json.decode(text, type=list[int])
            if is_second_round:
                numbers = [number for number in numbers if number <= self._start]
            found += [number for number in numbers if number in lanes]
            passed += len(numbers)
            if len(numbers) == _MOST_LOOKED_INTO:
                after = numbers[-1]
            elif is_second_round or not self._start:
                after = 0
                break
            else:
                after, is_second_round = 0, True
        self._start = after
        return found
