"""Never more than so many starts in any window, and waits that are exact."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any

import pytest

from holdfast.errors import ConfigError
from holdfast.policy.limiter import Rate, Starts


def started(rate: Rate, *instants: float) -> Starts:
    """Starts at these instants; none of them had to wait."""
    starts = Starts()
    for instant in instants:
        assert starts.wait(rate, instant) == 0.0
        starts.add(rate, instant)
    return starts


def run(rate: Rate, now: float, count: int) -> list[float]:
    """The instants at which so many eager callers, one after the other, start."""
    starts, instants = Starts(), []
    for _ in range(count):
        now += starts.wait(rate, now)
        assert starts.wait(rate, now) == 0.0
        starts.add(rate, now)
        instants.append(now)
    return instants


def most_in_any_window(instants: list[float], length: float) -> int:
    ordered = sorted(instants)
    return max(bisect_left(ordered, start + length) - bisect_left(ordered, start) for start in ordered)


# ---- the limit


def test_so_many_may_start_at_once_and_the_next_waits_for_the_window() -> None:
    rate = Rate(3, 10.0)
    starts = started(rate, 0.0, 0.0, 0.0)
    assert starts.wait(rate, 0.0) == 10.0
    assert starts.wait(rate, 4.0) == 6.0
    assert starts.wait(rate, 10.0) == 0.0


def test_waits_end_exactly_when_the_oldest_start_leaves_the_window() -> None:
    rate = Rate(3, 10.0)
    starts = started(rate, 0.0, 1.0, 4.0)
    assert starts.wait(rate, 4.0) == 6.0
    starts.add(rate, 10.0)
    assert starts.wait(rate, 10.0) == 1.0
    starts.add(rate, 11.0)
    assert starts.wait(rate, 11.0) == 3.0


def test_the_window_slides_and_has_no_edge_to_crowd_at() -> None:
    assert run(Rate(2, 10.0), 0.0, 6) == [0, 0, 10, 10, 20, 20]
    rate = Rate(4, 10.0)
    late_in_the_minute = started(rate, 9.0, 9.0, 9.0, 9.0)
    assert late_in_the_minute.wait(rate, 10.0) == 9.0


def test_asking_takes_nothing() -> None:
    rate = Rate(1, 10.0)
    starts = Starts()
    assert [starts.wait(rate, 5.0) for _ in range(5)] == [0.0] * 5
    starts.add(rate, 5.0)
    assert [starts.wait(rate, 6.0) for _ in range(5)] == [9.0] * 5


@pytest.mark.parametrize("max_calls", [1, 2, 63, 64, 65, 100, 1000])
def test_never_more_than_max_calls_start_in_any_half_open_window(max_calls: int) -> None:
    rate = Rate(max_calls, 64.0)
    instants = run(rate, 0.0, 3 * max_calls)
    assert most_in_any_window(instants, 64.0) == max_calls

    starts, instants, now = Starts(), [], 0.0
    unit = math.ceil(2**14 / max_calls) / 2**10  # a fourth of the even pace, and exact in binary
    for step in range(6 * max_calls):
        now += (step % 7) * unit
        if starts.wait(rate, now) == 0.0:
            starts.add(rate, now)
            instants.append(now)
    assert most_in_any_window(instants, 64.0) <= max_calls


def test_with_a_high_limit_starts_share_entries_and_are_forgotten_too_late_never_too_early() -> None:
    rate = Rate(100, 64.0)
    starts = started(rate, *(step / 100 for step in range(100)))  # within 1/64 of the window: one entry, dated 0.99
    assert len(starts.entries) == 1
    assert starts.wait(rate, 1.0) == pytest.approx(63.99)
    assert starts.wait(rate, 64.98) == pytest.approx(0.01)
    assert starts.wait(rate, 64.99) == 0.0
    assert starts.count == 0


def test_an_entry_spans_a_64th_of_the_window_and_not_more() -> None:
    rate = Rate(65, 64.0)
    starts = started(rate, 0.0, 0.5, 0.999, 1.0, 1.999, 2.0, 2.0)
    assert [(entry.first, entry.last, entry.count) for entry in starts.entries] == [
        (0.0, 0.999, 3),
        (1.0, 1.999, 2),
        (2.0, 2.0, 2),
    ]
    assert starts.count == 7


def test_up_to_64_every_start_has_an_entry_of_its_own() -> None:
    rate = Rate(64, 64.0)
    starts = started(rate, *[0.0] * 63, 0.5)
    assert len(starts.entries) == 64
    assert starts.wait(rate, 64.0) == 0.0
    assert (len(starts.entries), starts.count) == (1, 1)


def test_however_high_the_limit_a_few_dozen_entries_are_enough() -> None:
    rate, starts, most = Rate(100_000, 60.0), Starts(), 0
    for step in range(20_000):
        starts.wait(rate, step * 0.01)
        starts.add(rate, step * 0.01)
        most = max(most, len(starts.entries))
    assert most <= 66
    assert sum(entry.count for entry in starts.entries) == starts.count


def test_shared_entries_hold_a_caller_back_by_at_most_a_64th_of_the_window() -> None:
    rate = Rate(128, 64.0)
    starts = started(rate, *(step / 2 for step in range(128)))  # two a second, as fast as allowed
    assert 0.0 <= starts.wait(rate, 63.5) - 0.5 <= 1.0


# ---- bursts


def test_a_burst_of_one_spreads_all_starts_evenly() -> None:
    assert run(Rate(4, 10.0, burst=1), 0.0, 5) == [0, 2.5, 5, 7.5, 10]


def test_after_a_burst_the_rest_are_spread_evenly() -> None:
    assert run(Rate(8, 8.0, burst=3), 0.0, 7) == [0, 0, 0, 1, 2, 3, 4]


def test_a_burst_comes_back_with_rest() -> None:
    rate = Rate(10, 10.0, burst=3)
    starts = started(rate, 0.0, 0.0, 0.0)
    assert starts.wait(rate, 0.0) == 1.0
    starts.add(rate, 1.0)
    assert starts.wait(rate, 1.0) == 1.0
    assert starts.wait(rate, 2.5) == 0.0
    for _ in range(2):  # by 3.0 two of the three are back
        assert starts.wait(rate, 3.0) == 0.0
        starts.add(rate, 3.0)
    assert starts.wait(rate, 3.0) == 1.0


def test_a_burst_never_grows_beyond_itself_however_long_the_rest() -> None:
    rate = Rate(10, 10.0, burst=2)
    starts = started(rate, 0.0, 1000.0, 1000.0)
    assert starts.wait(rate, 1000.0) == 1.0


@pytest.mark.parametrize("burst", [1, 2, 5, 9, 10])
def test_burst_and_pace_together_still_keep_the_limit(burst: int) -> None:
    instants = run(Rate(10, 10.0, burst=burst), 0.0, 60)
    assert most_in_any_window(instants, 10.0 - 1e-6) <= 10
    assert most_in_any_window(instants, 1e-6) == burst


def test_without_a_burst_of_its_own_there_is_no_pace() -> None:
    starts = started(Rate(10, 10.0), *[0.0] * 10)
    assert starts.next_even == -math.inf
    assert Rate(10, 10.0).burst == 10
    assert run(Rate(10, 10.0, burst=10), 0.0, 10) == [0.0] * 10


# ---- those who wait


@pytest.mark.parametrize(
    ("ahead", "start_at"),
    [(0, 10.0), (1, 11.0), (2, 14.0), (3, 20.0), (4, 21.0), (5, 24.0), (6, 30.0), (9, 40.0), (3000, 10_010.0)],
)
def test_a_newcomer_waits_until_those_ahead_have_had_their_starts(ahead: int, start_at: float) -> None:
    rate = Rate(3, 10.0)
    starts = started(rate, 0.0, 1.0, 4.0)
    assert starts.wait(rate, 5.0, ahead) == start_at - 5.0


@pytest.mark.parametrize(("ahead", "wait"), [(0, 0.0), (1, 0.0), (2, 6.0), (3, 10.0), (4, 10.0), (5, 16.0), (6, 20.0)])
def test_those_ahead_who_have_room_are_taken_to_start_now(ahead: int, wait: float) -> None:
    rate = Rate(3, 10.0)
    starts = started(rate, 1.0)
    assert starts.wait(rate, 5.0, ahead) == wait  # starts at 1; then 5, 5, 11, 15, 15, 21, 25 …


@pytest.mark.parametrize(("ahead", "wait"), [(0, 0.0), (1, 0.0), (2, 10.0), (3, 10.0), (4, 20.0)])
def test_with_nothing_remembered_those_ahead_fill_the_window_from_now(ahead: int, wait: float) -> None:
    assert Starts().wait(Rate(2, 10.0), 500.0, ahead) == wait


def test_those_ahead_share_an_entry_where_the_limit_is_high() -> None:
    rate = Rate(100, 64.0)
    starts = started(rate, *[0.0] * 60, *[5.0] * 40)
    assert [starts.wait(rate, 10.0, ahead) for ahead in (0, 59, 60, 99, 100)] == [54.0, 54.0, 59.0, 59.0, 118.0]


@pytest.mark.parametrize(("ahead", "wait"), [(0, 0.5), (1, 1.5), (2, 2.5)])
def test_the_pace_counts_those_ahead_too(ahead: int, wait: float) -> None:
    rate = Rate(10, 10.0, burst=2)
    starts = started(rate, 0.0, 0.0)
    assert starts.wait(rate, 0.5, ahead) == wait


@pytest.mark.parametrize(("ahead", "wait"), [(0, 0.0), (1, 0.0), (2, 1.0), (3, 2.0)])
@pytest.mark.parametrize("earlier", [(), (0.0,)])
def test_after_a_rest_the_pace_of_those_ahead_begins_now(earlier: tuple[float, ...], ahead: int, wait: float) -> None:
    rate = Rate(10, 10.0, burst=2)
    assert started(rate, *earlier).wait(rate, 500.0, ahead) == wait


# ---- asking and taking in one


def test_taking_a_start_remembers_it_and_being_told_to_wait_does_not() -> None:
    rate, starts = Rate(2, 10.0), Starts()
    assert [starts.take(rate, at) for at in (0.0, 1.0, 4.0, 10.0, 10.5, 11.0)] == [0.0, 0.0, 6.0, 0.0, 0.5, 0.0]
    assert starts.count == 2


def test_taking_a_start_lets_those_ahead_go_first() -> None:
    rate, starts = Rate(2, 10.0), Starts()
    assert starts.take(rate, 0.0, ahead=1) == 0.0
    assert starts.take(rate, 1.0, ahead=1) == 9.0
    assert starts.count == 1


def test_taking_a_start_keeps_the_pace() -> None:
    rate, starts = Rate(10, 10.0, burst=2), Starts()
    assert [starts.take(rate, 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_taken_starts_share_entries_too() -> None:
    rate, starts = Rate(100, 64.0), Starts()
    for at in (640.0, 640.5, 640.999, 641.0):
        assert starts.take(rate, at) == 0.0
    assert [(entry.first, entry.last, entry.count) for entry in starts.entries] == [
        (640.0, 640.999, 3),
        (641.0, 641.0, 1),
    ]
    assert starts.count == 4


@pytest.mark.parametrize("max_calls", [1, 64, 65, 1000])
def test_no_more_than_max_calls_can_be_taken_from_a_window(max_calls: int) -> None:
    rate, starts = Rate(max_calls, 64.0), Starts()
    waits = [starts.take(rate, 640.0 + step / max_calls) for step in range(max_calls)]  # all within one second
    assert waits == [0.0] * max_calls
    assert starts.count == max_calls
    assert starts.take(rate, 641.0) > 60.0
    assert starts.count == max_calls


def test_taking_starts_forgets_what_has_left_the_window() -> None:
    rate, starts = Rate(1000, 10.0), Starts()
    for step in range(1000):
        assert starts.take(rate, float(step)) == 0.0
    assert starts.count == 10
    assert len(starts.entries) == 10


# ---- forgetting


def test_it_is_idle_once_nothing_is_remembered() -> None:
    rate = Rate(2, 10.0)
    assert Starts().is_idle(rate, 0.0)
    starts = started(rate, 0.0)
    assert not starts.is_idle(rate, 0.0)
    assert not starts.is_idle(rate, 9.99)
    assert starts.is_idle(rate, 10.0)


def test_it_is_not_idle_while_the_pace_still_holds_the_next_one_back() -> None:
    rate = Rate(2, 10.0, burst=1)
    starts = started(rate, 0.0, 5.0)
    starts.next_even = 17.0
    assert not starts.is_idle(rate, 16.9)
    assert not starts.entries
    assert starts.is_idle(rate, 17.0)


@pytest.mark.parametrize("window", [0.1, 0.3, 0.7, 1 / 3, 1.1, 60.0])
@pytest.mark.parametrize("now", [0.0, 0.1, 12_345.678_9, 86_400.1, 1e6 + 0.1, 1_700_000_000.123])
@pytest.mark.parametrize(("max_calls", "burst"), [(1, 1), (3, 3), (3, 1), (100, 100), (100, 7)])
def test_floating_point_noise_does_not_make_a_caller_wait_for_ever(
    window: float, now: float, max_calls: int, burst: int
) -> None:
    rate, starts = Rate(max_calls, window, burst=burst), Starts()
    for _ in range(3 * max_calls):
        for _ in range(3):
            wait = starts.wait(rate, now)
            if wait == 0.0:
                break
            assert wait > 1e-9
            now += wait
        else:
            pytest.fail(f"still waiting at {now!r} after three waits")
        starts.add(rate, now)


@pytest.mark.parametrize(("early_by", "waits"), [(2e-9, True), (0.5e-9, False), (0.0, False)])
def test_a_nanosecond_is_a_rounding_error_and_not_a_wait(early_by: float, waits: bool) -> None:
    rate = Rate(1, 1.0)
    assert (started(rate, 0.0).wait(rate, 1.0 - early_by) > 0.0) is waits
    paced = Rate(2, 2.0, burst=1)
    assert (started(paced, 0.0).wait(paced, 1.0 - early_by) > 0.0) is waits


# ---- rates


@pytest.mark.parametrize(
    ("text", "max_calls", "time_window"),
    [
        ("100/minute", 100, 60.0),
        ("5/10s", 5, 10.0),
        ("2/second", 2, 1.0),
        ("1/s", 1, 1.0),
        ("1/sec", 1, 1.0),
        ("3/secs", 3, 1.0),
        ("3/30 seconds", 3, 30.0),
        ("4/m", 4, 60.0),
        ("4/min", 4, 60.0),
        ("4/5mins", 4, 300.0),
        ("4/5 minutes", 4, 300.0),
        ("5/h", 5, 3600.0),
        ("5/hour", 5, 3600.0),
        ("5/2hours", 5, 7200.0),
        ("6/d", 6, 86_400.0),
        ("6/day", 6, 86_400.0),
        ("6/7days", 6, 604_800.0),
        ("10/0.5s", 10, 0.5),
        ("10/1.5 minutes", 10, 90.0),
        ("  7 / 2  Seconds ", 7, 2.0),
        ("999999999/day", 999_999_999, 86_400.0),
        ("1/999999.999999s", 1, 999_999.999_999),
    ],
)
def test_a_rate_is_written_as_people_write_it(text: str, max_calls: int, time_window: float) -> None:
    rate = Rate.parse(text)
    assert (rate.max_calls, rate.time_window, rate.burst) == (max_calls, time_window, max_calls)


@pytest.mark.parametrize(
    "text",
    [
        "100",
        "0/minute",
        "10/fortnight",
        "-1/s",
        "1e3/s",
        "",
        None,
        "/s",
        "10/",
        "10/0s",
        "10/0.0s",
        "1.5/s",
        "10/s/s",
        "10 per second",
        "10/5",
        "ten/s",
        "10/-5s",
        "10/ms",
        "10/500ms",
        "10/ss",
        "10/hs",
        "10/secondss",
        "1000000000/s",
        "10/.5s",
        "10/5.s",
        "10/1e3s",
        "x10/s",
        "10/s!",
        10,
        b"10/s",
        ("10/s",),
    ],
)
def test_a_rate_that_does_not_parse_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Rate.parse(text)
    assert str(refused.value) == f"rate={text!r}: must be like '100/minute', '5/10s' or '2/second'"


def test_a_rate_may_be_given_in_numbers_or_in_words() -> None:
    rate = Rate(5, 120.0, burst=2)
    assert (rate.max_calls, rate.time_window, rate.burst) == (5, 120.0, 2)
    assert Rate(5, 120) == Rate.parse("5/2minutes")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0, 1.0), "max_calls=0: must be a whole number of at least 1"),
        ((-5, 1.0), "max_calls=-5: must be a whole number of at least 1"),
        ((1.5, 1.0), "max_calls=1.5: must be a whole number of at least 1"),
        ((True, 1.0), "max_calls=True: must be a whole number of at least 1"),
        (("5", 1.0), "max_calls='5': must be a whole number of at least 1"),
        ((5, 0), "time_window=0: must be a number, above 0"),
        ((5, -1.0), "time_window=-1.0: must be a number, above 0"),
        ((5, math.nan), "time_window=nan: must be a number, above 0"),
        ((5, math.inf), "time_window=inf: must be a number, above 0"),
        ((5, "minute"), "time_window='minute': must be a number, above 0"),
        ((5, 1.0, 0), "burst=0: must be a whole number of at least 1"),
        ((5, 1.0, True), "burst=True: must be a whole number of at least 1"),
        ((5, 1.0, 6), "burst=6: must be at most max_calls, which is 5"),
    ],
)
def test_a_rate_that_cannot_work_is_refused_with_field_value_and_remedy(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Rate(*settings)
    assert str(refused.value) == message
