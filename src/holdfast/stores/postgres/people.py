"""What people do to jobs: cancel, replay, remove."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from holdfast.policy.lifecycle import is_allowed
from holdfast.ports import Changed, Operation
from holdfast.stores.postgres.arrays import blobs, escaped, floats, ints, plain, texts
from holdfast.stores.postgres.db import Db
from holdfast.stores.postgres.enqueue import Setting
from holdfast.stores.postgres.queries import load
from holdfast.types import Change, JobState

_SQL = load("people.sql")
_NOTIFY: Final = load("values.sql")["notify"]
_REPLAY: Final = Change.REPLAY
_CANCEL: Final = Change.CANCEL
_AFTER: Final = {_CANCEL: JobState.CANCELLED, _REPLAY: JobState.QUEUED, Change.REMOVE: None}
_FORGET: Final = load("letters.sql")["forget"]
_DELETES: Final = ("delete_jobs", "delete_attempts", "delete_notes", "delete_replays")


class _Row(Struct):
    """A job, locked."""

    id: str
    seq: int
    lane: int
    priority: int
    due_at: float
    state: str
    token: bytes | None


class _Sent(Struct):
    """A transaction that was about to be committed, and what is answered if it was."""

    number: str
    rows: list[_Row]
    """Those that it has changed, as they were before."""
    answers: list[Changed]


class Changing:
    """An operation. Where the reply to its commit was lost, a second run answers as the first one would have."""

    def __init__(self, operation: Operation, setting: Setting) -> None:
        self._operation = operation
        self._setting = setting
        self._sent: _Sent | None = None

    def run(self, db: Db) -> list[Changed]:
        """Each id in turn, guarded by its state; all in one transaction."""
        operation = self._operation
        if not operation.ids:
            return []
        with db.transaction():
            looked = db.rows(_SQL["look"], ids=texts(operation.ids))
            found = {row.id: row for row in (_Row(plain(id), *rest) for _, id, *rest in looked)}  # noqa: A001
            if self._sent is not None and _is_committed(db, self._sent, found):
                return self._sent.answers
            allowed = [row for row in found.values() if is_allowed(JobState(row.state), operation.change)]
            if operation.change is _REPLAY and operation.replay and allowed:
                gone = db.rows(_SQL["replayed"], seqs=_seqs(allowed), replay=escaped(operation.replay))
                replayed = {seq for (seq,) in gone}
                allowed = [row for row in allowed if row.seq not in replayed]
            answers = _answers(operation, found, {row.id for row in allowed})
            if allowed:
                _change(db, allowed, operation, self._setting)
                self._sent = _Sent(looked[0][0], allowed, answers)
        return answers


def _is_committed(db: Db, sent: _Sent, found: dict[str, _Row]) -> bool:
    """Whether it took effect. It had its rows locked, as they are again now, so it is over.

    A server that has lost it, in a crash or a failover, may have given its number to another: then they are as before.
    """
    if any(found.get(row.id) == row for row in sent.rows):
        return False
    (outcome,) = db.row(_SQL["outcome"], number=sent.number)
    return bool(outcome == "committed")


def _answers(operation: Operation, found: dict[str, _Row], allowed: set[str]) -> list[Changed]:
    """In the order of the ids; one that is named twice is changed once."""
    answers = []
    after = _AFTER[operation.change]
    changed: set[str] = set()
    for id in operation.ids:  # noqa: A001
        is_done = id in allowed and id not in changed
        if is_done or id in changed:
            answers.append(Changed(id, is_done=is_done, state=after))
            changed.add(id)
        else:
            answers.append(Changed(id, is_done=False, state=JobState(found[id].state) if id in found else None))
    return answers


def _change(db: Db, rows: list[_Row], operation: Operation, setting: Setting) -> None:
    with db.together():
        if operation.change is _CANCEL:
            _cancel(db, rows, operation, setting.key_window_s)
        elif operation.change is _REPLAY:
            _replay(db, rows, operation)
        else:
            delete_jobs(db, [(row.seq, row.lane, row.state) for row in rows])
        db.run(_NOTIFY, channel=setting.channel, listener=setting.listener)


def _cancel(db: Db, rows: list[_Row], operation: Operation, window_s: float) -> None:
    keep_s, reason = operation.keep_s, escaped(operation.reason)
    db.run(_SQL["cancel"], seqs=_seqs(rows), reason=reason, keep_s=keep_s, window_s=window_s)
    waiting = [row for row in rows if row.state != "running"]
    if waiting:
        values = {"seqs": _seqs(waiting), "dues": floats([row.due_at for row in waiting])}
        lanes, priorities = ints([row.lane for row in waiting]), ints([row.priority for row in waiting])
        db.run(_SQL["forget_delayed"], **values)
        db.run(_SQL["forget_ready"], lanes=lanes, priorities=priorities, **values)
    running = [row for row in rows if row.state == "running"]
    if running:
        db.run(
            _SQL["tell_holders"], ids=texts([row.id for row in running]), tokens=blobs([row.token for row in running])
        )
    _move(db, rows, "cancelled")


def _replay(db: Db, rows: list[_Row], operation: Operation) -> None:
    places = {id: place for place, id in enumerate(dict.fromkeys(operation.ids))}  # noqa: A001
    rows = sorted(rows, key=lambda row: places[row.id])
    if operation.replay:
        db.run(_SQL["mark_replayed"], seqs=_seqs(rows), replay=escaped(operation.replay))
    db.run(
        _SQL["replay"],
        seqs=_seqs(rows),
        payloads=blobs([operation.payloads.get(row.id, operation.payload) for row in rows]),
        delay_s=max(0.0, operation.delay_s),
        reason=escaped(operation.reason),
    )
    db.run(_FORGET, seqs=_seqs(rows))
    _move(db, rows, "queued")


def delete_jobs(db: Db, rows: Sequence[tuple[int, int, str]]) -> None:
    """Delete these, by seq, lane and state, with all that belongs to them."""
    seqs = ints([seq for seq, _, _ in rows])
    for query in _DELETES:
        db.run(_SQL[query], seqs=seqs)
    if any(state == "dead_letter" for _, _, state in rows):
        db.run(_FORGET, seqs=seqs)
    _tally(db, Counter({key: -n for key, n in Counter((lane, state) for _, lane, state in rows).items()}))


def _move(db: Db, rows: list[_Row], after: str) -> None:
    moves: Counter[tuple[int, str]] = Counter()
    for row in rows:
        moves[row.lane, row.state] -= 1
        moves[row.lane, after] += 1
    _tally(db, moves)


def _tally(db: Db, moves: Counter[tuple[int, str]]) -> None:
    lanes, states = [lane for lane, _ in moves], [state for _, state in moves]
    db.run(_SQL["move"], lanes=ints(lanes), states=texts(states), ns=ints(list(moves.values())))


def _seqs(rows: list[_Row]) -> bytes:
    return ints([row.seq for row in rows])
