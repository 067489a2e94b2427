"""Picks jobs from the heads of several lanes: by priority, due time and age, within the caps."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from holdfast.stores.lanes import Lane

Head = tuple[int, float, int, int]
"""-priority, due_at, seq, lane: smaller ones go first."""


def pick(
    heads: list[Head], lanes: dict[int, Lane], limit: int, caps: Mapping[str, int], size: int
) -> array[int] | None:
    """Take from the sorted heads in order, within the caps.

    None when a lane of which only `size` heads were read has run out, so that what comes next is not known.
    """
    room = dict(caps)
    gates = {number: [gate for gate in lane.gates if gate in room] for number, lane in lanes.items()}
    taken: dict[int, int] = {}
    seqs = array("q")
    for _, _, seq, lane in heads:
        if all(room[gate] > 0 for gate in gates[lane]):
            for gate in gates[lane]:
                room[gate] -= 1
            seqs.append(seq)
            if len(seqs) == limit:
                return seqs
            taken[lane] = taken.get(lane, 0) + 1
            if taken[lane] == size and size < limit and all(room[gate] > 0 for gate in gates[lane]):
                return None
    return seqs
