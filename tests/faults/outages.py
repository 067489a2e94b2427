"""Outages of the store: which workers they have cost their leases, and what that explains."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.faults.arena import Arena
from tests.faults.checker import Fault
from tests.faults.workers import poll
from tests.servers import children

HEARD_S: Final = 1.0
"""So soon after the store answers again a worker knows whether its lease is over: its heart asks every eighth of a
second then, and the rest is for a busy machine. Until it knows, it may begin what it had claimed before."""
_REPLACED_WITHIN_S: Final = 30.0

Outage = tuple[float, float]
"""From when until when the store was away."""


def replaced(log: str) -> set[int]:
    """The worker processes that have lost their leases, in the words of their supervisor."""
    return {int(pid) for pid in re.findall(r"worker process (\d+) is replaced", log)}


def wait_replaced(arena: Arena, supervisor: int) -> None:
    """Until each of its workers that has lost its lease has said what it had to say, and is replaced."""

    def is_done() -> bool:
        known = {one.pid for one in arena.stats().workers}
        their_own = {one for pid in known for one in children(pid)}
        return set(children(supervisor)) - their_own == known

    poll(is_done, _REPLACED_WITHIN_S, "others are in the place of those that have lost their leases")


def outage_faults(kind: str, log: str, outages: Sequence[Outage]) -> list[Fault]:
    """What outages explain: runs of workers that lost their leases, under way then or not to be settled any more.

    Nobody else's: who still has a lease when the store is back goes on, and settles what it has finished meanwhile.
    """
    return [Fault(kind, pid, begin, end + HEARD_S) for pid in replaced(log) for begin, end in outages]


def longest_s(outages: Sequence[Outage]) -> float:
    """How long the longest of them was."""
    return max(end - begin for begin, end in outages)
