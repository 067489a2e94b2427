"""Ticks of intervals and cron lines, where the clocks change too, and what is due."""

from __future__ import annotations

import itertools
import time
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.policy.schedule import AHEAD_S, MISSED_AFTER_S, Cron, Due, Every, due, timing_of

BERLIN = "Europe/Berlin"
NOON = datetime(2024, 1, 10, 12, tzinfo=ZoneInfo("UTC")).timestamp()


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def shown(ticks: Any, zone: str = BERLIN) -> list[str]:
    return [datetime.fromtimestamp(tick, ZoneInfo(zone)).strftime("%H:%M%z") for tick in ticks]


# ---- every


def test_an_interval_counts_from_its_anchor_and_the_tick_itself_is_not_after_itself() -> None:
    every = Every(300, anchor=60.0)
    assert every.next_after(59.9) == 60.0
    assert every.next_after(60.0) == 360.0
    assert list(every.ticks(60.0, 960.0)) == [360.0, 660.0, 960.0]
    assert every.latest(60.0, 959.9) == 660.0
    assert every.latest(660.0, 959.9) is None


def test_an_interval_may_be_a_timedelta() -> None:
    assert Every(timedelta(minutes=5)) == Every(300.0)


@given(st.floats(1.0, 1e6), st.floats(0.0, 3e9))
def test_the_next_tick_is_later_and_at_most_one_interval_away(seconds: float, instant: float) -> None:
    tick = Every(seconds).next_after(instant)
    assert tick is not None
    assert instant < tick <= instant + seconds * (1 + 1e-9) + 1e-6


@given(st.floats(1.0, 1e6), st.floats(0.0, 3e9), st.integers(0, 50))
def test_an_intervals_ticks_are_the_same_wherever_the_walk_begins(seconds: float, start: float, steps: int) -> None:
    every = Every(seconds)
    ticks = list(every.ticks(start, start + seconds * steps))
    assert ticks == sorted(set(ticks))
    for before, after in itertools.pairwise(ticks):
        assert every.next_after(before) == after


@pytest.mark.parametrize("seconds", [0, 0.5, -5, float("nan"), float("inf"), 1e12, True, "5", None, timedelta(0)])
def test_an_interval_that_cannot_work_is_refused(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="seconds"):
        Every(seconds)


# ---- cron


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("*/5 * * * *", "2024-01-10T12:00:00", "2024-01-10T12:05:00"),
        ("*/5 * * * *", "2024-01-10T12:04:59.9", "2024-01-10T12:05:00"),
        ("30 2 * * mon-fri", "2024-01-12T02:30:00", "2024-01-15T02:30:00"),
        ("0 0 29 2 *", "2024-02-29T00:00:00", "2028-02-29T00:00:00"),
        ("0 9 L * *", "2024-02-01T00:00:00", "2024-02-29T09:00:00"),
        ("0 0 * 2 MON#5", "2024-01-01T00:00:00", "2044-02-29T00:00:00"),
    ],
)
def test_the_next_tick_of_a_line(line: str, after: str, expected: str) -> None:
    assert Cron(line).next_after(at(after)) == at(expected)


def test_a_line_is_read_in_its_time_zone() -> None:
    assert Cron("0 9 * * *", BERLIN).next_after(at("2024-07-01T00:00:00")) == at("2024-07-01T07:00:00")


def test_a_tick_in_the_hour_that_is_left_out_fires_once_at_its_end() -> None:
    night = at("2024-03-31T00:00:00", BERLIN), at("2024-03-31T23:00:00", BERLIN)
    assert shown(Cron("30 2 * * *", BERLIN).ticks(*night)) == ["03:00+0200"]
    assert shown(Cron("*/20 2 * * *", BERLIN).ticks(*night)) == ["03:00+0200"]
    assert shown(Cron("0,30 2,3 * * *", BERLIN).ticks(*night)) == ["03:00+0200", "03:30+0200"]


def test_a_tick_in_the_hour_that_comes_twice_fires_in_the_first() -> None:
    night = at("2024-10-27T00:00:00", BERLIN), at("2024-10-27T23:00:00", BERLIN)
    assert shown(Cron("30 2 * * *", BERLIN).ticks(*night)) == ["02:30+0200"]
    assert shown(Cron("*/30 2 * * *", BERLIN).ticks(*night)) == ["02:00+0200", "02:30+0200"]


@pytest.mark.parametrize("line", ["30 2 * * *", "*/5 2,3 * * *", "*/5 * * * *", "7 * * * *", "0 0 * * *"])
@pytest.mark.parametrize("day", ["2024-03-31", "2024-10-27"])
def test_no_tick_comes_again_or_is_lost_wherever_the_walk_begins(line: str, day: str) -> None:
    cron = Cron(line, BERLIN)
    start = at(f"{day}T00:00:00", BERLIN) - 1
    ticks = list(cron.ticks(start, start + 200_000))
    for offset in range(0, 4 * 3600, 97):
        instant = start + offset
        assert cron.next_after(instant) == next(tick for tick in ticks if tick > instant)


def test_a_line_for_every_hour_goes_by_real_time_when_the_clocks_change() -> None:
    cron = Cron("*/5 * * * *", BERLIN)
    for day in ("2024-03-31", "2024-10-27"):
        ticks = list(cron.ticks(start := at(f"{day}T00:00:00", BERLIN), start + 6 * 3600))
        assert ticks == [start + 300 * n for n in range(1, 73)]


def test_a_whole_day_that_a_country_left_out_fires_at_its_end() -> None:
    ticks = Cron("0 12 * * *", "Pacific/Apia").ticks(at("2011-12-29T20:00:00", "Pacific/Apia"), at("2011-12-31T12:00"))
    assert shown(ticks, "Pacific/Apia") == ["00:00+1400", "12:00+1400"]


@pytest.mark.parametrize(
    "line",
    [
        "*/0 * * * *",
        "61 * * * *",
        "* 24 * * *",
        "every five minutes or so",
        "* * * *",
        "* * * * * *",
        "0 0 1 1 * 9999",
        "0 0 1 1 9999",
        "0 0 30 2 *",
        "0 0 31 2,4,6 *",
        "0 0 */30 2 1#5,2#5",
        "",
        pytest.param("1," * 5_000_000 + "1 * * * *", id="ten million characters"),
        "5-1 * * * *",
        None,
        5,
    ],
)
def test_a_bad_line_is_refused_within_50_ms(line: Any) -> None:
    start_s = time.thread_time()  # its own work: others may keep the processor for longer than that
    with pytest.raises(ConfigError, match="line="):
        Cron(line)
    assert time.thread_time() - start_s < 0.05


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "", "Europe", None, 5])
def test_a_time_zone_that_is_not_there_is_refused(zone: Any) -> None:
    with pytest.raises(ConfigError, match="tz="):
        Cron("* * * * *", zone)


def test_the_calendar_ends_without_an_error() -> None:
    assert Cron("0 0 1 1 *").next_after(at("9999-06-01T00:00:00")) is None
    assert Cron("* * * * *").next_after(1e15) is None


def test_the_latest_tick_of_many_years_is_found_at_once() -> None:
    clock = SystemClock()
    start = clock.monotonic()
    assert Cron("* * * * *", BERLIN).latest(0.0, NOON + 59) == NOON
    assert Cron("0 0 29 2 *").latest(0.0, NOON) == at("2020-02-29T00:00:00")
    assert Cron("0 0 29 2 *").latest(at("2020-02-29T00:00:00"), NOON) is None
    assert clock.monotonic() - start < 1.0


# ---- what is due


def test_a_tick_is_due_at_its_instant_and_not_before() -> None:
    assert due(Every(60), NOON, NOON + 59.9) is None
    assert due(Every(60), NOON, NOON + 60) == Due(NOON + 60, NOON + 60)


def test_of_missed_ticks_the_latest_fires_once() -> None:
    assert due(Every(60), NOON, NOON + 7230, "once") == Due(NOON + 7200, NOON + 7200)


def test_missed_ticks_are_skipped_when_asked_for() -> None:
    every = Every(3600)
    late = NOON + 3600 + MISSED_AFTER_S
    assert due(every, NOON, late, "skip") == Due(NOON + 3600, None)
    assert due(every, NOON, late - 0.1, "skip") == Due(NOON + 3600, NOON + 3600)


def test_a_clock_that_went_back_waits_and_one_that_was_days_off_starts_anew() -> None:
    assert due(Every(60), NOON, NOON - 7200) is None
    assert due(Every(60), NOON, NOON - AHEAD_S) is None
    assert due(Every(60), NOON, NOON - AHEAD_S - 1) == Due(NOON - AHEAD_S - 1, None)


@given(st.lists(st.sampled_from([-7200.0, -61.0, -1.0, 0.5, 1.0, 30.0, 60.0, 7200.0]), max_size=60))
def test_no_tick_is_due_twice_however_the_clock_jumps(jumps: list[float]) -> None:
    now = last = NOON
    fired: list[float] = []
    for jump in jumps:
        now = max(now + jump, NOON - 40_000)
        if found := due(Every(60), last, now):
            last = found.last
            if found.tick is not None:
                fired.append(found.tick)
    assert fired == sorted(set(fired))


# ---- as people write it


def test_a_timing_may_be_written_in_several_ways() -> None:
    assert timing_of("*/5  *  * * *") == Cron("*/5 * * * *")
    assert timing_of(90) == timing_of(timedelta(seconds=90)) == Every(90.0)
    assert timing_of(Cron("0 0 * * sun", BERLIN)).text == "0 0 * * SUN Europe/Berlin"
    assert Every(90).text == "every 90 s"
    assert Every(90, anchor=7.5).text == "every 90 s from 7.5"
    wrongs: list[Any] = [None, b"* * * * *", [], True]
    for wrong in wrongs:
        with pytest.raises(ConfigError):
            timing_of(wrong)
