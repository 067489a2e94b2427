"""Whether a stream makes progress: what holds it up, in words that name the message and its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.runtime.streams.views import PartitionView, StreamView

STUCK_S: Final = 60.0
"""A partition with something unfinished that has not moved for so long is stuck, unless somebody says otherwise."""
_NAMED: Final = 3
_LONGEST_KEY: Final = 60


def troubles(view: StreamView, within_s: float, waiting: int | str = 0) -> Iterator[str]:
    """A line for each thing that keeps a stream from moving; the partition that is stuck for longest comes first.

    within_s: for how long the first unfinished message of a partition may stay the first.
    waiting: where no worker reports the stream: how many messages wait, or why nobody could say.
    """
    if not view.workers:
        if waiting:
            n = "1 message waits" if waiting == 1 else f"{waiting} messages wait"
            why = waiting if isinstance(waiting, str) else n
            yield f"stream {view.name}: no worker reads it, and {why}"
        return
    if view.away:
        yield f"stream {view.name}: its server is away: {view.away}"
    stuck = [one for one in view.partitions if one.stuck_id and one.stuck_s >= within_s]
    for one in sorted(stuck, key=lambda one: -one.stuck_s):
        yield f"stream {view.name}: {stuck_in_words(one)}"


def stuck_in_words(one: PartitionView) -> str:
    """Which message a partition waits for, and since when."""
    key = one.stuck_key if len(one.stuck_key) <= _LONGEST_KEY else one.stuck_key[: _LONGEST_KEY - 1] + "…"
    where = f"partition {one.partition} of {one.topic}"
    return f"{where} has waited {one.stuck_s:.0f} s for message {one.stuck_id}, key {key!r}"


def in_one_line(lines: Sequence[str]) -> str:
    """The first of these, and how many more there are."""
    more = len(lines) - _NAMED
    return "; ".join(lines[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
