"""Which messages of a partition are unfinished, and how far it may be committed."""

from __future__ import annotations

from math import inf

import pytest

from holdfast.policy.offsets import Offsets


def opened(*offsets: int, position: int = 0) -> Offsets:
    found = Offsets(position)
    found.add_many(offsets)
    return found


def test_without_messages_the_position_is_where_it_began() -> None:
    offsets = Offsets(7)
    assert (offsets.position, offsets.end, offsets.first, offsets.open, offsets.unfinished) == (7, 7, None, 0, 0)


def test_a_received_message_is_unfinished_and_holds_the_position() -> None:
    offsets = Offsets(7)
    offsets.add(7)
    offsets.add(8)
    assert (offsets.position, offsets.end, offsets.first, offsets.open, offsets.unfinished) == (7, 9, 7, 2, 2)


def test_the_position_comes_after_the_last_one_when_all_are_finished() -> None:
    offsets = opened(7, 8, 9, position=7)
    for offset in (7, 8, 9):
        offsets.finish(offset)
    assert (offsets.position, offsets.first, offsets.open, offsets.unfinished) == (10, None, 0, 0)


def test_a_message_finished_behind_an_unfinished_one_stays_in_the_gap() -> None:
    offsets = opened(0, 1, 2)
    offsets.finish(2)
    assert (offsets.position, offsets.open, offsets.unfinished) == (0, 3, 2)
    offsets.finish(0)
    assert (offsets.position, offsets.first, offsets.open, offsets.unfinished) == (1, 1, 2, 1)
    offsets.finish(1)
    assert (offsets.position, offsets.open, offsets.unfinished) == (3, 0, 0)


def test_the_last_one_finished_behind_an_unfinished_one_is_known_until_it_is_passed() -> None:
    offsets = opened(5, 7, 8, 9, position=5)
    assert offsets.last_finished(inf) is None
    offsets.finish_many([7, 8])
    assert [offsets.last_finished(before) for before in (inf, 9, 8, 7)] == [8, 8, 7, None]
    offsets.finish(5)
    assert offsets.last_finished(inf) is None


def test_holes_are_passed_with_what_is_before_them() -> None:
    offsets = opened(3, 10, 11, position=0)
    assert offsets.position == 3
    offsets.finish(3)
    assert offsets.position == 10
    offsets.finish_many([11, 10])
    assert offsets.position == 12


@pytest.mark.parametrize("offset", [-1, 0, 2, 4, 99])
def test_one_that_is_not_open_is_passed_over(offset: int) -> None:
    offsets = opened(0, 1, 3, 5)
    offsets.finish(0)
    offsets.finish(offset)
    offsets.finish_many([offset, offset])
    assert (offsets.position, offsets.open, offsets.unfinished) == (1, 3, 3)
    offsets.add(99)
    assert (offsets.open, offsets.unfinished) == (4, 4)


def test_one_that_is_finished_twice_counts_once() -> None:
    offsets = opened(0, 1)
    offsets.finish(1)
    offsets.finish(1)
    assert (offsets.open, offsets.unfinished) == (2, 1)


def test_batches_are_finished_at_the_head_while_others_wait_behind() -> None:
    offsets = opened(*range(10))
    offsets.finish_many(range(5))
    assert (offsets.position, offsets.open, offsets.unfinished) == (5, 5, 5)
    offsets.finish_many([6, 7, 42])
    assert (offsets.position, offsets.open, offsets.unfinished) == (5, 5, 3)
    offsets.finish_many([9, 5])
    assert (offsets.position, offsets.open, offsets.unfinished) == (8, 2, 1)


@pytest.mark.parametrize("offset", [4, 6, 7])
def test_an_offset_that_the_position_could_have_passed_is_refused(offset: int) -> None:
    offsets = opened(7, position=5)
    with pytest.raises(ValueError, match=f"^offset {offset} was added after 7: the position would pass it$"):
        offsets.add(offset)
    with pytest.raises(ValueError, match=f"^offsets from {offset} on do not rise, or do not come after 7$"):
        offsets.add_many([offset, 8])
    offsets.add(8)
    assert (offsets.position, offsets.open, offsets.unfinished) == (7, 2, 2)


@pytest.mark.parametrize("added", [[6, 8, 7], [6, 6], [6, 7, 7, 8]])
def test_of_offsets_that_do_not_rise_none_is_added(added: list[int]) -> None:
    offsets = opened(5, position=5)
    with pytest.raises(ValueError, match="do not rise"):
        offsets.add_many(added)
    assert (offsets.end, offsets.open, offsets.unfinished) == (6, 1, 1)


def test_nothing_to_add_or_to_finish_changes_nothing() -> None:
    offsets = opened(5, position=5)
    offsets.add_many([])
    offsets.finish_many([])
    assert (offsets.position, offsets.end, offsets.open) == (5, 6, 1)


def test_what_was_passed_is_not_remembered() -> None:
    offsets = Offsets(0)
    for start in range(0, 50_000, 500):
        offsets.add_many(range(start, start + 500))
        offsets.finish_many(range(start, start + 500))
    assert offsets.position == 50_000
    assert not offsets._order
    assert not offsets._unfinished
