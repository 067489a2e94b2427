"""Sliding windows by number and by time."""

from __future__ import annotations

import pytest

from holdfast.policy.window import CountWindow, TimeWindow, Totals, Window

OK, BAD, SLOW, BAD_SLOW = (False, False), (True, False), (False, True), (True, True)


def filled(window: Window, *calls: tuple[float, tuple[bool, bool]]) -> Window:
    for now, (failed, slow) in calls:
        window.add(now, failed=failed, slow=slow)
    return window


@pytest.mark.parametrize("window", [CountWindow(3), TimeWindow(10.0)])
def test_a_new_window_is_empty(window: Window) -> None:
    assert window.totals(0.0) == Totals(calls=0, failures=0, slow=0)


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([OK], Totals(1, 0, 0)),
        ([BAD], Totals(1, 1, 0)),
        ([SLOW], Totals(1, 0, 1)),
        ([BAD_SLOW], Totals(1, 1, 1)),
        ([OK, BAD, SLOW], Totals(3, 1, 1)),
        ([BAD, OK, SLOW, OK], Totals(3, 0, 1)),  # the failure has fallen out
        ([SLOW, BAD, OK, OK], Totals(3, 1, 0)),
        ([BAD_SLOW, BAD_SLOW, BAD_SLOW, BAD_SLOW, OK, OK], Totals(3, 1, 1)),
        ([BAD, BAD, BAD, OK, OK, OK], Totals(3, 0, 0)),
    ],
)
def test_a_count_window_holds_the_last_calls_and_does_not_age(kinds: list[tuple[bool, bool]], expected: Totals) -> None:
    window = filled(CountWindow(3), *((float(at), kind) for at, kind in enumerate(kinds)))
    assert window.totals(0.0) == expected
    assert window.totals(1e12) == expected


def test_a_count_window_of_one_holds_the_last_call() -> None:
    assert filled(CountWindow(1), (0.0, BAD), (0.0, SLOW)).totals(0.0) == Totals(1, 0, 1)


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (5.0, Totals(4, 2, 2)),
        (9.999, Totals(4, 2, 2)),
        (10.0, Totals(3, 2, 1)),  # the call at 0 is exactly ten seconds old
        (11.999, Totals(3, 2, 1)),
        (12.0, Totals(2, 1, 1)),
        (14.999, Totals(2, 1, 1)),
        (15.0, Totals(0, 0, 0)),
        (1e9, Totals(0, 0, 0)),
    ],
)
def test_a_time_window_counts_a_call_for_its_length_and_no_longer(now: float, expected: Totals) -> None:
    window = filled(TimeWindow(10.0), (0.0, SLOW), (2.0, BAD), (5.0, BAD_SLOW), (5.0, OK))
    assert window.totals(now) == expected


@pytest.mark.parametrize(
    ("second_call_at", "dropped_together"),
    [(100.0, True), (100.5, True), (100.999, True), (101.0, False), (101.5, False)],
)
def test_calls_within_a_tenth_of_the_length_share_a_slice_that_is_dropped_as_a_whole(
    second_call_at: float, dropped_together: bool
) -> None:
    window = filled(TimeWindow(10.0), (100.0, BAD), (second_call_at, BAD))
    assert window.totals(109.999) == Totals(2, 2, 0)
    assert window.totals(110.0) == (Totals() if dropped_together else Totals(1, 1, 0))


def test_a_slice_begins_with_its_first_call_and_not_on_a_grid() -> None:
    window = filled(TimeWindow(10.0), (0.9, BAD), (1.8, BAD))
    assert window.totals(10.89) == Totals(2, 2, 0)
    assert window.totals(10.91) == Totals(0, 0, 0)


def test_adding_a_call_drops_what_has_left_the_window() -> None:
    window = filled(TimeWindow(10.0), *((float(at), BAD) for at in range(1000)))
    assert window.totals(999.0) == Totals(10, 10, 0)


def test_an_old_call_is_not_revived_by_a_new_one() -> None:
    window = filled(TimeWindow(10.0), (0.0, BAD), (10.0, OK))
    assert window.totals(10.0) == Totals(1, 0, 0)


def test_a_time_window_remembers_at_most_ten_slices_however_many_the_calls() -> None:
    window = TimeWindow(10.0)
    for step in range(4000):
        window.add(step / 100, failed=False, slow=False)
        assert len(window._slices) <= 10
    assert window.totals(39.99).calls >= 900
