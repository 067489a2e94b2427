"""What a store's process knows of the lanes: jobs of one queue, task and set of gates, open or closed together."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct, json

_MOST_LOOKED_INTO: Final = 256
_MOST_PASSED_OVER: Final = 4096
_FEW: Final = 32
_MOST_WHOLE: Final = 1000
_MOST_KNOWN: Final = 5000

LaneKey = tuple[str, str, tuple[str, ...]]
"""Queue, task and gates."""
LaneRow = tuple[int, str, str, str]
"""Number, queue, task, and the gates as a JSON array."""


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


class LaneSource(Protocol):
    """Where lanes are read: a connection to the database."""

    def state(self) -> tuple[int, str]:
        """The highest number, and the epoch."""

    def newer(self, after: int, limit: int) -> Sequence[LaneRow]:
        """The lanes above a number, lowest first."""

    def these(self, numbers: Sequence[int]) -> Sequence[LaneRow]:
        """The lanes with these numbers."""

    def with_jobs(self, after: int, limit: int) -> list[int]:
        """The numbers above one of lanes that have a ready job, lowest first."""


def gates_text(gates: Iterable[str]) -> str:
    """The gates of a lane as they stand in its row."""
    return json.encode(sorted(set(gates))).decode()


class Lanes:
    """What is known here of the lanes: all while they are few, else those that were met lately.

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
        """The number of the lane for these jobs, if it is known here; one that was dropped too, until `enter`."""
        return self._numbers.get(key)

    def enter(self, epoch: str) -> None:
        """In another epoch nothing is known."""
        if epoch != self._epoch:
            self.by_number = {}
            self._numbers = {}
            self._epoch = epoch
            self._newest = 0
            self._is_whole = True

    def remember(self, key: LaneKey, number: int) -> None:
        """A lane that is committed."""
        if len(self._numbers) >= _MOST_KNOWN:
            self._numbers.clear()
        self._numbers[key] = number

    # ---------------------------------------------------------------- for those who claim

    @property
    def newest(self) -> int:
        """The number of the latest one that was heard of; of later ones nothing is known."""
        return self._newest

    def refresh(self, source: LaneSource, newest: int | None = None, epoch: str = "") -> bool:
        """Hear of what was added, and say whether there is any; not inside of a transaction that adds some itself."""
        if newest is None:
            newest, epoch = source.state()
        self.enter(epoch)
        if newest <= self._newest:
            return False
        if self._is_whole:
            self._learn(source.newer(self._newest, _MOST_WHOLE + 1))
            self._is_whole = len(self.by_number) <= _MOST_WHOLE
        self._newest = newest
        return True

    def know(self, source: LaneSource, numbers: Collection[int]) -> dict[int, Lane]:
        """At least these by number, which jobs of committed transactions have."""
        missing = [number for number in numbers if number not in self.by_number]
        if missing:
            if len(self.by_number) + len(missing) > _MOST_KNOWN and not self._is_whole:
                self.by_number = {}
                missing = list(numbers)
            self._learn(source.these(missing))
        return self.by_number

    def worth_a_look(self, source: LaneSource, queues: tuple[str, ...] | None, caps: Mapping[str, int]) -> Look:
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
        return self._look_for_jobs(source, queues, shut)

    def _look_for_jobs(self, source: LaneSource, queues: tuple[str, ...] | None, shut: frozenset[str]) -> Look:
        found: dict[int, Lane] = {}
        after, passed, is_second_round = self._start, 0, False
        while len(found) < _MOST_LOOKED_INTO and passed < _MOST_PASSED_OVER:
            numbers = source.with_jobs(after, _MOST_LOOKED_INTO)
            is_full = len(numbers) == _MOST_LOOKED_INTO
            if is_second_round:
                numbers = [number for number in numbers if number <= self._start]
                is_full = is_full and len(numbers) == _MOST_LOOKED_INTO
            committed = [number for number in numbers if number <= self._newest]
            known = self.know(source, committed)
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

    def _learn(self, rows: Sequence[LaneRow]) -> None:
        for number, queue, task, gates in rows:
            names = json.decode(gates, type=list[str])
            self.by_number[number] = Lane(number, queue, task, frozenset((f"queue:{queue}", f"task:{task}", *names)))
            self.remember((queue, task, tuple(names)), number)


def _open_of(lanes: Iterable[Lane], queues: tuple[str, ...] | None, shut: frozenset[str]) -> dict[int, Lane]:
    return {
        lane.number: lane for lane in lanes if (queues is None or lane.queue in queues) and shut.isdisjoint(lane.gates)
    }
