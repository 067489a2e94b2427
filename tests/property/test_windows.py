"""Windows against lists that keep every call."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.window import CountWindow, TimeWindow, Totals

Call = tuple[float, bool, bool]

# Sixteenths of a second, and lengths of which a tenth is exact as well: no rounding is in the way.
gaps = st.integers(0, 40).map(lambda sixteenths: sixteenths / 16)
lengths = st.integers(1, 30).map(lambda sixteenths: sixteenths * 10 / 16)
calls = st.tuples(gaps, st.booleans(), st.booleans())
steps = st.integers(0, 60).flatmap(lambda size: st.lists(calls, min_size=size, max_size=size))


def summed(calls: list[Call]) -> Totals:
    return Totals(len(calls), sum(failed for _, failed, _ in calls), sum(slow for _, _, slow in calls))


@given(st.integers(1, 20), steps)
def test_a_count_window_is_the_tail_of_all_calls(size: int, steps: list[Call]) -> None:
    window, every, now = CountWindow(size), list[Call](), 0.0
    for gap, failed, slow in steps:
        now += gap
        window.add(now, failed=failed, slow=slow)
        every.append((now, failed, slow))
        assert window.totals(now) == summed(every[-size:])


@given(lengths, steps, gaps)
def test_a_time_window_counts_a_call_for_nine_tenths_of_its_length_and_never_longer_than_it(
    length: float, steps: list[Call], rest: float
) -> None:
    window, every, now = TimeWindow(length), list[Call](), 0.0

    def check() -> None:
        got = window.totals(now)
        surely = summed([call for call in every if now - call[0] < 0.9 * length])
        at_most = summed([call for call in every if now - call[0] < length])
        assert surely.calls <= got.calls <= at_most.calls
        assert surely.failures <= got.failures <= at_most.failures
        assert surely.slow <= got.slow <= at_most.slow

    for gap, failed, slow in steps:
        now += gap
        check()
        window.add(now, failed=failed, slow=slow)
        every.append((now, failed, slow))
        check()
    now += rest
    check()
    now += length
    assert window.totals(now) == Totals()


@given(lengths, steps)
def test_looking_into_a_time_window_changes_nothing_in_it(length: float, steps: list[Call]) -> None:
    looked_at, left_alone, now = TimeWindow(length), TimeWindow(length), 0.0
    for gap, failed, slow in steps:
        now += gap
        looked_at.totals(now)
        for window in (looked_at, left_alone):
            window.add(now, failed=failed, slow=slow)
    assert looked_at.totals(now) == left_alone.totals(now)
