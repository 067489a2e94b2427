"""Which messages of one partition are unfinished, and so how far its progress may be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from operator import lt


class Offsets:
    """The messages of one partition that were received and may not be passed yet.

    They are added in the order of the partition, which may have holes: compaction and transactions leave some. They
    are finished in any order, and each costs the same however many there are. What is kept are `open` offsets.
    """

    __slots__ = ("_end", "_order", "_unfinished")

    def __init__(self, position: int) -> None:
        self._end = position
        self._order: deque[int] = deque()  # from the first unfinished one on
        self._unfinished: set[int] = set()

    @property
    def position(self) -> int:
        """Everything before it is finished: the first unfinished offset, or the one after the last that was added."""
        return self._order[0] if self._order else self._end

    @property
    def first(self) -> int | None:
        """The first unfinished offset; None when there is none."""
        return self._order[0] if self._order else None

    @property
    def end(self) -> int:
        """What is added next must not come before it."""
        return self._end

    @property
    def open(self) -> int:
        """How many were added and not passed by the position: those unfinished, and those finished behind one."""
        return len(self._order)

    @property
    def unfinished(self) -> int:
        """How many were added and not finished."""
        return len(self._unfinished)

    def add(self, offset: int) -> None:
        """One more message; ValueError if it does not come after all that were added, and after the position."""
        if offset < self._end:
            raise ValueError(f"offset {offset} was added after {self._end - 1}: the position would pass it")
        self._order.append(offset)
        self._unfinished.add(offset)
        self._end = offset + 1

    def add_many(self, offsets: Sequence[int]) -> None:
        """The same for several, in rising order; all of them or, with ValueError, none."""
        if not offsets:
            return
        if offsets[0] < self._end or not all(map(lt, offsets, islice(offsets, 1, None))):
            raise ValueError(f"offsets from {offsets[0]} on do not rise, or do not come after {self._end - 1}")
        self._order.extend(offsets)
        self._unfinished.update(offsets)
        self._end = offsets[-1] + 1

    def finish(self, offset: int) -> None:
        """This message needs nothing more; one that is not open, or is finished already, is passed over."""
        if offset in self._unfinished:
            self._unfinished.remove(offset)
            self._advance()

    def finish_many(self, offsets: Sequence[int]) -> None:
        """The same for several, in any order."""
        self._unfinished.difference_update(offsets)
        self._advance()

    def last_finished(self, before: float) -> int | None:
        """The last one before this that is finished behind an unfinished one."""
        return next((one for one in reversed(self._order) if one < before and one not in self._unfinished), None)

    def _advance(self) -> None:
        """Pass what is finished at the head."""
        order, unfinished = self._order, self._unfinished
        if not unfinished:
            order.clear()
            return
        while order[0] not in unfinished:
            order.popleft()
