"""The elements of a ring between those who produce them and those who consume them.

A slot holds a **piece**: the list that one call of `produce` has brought, or the elements of many small calls together.
Each slot knows how many elements there were up to its end, so a batch of any size is found without a look at single
elements, and a list that fits one is handed out as it came, without a copy. Counts of elements run from the ring's
beginning; what the source calls an element is its offset, which is its count plus a shift.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import HoldfastError

SMALL: Final = 256
"""Fewer elements than this are gathered in one piece with others: a slot for each costs more than copying them."""
GATHERED: Final = 1000
"""A gathered piece has at most so many, which is a batch by default: all consumers are then handed the same list."""
AHEAD: Final = 16
"""A consumer takes up to so many batches at a time, where each is a piece."""
_NONE: Final[list[Any]] = []
_FAR: Final = float("inf")


class Slots:
    """All calls are made under the ring's lock. An interrupt between any two lines leaves it as it was, or done."""

    __slots__ = ("size", "freed", "_mask", "_pieces", "_ends", "head", "gaps")

    def __init__(self, size: int) -> None:
        self.size = size
        self.freed = 0
        """Pieces that every consumer is through with."""
        self._mask = size - 1
        self._pieces: list[list[Any]] = [_NONE] * size
        self._ends = [0] * size
        self.head: tuple[int, int, list[Any]] = (0, 0, [])
        """Closed pieces, the elements in them, and the piece that is still gathered: they change together."""
        self.gaps: list[tuple[int, int]] = []
        """The counts from which on another shift holds, and the shifts."""

    @property
    def produced(self) -> int:
        """Elements so far."""
        _, end, gathered = self.head
        return end + len(gathered)

    def add(self, elements: Sequence[Any], offset: int | None) -> None:
        """More elements, of which there is at least one; the first has this offset in its source."""
        closed, end, gathered = self.head
        if offset is not None:
            self._shift(end + len(gathered), offset)
        if len(elements) < SMALL:
            if len(gathered) + len(elements) > GATHERED:
                self._close(closed, end, gathered)
                _, _, gathered = self.head
            gathered.extend(elements)
            return
        if gathered:
            self._close(closed, end, gathered)
            closed, end, _ = self.head
        self._close(closed, end, elements if type(elements) is list else list(elements))

    def push(self, piece: list[Any], n: int) -> None:
        """A piece of its own with so many elements, while none is gathered."""
        closed, end, gathered = self.head
        place = closed & self._mask
        end += n
        self._pieces[place] = piece
        self._ends[place] = end
        self.head = (closed + 1, end, gathered)

    def _close(self, closed: int, end: int, piece: list[Any]) -> None:
        place = closed & self._mask
        end += len(piece)
        self._pieces[place] = piece
        self._ends[place] = end
        self.head = (closed + 1, end, [])

    def take(self, piece: int, begin: int, limit: int) -> tuple[list[Any], int]:
        """The elements from this count on, which is in this piece, up to the limit; and the piece after them.

        There is at least one. They may be fewer than there are.
        """
        closed, end, gathered = self.head
        if piece == closed:
            self._close(closed, end, gathered)
            closed += 1
        low = piece & self._mask
        high = min(low + closed - piece, self.size)
        pieces, ends = self._pieces, self._ends
        past = bisect_right(ends, limit, low, high)
        first = pieces[low]
        # By the end of the piece before it, whose place is another's only when all are in use: by the length of a list
        # that was changed, any change would look right.
        skipped = begin - (ends[low - 1] if closed - piece < self.size else ends[low] - len(first))
        if past == low:  # the limit is inside of it
            elements, end = first[skipped : skipped + limit - begin], limit
        else:
            end = ends[past - 1]
            if past > low + 1:
                elements = first[skipped:]
                for place in range(low + 1, past):
                    elements += pieces[place]
            else:
                elements = first[skipped:] if skipped else first
        if len(elements) != end - begin:
            raise HoldfastError(
                "a list was changed after it was produced, by its producer or by a consumer: it is the ring's then, so "
                "make a new one"
            )
        return elements, piece + past - low

    def pieces_from(self, piece: int, batch_size: int, reach: int) -> list[list[Any]]:
        """Some of the pieces from this one on that end within reach, where each is a batch of its own; last first.

        So they are not longer than a batch, and too long to be in one with another.
        """
        closed, _, _ = self.head
        low = piece & self._mask
        past = bisect_right(self._ends, reach, low, min(low + min(closed - piece, AHEAD), self.size))
        found = self._pieces[low:past]
        half, end = batch_size >> 1, self._ends[low - 1]
        for place, n in enumerate(map(len, found)):
            end += n
            # One that was changed since is left to `take`, which says so.
            if n <= half or n > batch_size or end != self._ends[low + place]:
                del found[place:]
                break
        found.reverse()
        return found

    def piece_at(self, piece: int, count: int) -> int:
        """The piece that has the element of this count, which is not before this piece: for whoever skips some."""
        closed, end, gathered = self.head
        if gathered and count == end + len(gathered):
            self._close(closed, end, gathered)  # or more would come into a piece that it is through with
            closed += 1
        while piece < closed and self._ends[piece & self._mask] <= count:
            piece += 1
        return piece

    def free(self, piece: int, count: int) -> object:
        """Let go of everything before this piece, and return it; every consumer is past this count."""
        if len(self.gaps) > 1:
            del self.gaps[: max(self._gap_after(count) - 1, 0)]
        n = piece - self.freed
        if not n:
            return None
        pieces, low, self.freed = self._pieces, self.freed & self._mask, piece
        if n == 1:
            garbage: object = pieces[low]
            pieces[low] = _NONE
            return garbage
        high = low + n
        past = max(high - self.size, 0)
        garbage = (pieces[low:high], pieces[:past])
        pieces[low : high - past] = [_NONE] * (n - past)
        pieces[:past] = [_NONE] * past
        return garbage

    # ---- offsets

    @property
    def next_offset(self) -> int | None:
        """What the next element's offset is at least; None where no offset was ever given."""
        return self.produced + self.gaps[-1][1] if self.gaps else None

    def _shift(self, count: int, offset: int) -> None:
        shift = offset - count
        if not self.gaps or self.gaps[-1][1] != shift:
            self.gaps.append((count, shift))

    def shift_at(self, count: int) -> tuple[int, int | None]:
        """What is added to a count to get its offset, and the count from which that holds no more, if there is one."""
        after = self._gap_after(count)
        return self.gaps[after - 1][1], self.gaps[after][0] if after < len(self.gaps) else None

    def _gap_after(self, count: int) -> int:
        return bisect_right(self.gaps, (count, _FAR))
