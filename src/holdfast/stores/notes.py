"""What jobs have remembered, as rows of a table: one for the checkpoint, one for each step."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.types import Notes


def notes_of(rows: Iterable[tuple[int, str, bytes]]) -> dict[int, Notes]:
    """By the job's place; a row is its place, `c` for the checkpoint or `s` and the step's name, and the data."""
    checkpoints: dict[int, bytes] = {}
    steps: dict[int, dict[str, bytes]] = {}
    for seq, step, data in rows:
        if step == "c":
            checkpoints[seq] = data
        else:
            steps.setdefault(seq, {})[step[1:]] = data
    return {seq: Notes(checkpoints.get(seq), steps.get(seq, {})) for seq in checkpoints.keys() | steps.keys()}
