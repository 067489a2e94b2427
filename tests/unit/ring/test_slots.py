"""The slots of a ring: pieces as they come, batches as they are taken, and what is let go."""

from __future__ import annotations

import pytest

from holdfast.errors import HoldfastError
from holdfast.ring.slots import AHEAD, GATHERED, SMALL, Slots


def large(n: int, first: int = 0) -> list[int]:
    return list(range(first, first + n))


def test_a_long_list_is_handed_out_as_it_came_without_a_copy() -> None:
    slots, piece = Slots(1024), large(SMALL)
    slots.add(piece, None)
    elements, following = slots.take(0, 0, 1000)
    assert elements is piece
    assert following == 1


def test_short_lists_are_gathered_into_one_piece() -> None:
    slots, short = Slots(1024), [1, 2]
    slots.add(short, None)
    slots.add([3], None)
    slots.add((4, 5), None)
    elements, following = slots.take(0, 0, 5)
    assert (elements, following) == ([1, 2, 3, 4, 5], 1)
    assert short == [1, 2], "the caller's own list is not added to"


def test_a_gathered_piece_is_closed_at_its_longest() -> None:
    slots = Slots(4 * GATHERED)
    for n in range(GATHERED + 1):
        slots.add([n], None)
    elements, following = slots.take(0, 0, 4 * GATHERED)
    assert elements == large(GATHERED)
    assert slots.take(following, GATHERED, 4 * GATHERED)[0] == [GATHERED]


def test_short_lists_that_make_a_batch_are_one_list_for_every_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.ring.slots.SMALL", SMALL)
    slots = Slots(4096)
    for n in range(11):
        slots.add(large(100, 100 * n), None)
    first, following = slots.take(0, 0, GATHERED)
    assert (first, following) == (large(1000), 1)
    assert slots.take(0, 0, GATHERED)[0] is first
    assert slots.take(1, 1000, 2000) == (large(100, 1000), 2)


def test_a_batch_ends_with_the_last_place_and_the_next_one_begins_with_the_first() -> None:
    slots = Slots(4)
    for n in range(3):
        slots.add(large(40, 40 * n), None)
    slots.free(3, 120)
    for n in range(3, 6):
        slots.add(large(40, 40 * n), None)
    assert slots.take(3, 120, 1000) == (large(40, 120), 4)
    assert slots.take(4, 160, 1000) == (large(80, 160), 6)


def test_a_long_list_after_short_ones_stands_behind_them() -> None:
    slots = Slots(1024)
    slots.add([0, 1], None)
    slots.add(large(40, 2), None)
    slots.add([42], None)
    elements, following = slots.take(0, 0, 1000)
    assert elements == large(42)
    assert slots.take(following, 42, 1000)[0] == [42]


def test_a_tuple_and_a_list_of_another_class_become_lists() -> None:
    class Own(list[int]):
        pass

    slots = Slots(1024)
    slots.add(tuple(large(40)), None)
    slots.add(Own(large(40, 40)), None)
    elements, _ = slots.take(0, 0, 40)
    assert type(elements) is list
    own, _ = slots.take(1, 40, 80)
    assert type(own) is list


def test_a_batch_ends_inside_a_piece_and_the_next_one_begins_there() -> None:
    slots = Slots(1024)
    slots.add(large(100), None)
    assert slots.take(0, 0, 30) == (large(30), 0)
    assert slots.take(0, 30, 60) == (large(30, 30), 0)
    assert slots.take(0, 60, 200) == (large(40, 60), 1)


def test_batches_go_on_at_the_end_of_the_slots() -> None:
    slots = Slots(4)
    count = 0
    for lap in range(10):
        piece = large(40, count)
        slots.add(piece, None)
        assert slots.take(lap, count, count + 40) == (piece, lap + 1)
        count += 40
        slots.free(lap + 1, count)
    assert slots.produced == 400


@pytest.mark.parametrize("now", [large(51), large(49), large(51, -1), []])
def test_a_list_that_was_made_longer_or_shorter_is_found(now: list[int]) -> None:
    slots, piece = Slots(1024), large(50)
    slots.add(piece, None)
    piece[:] = now
    with pytest.raises(HoldfastError, match="a list was changed after it was produced"):
        slots.take(0, 0, 1000)


def test_pieces_that_are_batches_of_their_own_can_be_had_ahead() -> None:
    slots = Slots(1024)
    for n in range(5):
        slots.add(large(60, 60 * n), None)
    ahead = slots.pieces_from(1, 100, slots.produced)
    assert [one[0] for one in ahead] == [240, 180, 120, 60], "last first"
    assert slots.pieces_from(1, 59, slots.produced) == [], "longer than a batch"
    assert slots.pieces_from(1, 120, slots.produced) == [], "two would be one batch"
    assert [one[0] for one in slots.pieces_from(1, 100, 180)] == [120, 60], "not beyond its reach"


def test_not_more_than_some_are_had_ahead() -> None:
    slots = Slots(4096)
    for n in range(2 * AHEAD):
        slots.add(large(40, 40 * n), None)
    assert len(slots.pieces_from(1, 40, slots.produced)) == AHEAD


def test_a_list_that_was_changed_is_not_had_ahead() -> None:
    slots = Slots(1024)
    pieces = [large(60, 60 * n) for n in range(4)]
    for piece in pieces:
        slots.add(piece, None)
    pieces[2].append(0)
    assert slots.pieces_from(1, 100, slots.produced) == [pieces[1]]
    with pytest.raises(HoldfastError, match="changed"):
        slots.take(2, 120, 220)


def test_what_is_freed_is_let_go_at_once() -> None:
    slots = Slots(4)
    pieces = [large(40, 40 * n) for n in range(3)]
    for piece in pieces:
        slots.add(piece, None)
    assert slots.free(1, 40) is pieces[0]
    assert slots.free(1, 70) is None
    assert slots.free(3, 120) == (pieces[1:], [])
    assert slots.freed == 3
    assert not any(slots._pieces)


def test_pieces_on_both_sides_of_the_end_are_freed_together() -> None:
    slots = Slots(4)
    for n in range(3):
        slots.add(large(40, 40 * n), None)
    slots.free(3, 120)
    rest = [large(40, 120 + 40 * n) for n in range(3)]
    for piece in rest:
        slots.add(piece, None)
    assert slots.free(6, 240) == (rest[:1], rest[1:])
    assert not any(slots._pieces)


def test_offsets_are_counts_with_a_shift_that_changes_at_gaps() -> None:
    slots = Slots(1024)
    slots.add([1, 2, 3], 100)
    slots.add([4], 103)
    slots.add([5, 6], 200)
    assert slots.next_offset == 202
    assert slots.shift_at(0) == (100, 4)
    assert slots.shift_at(3) == (100, 4)
    assert slots.shift_at(4) == (196, None)


def test_gaps_that_everybody_is_past_are_forgotten() -> None:
    slots = Slots(1024)
    for n in range(5):
        slots.add(large(40), 1000 * n)
    slots.free(3, 120)
    assert len(slots.gaps) == 2
    assert slots.shift_at(120) == (3000 - 120, 160)


def test_the_piece_of_a_count_is_never_one_that_ends_there() -> None:
    slots = Slots(1024)
    slots.add(large(40), 0)
    slots.add([40, 41], 40)
    assert slots.piece_at(0, 39) == 0
    assert slots.piece_at(0, 40) == 1
    assert slots.piece_at(0, 41) == 1
    past = slots.piece_at(0, 42)
    slots.add([42], 42)
    assert slots.take(past, 42, 43) == ([42], past + 1)
