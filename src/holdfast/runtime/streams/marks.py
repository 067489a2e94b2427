"""Marks of who has which partition, by which the next holder knows that the last one died, and of which messages.

    assigned ─▶ mark {worker, position} ─▶ messages run ─▶ given back ─▶ mark removed
                       │
                       └─ found by the next holder: the last one died
                              once ─▶ careful: only messages near the position are begun, until those are finished that
                                      the dead one may have begun
                              again, before that ─▶ those near the position are suspects: each runs in a process of its
                                      own, where a death is its own

One death proves nothing: a worker may be killed for any reason, and then nothing but the distance between the oldest
message in flight and the newest is less for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct, json

from holdfast.errors import StoreError
from holdfast.ports import Exchange, Exchanged, Store, Value, ValueChange
from holdfast.types import Place

PREFIX: Final = "stream:"
"""The keys of marks in the store begin so."""
SUSPICIOUS: Final = 2
"""From so many deaths in a row on there are suspects."""
_TRIES: Final = 10

Ends = Callable[[Collection[str]], Awaitable[Mapping[Place, int]]]
"""Where the partitions of topics end now; without those of which nobody can say."""


class Mark(Struct, frozen=True):
    """Who has a partition, and what became of those before."""

    worker: str
    """Empty where it was given back in good order."""
    position: int
    """Where its holder began."""
    deaths: int = 0
    """How many holders have died in a row before they had got past what the first of them may have begun."""
    reach: int = 0
    """Messages before this offset are suspects; 0 is none."""
    until: int = 0
    """Up to this offset the partition is handled with care; 0 where nobody has died."""


class Span(Struct, frozen=True):
    """How far from a partition's position messages may have been begun that are not finished."""

    careful: int
    """With care."""
    extent: int
    """Otherwise."""


def key_of(stream: str, place: Place) -> str:
    """The key of a partition's mark."""
    return f"{PREFIX}{stream}/{place[0]}/{place[1]}"


def taken(before: Mark | None, worker: str, position: int, span: Span) -> Mark:
    """The mark of a partition that this worker has now, from this position on."""
    if before is None:
        return Mark(worker, position)
    if before.worker == worker and before.position == position:
        return before  # it is written already, and the answer was lost
    has_died = before.worker not in {"", worker}
    deaths = (before.deaths if before.until > position else 0) + has_died
    if not deaths:
        return Mark(worker, position)
    # At most so far: offsets begin anew in a topic that was made anew.
    until = min(before.until, position + span.extent) if before.until > position else position + span.extent
    reach = min(before.reach, position + span.careful) if before.reach > position else 0
    if has_died and deaths >= SUSPICIOUS:
        reach = position + span.careful
    return Mark(worker, position, deaths, reach, until)


def given_back(before: Mark | None, worker: str, position: int) -> Mark | None:
    """What is left of this worker's mark: where it was careful and has not got through, the next holder is too."""
    if before is None or before.worker != worker:
        return before
    if before.until <= position:
        return None
    return Mark("", position, before.deaths, before.reach if before.reach > position else 0, before.until)


class _Wish(Struct, frozen=True):
    """What is to be written of one partition."""

    position: int
    is_ours: bool


class Marks:
    """The marks of one stream, as one worker writes them; all that has changed goes in one exchange.

    A store that is away keeps nobody waiting: StoreError, and `write` again later.
    """

    def __init__(self, store: Store, stream: str, worker: str, *, span: Span, ends: Ends) -> None:
        self._store = store
        self._stream = stream
        self._worker = worker
        self._span = span
        self._ends = ends
        self._lock = asyncio.Lock()
        self._wishes: dict[Place, _Wish] = {}
        self._held: dict[Place, Mark] = {}
        self._known: dict[str, Value] | None = None
        """What the store has, as of its last answer; None where an answer was lost, or never asked for."""

    @property
    def is_behind(self) -> bool:
        """Whether something is not written yet."""
        return bool(self._wishes)

    def take(self, positions: Mapping[Place, int]) -> None:
        """These are ours from now on."""
        self._wishes.update({place: _Wish(position, True) for place, position in positions.items()})

    def give_back(self, positions: Mapping[Place, int]) -> None:
        """These are not ours any more, and we are alive."""
        self._wishes.update({place: _Wish(position, False) for place, position in positions.items()})

    def lose(self, places: Collection[Place]) -> None:
        """The same, where nobody knows how far they are."""
        ours = {place: self._held[place].position for place in places if place in self._held}
        ours |= {place: wish.position for place, wish in self._wishes.items() if place in places and wish.is_ours}
        self.give_back(ours)

    def of(self, place: Place) -> Mark | None:
        """The mark of a partition of ours, where it is written."""
        return self._held.get(place)

    async def write(self) -> None:
        """Write what has changed. Each mark is compared and set, as somebody else may have the partition by now."""
        async with self._lock:
            for _ in range(_TRIES):
                if not self._wishes:
                    return
                if self._known is None:
                    await self._ask(())
                known = self._known or {}
                wishes = dict(self._wishes)
                wanted = await self._wanted(wishes, known)
                refused = await self._change(wanted, known)
                for place in wishes.keys() - refused:
                    self._written(place, wishes[place], wanted[place])
        raise StoreError(f"the marks of stream {self._stream!r} are changed by others all the time")

    async def _wanted(self, wishes: Mapping[Place, _Wish], known: Mapping[str, Value]) -> dict[Place, Mark | None]:
        marks: dict[Place, Mark | None] = {}
        new: list[Place] = []
        for place, wish in wishes.items():
            before = _mark_in(known.get(key_of(self._stream, place)))
            if wish.is_ours:
                marks[place] = mark = taken(before, self._worker, wish.position, self._span)
                if mark.until and mark != before:
                    new.append(place)
            else:
                marks[place] = given_back(before, self._worker, wish.position)
        if new:  # what has come since cannot have killed anybody
            ends = await self._ends({place[0] for place in new})
            for place in new:
                marks[place] = _within(marks[place], ends.get(place))
        return marks

    async def _change(self, wanted: Mapping[Place, Mark | None], known: Mapping[str, Value]) -> set[Place]:
        """Those that others were quicker with."""
        changes: dict[Place, ValueChange] = {}
        for place, mark in wanted.items():
            key = key_of(self._stream, place)
            value = known.get(key)
            if mark != _mark_in(value):
                data = None if mark is None else json.encode(mark)
                changes[place] = ValueChange(key, 0 if value is None else value.version, data)
        if not changes:
            return set()
        reply = await self._ask(list(changes.values()))
        return {place for place, is_done in zip(changes, reply.changed, strict=True) if not is_done}

    async def _ask(self, changes: Sequence[ValueChange]) -> Exchanged:
        self._known = None
        reply = await self._store.exchange(Exchange(changes=changes))
        mine = f"{PREFIX}{self._stream}/"
        self._known = {one.key: one for one in reply.values if one.key.startswith(mine) and one.data is not None}
        return reply

    def _written(self, place: Place, wish: _Wish, mark: Mark | None) -> None:
        if wish.is_ours and mark is not None:
            self._held[place] = mark
        else:
            self._held.pop(place, None)
        if self._wishes.get(place) is wish:  # or it was wished otherwise meanwhile
            del self._wishes[place]


def _mark_in(value: Value | None) -> Mark | None:
    if value is None or value.data is None:
        return None
    try:
        return json.decode(value.data, type=Mark)
    except msgspec.MsgspecError:  # a newer Holdfast may have written it
        return None


def _within(mark: Mark | None, end: int | None) -> Mark | None:
    if mark is None or end is None:
        return mark
    if end <= mark.position:
        return Mark(mark.worker, mark.position)
    return Mark(mark.worker, mark.position, mark.deaths, min(mark.reach, end), min(mark.until, end))
