"""Counts the entries after an id, where the server does not know how many there are: in pages, a part in each look."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.entries import offset_of

_MOST: Final = 10_000
"""Entries of one look."""
_MOST_BYTES: Final = 8 << 20
_PAGE: Final = 1000
_PAGE_BYTES: Final = 256 << 10
"""There is no way to count entries but to have them sent: so many bytes at a time hold nobody up."""
_GROWTH: Final = 4


class Counting:
    """What was counted of each stream stays known, so that the next look goes on from there. Used by one thread."""

    def __init__(self) -> None:
        self._streams: dict[bytes, _Pages] = {}

    def count(self, connection: Connection, key: bytes, after: bytes, last: bytes) -> tuple[int, bool]:
        """How many entries come after an id, up to the last one; and whether that is all of them, or those so far."""
        pages = self._streams.setdefault(key, _Pages())
        pages.begin(connection, key, after)
        is_all = pages.count_on(connection, key, last)
        return pages.total, is_all


class _Pages:
    """Entries of one stream that were counted, in pieces: the id before each, the last one in it, and how many."""

    def __init__(self) -> None:
        self._done: deque[tuple[bytes, bytes, int]] = deque()
        self._next = b"0-0"
        self.total = 0

    def begin(self, connection: Connection, key: bytes, after: bytes) -> None:
        """Forget what comes no more after this id; a piece of which a part does is counted again."""
        at = offset_of(after)
        while self._done and offset_of(self._done[0][1]) <= at:
            self._done.popleft()
        if self._done:
            before, last, n = self._done[0]
            if offset_of(before) > at:  # the group was set back
                self._done.clear()
            elif offset_of(before) < at:
                (found,) = connection.ask((b"XRANGE", key, b"(" + after, last, b"COUNT", n))
                self._done[0] = (after, last, len(found))
        self.total = sum(n for _, _, n in self._done)
        self._next = self._done[-1][1] if self._done else after

    def count_on(self, connection: Connection, key: bytes, last: bytes) -> bool:
        """Count what one look may; whether that was all."""
        entries = size = 0
        page = 1
        while offset_of(self._next) < offset_of(last):
            if entries >= _MOST or size >= _MOST_BYTES:
                return False
            (found,) = connection.ask((b"XRANGE", key, b"(" + self._next, last, b"COUNT", page))
            if not found:
                return True
            here = _size(found)
            self._done.append((self._next, found[-1][0], len(found)))
            self._next = found[-1][0]
            self.total += len(found)
            entries += len(found)
            size += here
            fitting = _PAGE_BYTES * len(found) // max(1, here)
            page = max(1, min(_PAGE, page * _GROWTH, fitting))
        return True


def _size(entries: Sequence[Any]) -> int:
    return sum(len(word) for _, fields in entries for word in fields)
