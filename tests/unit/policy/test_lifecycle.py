"""The whole table of a job's life: every state by every change."""

from __future__ import annotations

import pytest

from holdfast.errors import IllegalChange
from holdfast.policy.lifecycle import LIFECYCLE, READY, SETTLING, after, is_allowed
from holdfast.types import Change, JobState

# Told once more as a picture: a row for each state, a column for each change. "·" is refused, "gone" is no state.
PICTURE = """
             claim    complete   retry     park     release  bury         fail    discard    cancel     replay  remove
queued       running  ·          ·         ·        ·        ·            ·       ·          cancelled  ·       ·
running      ·        completed  retrying  waiting  queued   dead_letter  failed  cancelled  cancelled  ·       ·
retrying     running  ·          ·         ·        ·        ·            ·       ·          cancelled  ·       ·
waiting      running  ·          ·         ·        ·        ·            ·       ·          cancelled  ·       ·
completed    ·        ·          ·         ·        ·        ·            ·       ·          ·          ·       gone
failed       ·        ·          ·         ·        ·        ·            ·       ·          ·          ·       gone
dead_letter  ·        ·          ·         ·        ·        ·            ·       ·          ·          queued  gone
cancelled    ·        ·          ·         ·        ·        ·            ·       ·          ·          ·       gone
"""
COLUMNS, *ROWS = [line.split() for line in PICTURE.strip().splitlines()]
CELLS = [
    (JobState(state), Change(change), cell)
    for state, *cells in ROWS
    for change, cell in zip(COLUMNS, cells, strict=True)
]


def test_the_picture_has_every_state_and_every_change() -> None:
    assert [row[0] for row in ROWS] == list(JobState)
    assert list(Change) == COLUMNS
    assert set(LIFECYCLE) == set(Change)


@pytest.mark.parametrize(("state", "change", "cell"), [one for one in CELLS if one[2] != "·"])
def test_what_is_allowed_leads_where_the_picture_says(state: JobState, change: Change, cell: str) -> None:
    assert is_allowed(state, change)
    assert after(state, change) is (None if cell == "gone" else JobState(cell))


@pytest.mark.parametrize(("state", "change"), [one[:2] for one in CELLS if one[2] == "·"])
def test_everything_else_is_refused(state: JobState, change: Change) -> None:
    assert not is_allowed(state, change)
    with pytest.raises(IllegalChange):
        after(state, change)


def test_a_refusal_says_what_cannot_be_and_what_could() -> None:
    with pytest.raises(IllegalChange) as refusal:
        after(JobState.COMPLETED, Change.CANCEL)
    assert str(refusal.value) == (
        "cancel: a job that is completed cannot; it must be queued, retrying, running, waiting"
    )


def test_terminal_states_are_left_by_a_replay_or_by_removal_alone() -> None:
    ways_out = {
        (state, change) for state in JobState for change in Change if state.is_terminal and is_allowed(state, change)
    }
    removals = {(state, Change.REMOVE) for state in JobState if state.is_terminal}
    assert ways_out == removals | {(JobState.DEAD_LETTER, Change.REPLAY)}


def test_of_what_is_no_job_whatever_has_ended_can_be_buried_again_and_nothing_else() -> None:
    again = {(state, change) for state in JobState for change in Change if is_allowed(state, change, is_again=True)}
    assert again == {(state, Change.BURY) for state in JobState if state.is_terminal}


def test_what_is_ready_is_what_can_be_claimed() -> None:
    assert {state for state in JobState if is_allowed(state, Change.CLAIM)} == READY


def test_workers_settle_what_runs_and_nothing_else() -> None:
    from_running_alone = {change for change in Change if LIFECYCLE[change].before == {JobState.RUNNING}}
    assert from_running_alone == SETTLING


def test_every_change_says_in_words_what_it_is() -> None:
    words = [move.words for move in LIFECYCLE.values()]
    assert all(words)
    assert len(set(words)) == len(words)
