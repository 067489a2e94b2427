"""What people do to jobs: cancel, replay, remove."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import apsw

from holdfast.policy.lifecycle import is_allowed
from holdfast.ports import Changed, Operation
from holdfast.stores.sqlite.batch import Batch
from holdfast.stores.sqlite.letters import forget_letters
from holdfast.stores.sqlite.queries import load
from holdfast.stores.sqlite.rows import read_rows, read_value, text_list
from holdfast.types import Change, JobState

_SQL = load("people.sql")
_REPLAY: Final = Change.REPLAY
_REMOVE: Final = Change.REMOVE
_DELETES: Final = ("delete_jobs", "delete_attempts", "delete_notes", "delete_replays")


def change_jobs(batch: Batch, operation: Operation) -> list[Changed]:
    """Each id in turn, guarded by its state."""
    if operation.change is _REMOVE:
        return _remove(batch, operation.ids)
    batch.flush()  # who holds what must be in the table
    letters: list[int] = []
    answers = [_change_one(batch, id, operation, letters) for id in operation.ids]  # noqa: A001
    forget_letters(batch.db, letters)
    return answers


def _change_one(batch: Batch, id: str, operation: Operation, letters: list[int]) -> Changed:  # noqa: A002
    """Change this one; where it was a dead letter and is none any more, add it to the list of those."""
    found = read_rows(batch.db, _SQL["look"], (id,))
    if not found:
        return Changed(id, is_done=False, state=None)
    seq, lane, state, token = found[0]
    change = operation.change
    if not is_allowed(JobState(state), change):
        return Changed(id, is_done=False, state=JobState(state))
    if change is _REPLAY:
        changed = _replay(batch, id, seq, lane, operation)
        if changed.is_done:
            letters.append(seq)
        return changed
    return _cancel(batch, id, (seq, lane, state, token), operation)


def _remove(batch: Batch, ids: Sequence[str]) -> list[Changed]:
    """Delete those that have ended, all together; one that is named twice is gone the second time."""
    found = {row[0]: row for row in read_rows(batch.db, _SQL["look_at_all"], (text_list(ids),))}
    rows: list[tuple[int, int, str]] = []
    answers: list[Changed] = []
    for id in ids:  # noqa: A001
        if (row := found.get(id)) is None:
            answers.append(Changed(id, is_done=False, state=None))
        elif not is_allowed(JobState(row[3]), _REMOVE):
            answers.append(Changed(id, is_done=False, state=JobState(row[3])))
        else:
            rows.append((row[1], row[2], row[3]))
            answers.append(Changed(id, is_done=True, state=None))
            del found[id]
    delete_jobs(batch, rows)
    return answers


def _cancel(batch: Batch, id: str, row: tuple[int, int, str, bytes], operation: Operation) -> Changed:  # noqa: A002
    seq, lane, state, token = row
    values = {
        "seq": seq,
        "now": batch.tick(),
        "reason": operation.reason,
        "keep_s": operation.keep_s,
        "window": batch.books.key_window_s,
    }
    batch.db.execute(_SQL["cancel"], values)
    if state == "running":
        batch.db.execute(_SQL["tell_holder"], {"id": id, "token": token})
        batch.let_go(token)
        batch.has_news = True
    batch.move(lane, state, "cancelled")
    return Changed(id, is_done=True, state=JobState.CANCELLED)


def _replay(batch: Batch, id: str, seq: int, lane: int, operation: Operation) -> Changed:  # noqa: A002
    name = operation.replay
    if name:
        if read_value(batch.db, _SQL["is_replayed"], (seq, name)):
            return Changed(id, is_done=False, state=JobState.DEAD_LETTER)
        batch.db.execute(_SQL["mark_replayed"], (seq, name))
    values = {
        "seq": seq,
        "now": batch.tick(),
        "delay_s": max(0.0, operation.delay_s),
        "reason": operation.reason,
        "payload": operation.payloads.get(id, operation.payload),
    }
    batch.db.execute(_SQL["replay"], values)
    batch.move(lane, "dead_letter", "queued")
    batch.has_news = True
    return Changed(id, is_done=True, state=JobState.QUEUED)


def delete_jobs(batch: Batch, rows: list[tuple[int, int, str]]) -> None:
    """Delete these, by seq, lane and state, with all that belongs to them."""
    if rows:
        _delete(batch, rows)
        forget_letters(batch.db, [seq for seq, _, state in rows if state == "dead_letter"])


def _delete(batch: Batch, rows: list[tuple[int, int, str]]) -> None:
    seqs = {"seqs": apsw.carray(array("q", [seq for seq, _, _ in rows]))}
    for query in _DELETES:
        batch.db.execute(_SQL[query], seqs)
    for _, lane, state in rows:
        batch.add(lane, state, -1)
