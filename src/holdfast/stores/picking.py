"""Picks jobs from the heads of several lanes: by priority, due time and age, within the caps."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from holdfast.ports import Claim
from holdfast.stores.lanes import Lane

Head = tuple[int, float, int, int]
"""-priority, due_at, seq, lane: smaller ones go first."""


def most_of(claim: Claim) -> int:
    """How many a claim may take of one lane, whatever the caps say."""
    return claim.limit if claim.per_lane is None else max(0, min(claim.limit, claim.per_lane))


def pick(
    heads: list[Head], lanes: dict[int, Lane], limit: int, caps: Mapping[str, int], most: Mapping[int, int], size: int
) -> array[int] | None:
    """Take from the sorted heads in order, within the caps, and `most` of each lane.

    None when a lane of which only `size` heads were read has run out, so that what comes next is not known.
    """
    room = dict(caps)
    gates = {number: [gate for gate in lane.gates if gate in room] for number, lane in lanes.items()}
    taken: dict[int, int] = {}
    seqs = array("q")
    for _, _, seq, lane in heads:
        n = taken.get(lane, 0)
        if n < most[lane] and all(room[gate] > 0 for gate in gates[lane]):
            for gate in gates[lane]:
                room[gate] -= 1
            seqs.append(seq)
            if len(seqs) == limit:
                return seqs
            taken[lane] = n + 1
            if n + 1 == size < most[lane] and all(room[gate] > 0 for gate in gates[lane]):
                return None
    return seqs
