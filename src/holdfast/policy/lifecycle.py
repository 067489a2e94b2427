"""The life of a job: one table of the changes between its states. Stores, docs and the dashboard read it.

                ┌──────────────── release ───────────────┐
                ▼                                        │
(enqueue) ─▶ queued ──claim──▶ running ──complete──▶ completed
                ▲               │ ▲ │
                │               │ │ ├──retry──▶ retrying ─┐
                │               │ │ ├──park───▶ waiting ──┤
                │               │ └─────── claim ─────────┘
                │               ├──fail───▶ failed          (where dead letters are switched off)
                └──replay── dead_letter ◀──bury
queued, retrying, waiting and running ──cancel──▶ cancelled;  running ──discard──▶ cancelled
What comes with its end (`NewJob.end`) passes claim and then bury, complete or discard at once, wherever it stands.
It is no job, but work such as a message: handled again after it has ended, and given up again, it is a dead letter
again. For it alone: completed, failed, cancelled and dead_letter ──bury──▶ dead_letter
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from holdfast.errors import IllegalChange
from holdfast.types import Change, JobState


class Move(Struct, frozen=True):
    """The states a change may start from, and the one it leads to; None is the end of the record itself."""

    before: frozenset[JobState]
    after: JobState | None
    words: str
    again: frozenset[JobState] = frozenset()
    """The states that it may start from as well, for work that is no job and comes with its end; see `End`."""


_READY: Final = frozenset({JobState.QUEUED, JobState.RETRYING, JobState.WAITING})
_RUNNING: Final = frozenset({JobState.RUNNING})
_ENDED: Final = frozenset(state for state in JobState if state.is_terminal)

READY: Final = _READY
"""The states a job is claimed from."""

LIFECYCLE: Final[dict[Change, Move]] = {
    Change.CLAIM: Move(_READY, JobState.RUNNING, "a worker takes it; this counts the attempt"),
    Change.COMPLETE: Move(_RUNNING, JobState.COMPLETED, "the task returned"),
    Change.RETRY: Move(_RUNNING, JobState.RETRYING, "the attempt failed and another will follow"),
    Change.PARK: Move(_RUNNING, JobState.WAITING, "a breaker, a limit or the task asks to wait; costs no attempt"),
    Change.RELEASE: Move(_RUNNING, JobState.QUEUED, "the worker gives it back unrun; costs no attempt"),
    Change.BURY: Move(_RUNNING, JobState.DEAD_LETTER, "given up, with its history", again=_ENDED),
    Change.FAIL: Move(_RUNNING, JobState.FAILED, "given up, where dead letters are switched off"),
    Change.DISCARD: Move(_RUNNING, JobState.CANCELLED, "the task asked for it to be dropped"),
    Change.CANCEL: Move(_READY | _RUNNING, JobState.CANCELLED, "somebody cancelled it"),
    Change.REPLAY: Move(frozenset({JobState.DEAD_LETTER}), JobState.QUEUED, "back to the queue, with new attempts"),
    Change.REMOVE: Move(_ENDED, None, "the record is deleted"),
}

SETTLING: Final = frozenset(
    {Change.COMPLETE, Change.RETRY, Change.PARK, Change.RELEASE, Change.BURY, Change.FAIL, Change.DISCARD}
)
"""The changes that a worker makes to what it has claimed; they need the lease's token."""


def is_allowed(state: JobState, change: Change, *, is_again: bool = False) -> bool:
    """Whether a job in this state may change so; is_again: whether work may that is no job, and has ended."""
    move = LIFECYCLE[change]
    return state in (move.again if is_again else move.before)


def after(state: JobState, change: Change) -> JobState | None:
    """The state a change leads to, or None when the record is gone; refuses what the table does not have."""
    move = LIFECYCLE[change]
    if state not in move.before:
        starts = ", ".join(sorted(one.value for one in move.before))
        raise IllegalChange(f"{change.value}: a job that is {state.value} cannot; it must be {starts}")
    return move.after
