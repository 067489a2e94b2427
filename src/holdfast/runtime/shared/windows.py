"""The latest calls of a breaker as chunks that travel in its value: at most about a hundred of them.

They answer what `policy.window` answers: the same for time windows and for the last 100 calls or fewer. Over a larger
number of calls they forget in steps of a hundredth, and never count more than the window.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from msgspec import Struct

from holdfast.policy.window import Totals

_CHUNKS: Final = 100
_SLICES: Final = 10  # as policy.window has them

Size = int | timedelta


class Chunk(Struct, frozen=True, array_like=True):
    """Calls that are forgotten together."""

    began_at: float
    calls: int
    failures: int
    slow: int


Chunks = tuple[Chunk, ...]


def added(size: Size, chunks: Chunks, at: float, *, failed: bool, slow: bool) -> Chunks:
    """The window with one call more, which ended at this instant."""
    chunks = fresh(size, chunks, at)
    last = chunks[-1] if chunks else None
    if last is None or _is_full(size, last, at):
        chunks = (*chunks, Chunk(at, 1, int(failed), int(slow)))
    else:
        chunks = (*chunks[:-1], Chunk(last.began_at, last.calls + 1, last.failures + failed, last.slow + slow))
    return fresh(size, chunks, at)


def totals(size: Size, chunks: Chunks, now: float) -> Totals:
    """The sums over what is still inside the window at this instant."""
    inside = fresh(size, chunks, now)
    return Totals(
        sum(chunk.calls for chunk in inside),
        sum(chunk.failures for chunk in inside),
        sum(chunk.slow for chunk in inside),
    )


def fresh(size: Size, chunks: Chunks, now: float) -> Chunks:
    """Those that are still inside the window at this instant."""
    gone = 0
    if isinstance(size, timedelta):
        length_s = size.total_seconds()
        while gone < len(chunks) and now - chunks[gone].began_at >= length_s:
            gone += 1
    else:
        over = sum(chunk.calls for chunk in chunks) - size
        while over > 0:
            over -= chunks[gone].calls
            gone += 1
    return chunks[gone:]


def not_ahead(chunks: Chunks, now: float) -> Chunks:
    """The same, with none of them ahead of this instant."""
    if all(chunk.began_at <= now for chunk in chunks):
        return chunks
    return tuple(Chunk(min(chunk.began_at, now), chunk.calls, chunk.failures, chunk.slow) for chunk in chunks)


def _is_full(size: Size, chunk: Chunk, at: float) -> bool:
    if isinstance(size, timedelta):
        return at - chunk.began_at >= size.total_seconds() / _SLICES
    return chunk.calls >= -(-size // _CHUNKS)
