"""One domain's clocks: what may start, what refusals do, and what is forgotten."""

from __future__ import annotations

import math
from typing import Any

import pytest

from holdfast.crawl.pace import HOPELESS_BURSTS, RESTS_S, Outcome, Pace, PaceSettings
from holdfast.errors import ConfigError
from holdfast.policy.limiter import Rate

DAY_S = 86_400.0


def paced(now_s: float = 0.0, **settings: Any) -> Pace:
    return Pace(PaceSettings(**{"per_domain": 4, "is_adaptive": False} | settings), now_s)


def end(pace: Pace, now_s: float, began_s: float, outcome: Outcome, retry_after_s: float | None = None) -> None:
    pace.ended(now_s, began_s=began_s, outcome=outcome, took_s=now_s - began_s, retry_after_s=retry_after_s)


def refuse(pace: Pace, now_s: float, retry_after_s: float | None = None, *, took_s: float = 0.1) -> None:
    """One request that begins now, and is refused."""
    pace.started(now_s)
    end(pace, now_s + took_s, now_s, Outcome.REFUSED, retry_after_s)


# ---- what may start


def test_a_new_domain_has_the_room_that_its_settings_foretell() -> None:
    for settings in (
        PaceSettings(per_domain=32),
        PaceSettings(per_domain=2),
        PaceSettings(per_domain=32, is_adaptive=False),
        PaceSettings(per_domain=32, is_adaptive=False, rate=Rate(5, 1.0)),
        PaceSettings(per_domain=32, is_adaptive=False, rate=Rate(5, 1.0, burst=3)),
        PaceSettings(per_domain=32, min_delay_s=1.0),
    ):
        assert Pace(settings, 7.0).room(7.0) == settings.first_room
    rooms = [
        PaceSettings(per_domain=most, is_adaptive=is_adaptive) for most in (2, 32) for is_adaptive in (True, False)
    ]
    assert [settings.first_room for settings in rooms] == [2, 2, 4, 32]


def test_only_a_request_that_ends_makes_room_where_all_places_are_taken() -> None:
    pace = paced()
    pace.started(0.0, 4)
    assert (pace.room(0.0), pace.opens_in_s(0.0), pace.in_flight) == (0, None, 4)
    end(pace, 1.0, 0.0, Outcome.OTHER)
    pace.released(1.0)
    assert (pace.room(1.0), pace.opens_in_s(1.0), pace.in_flight) == (2, None, 2)


def test_the_rate_bounds_starts_and_says_when_it_opens() -> None:
    pace = paced(rate=Rate(2, 1.0))
    assert pace.room(0.0) == 2
    pace.started(0.0, 2)
    for _ in range(2):
        end(pace, 0.25, 0.0, Outcome.OK)
    assert (pace.room(0.25), pace.opens_in_s(0.25)) == (0, 0.75)
    assert (pace.room(1.0), pace.opens_in_s(1.0)) == (2, None)


def test_a_min_delay_lets_one_start_at_a_time() -> None:
    pace = paced(min_delay_s=2.0)
    assert pace.room(0.0) == 1
    pace.started(0.0)
    assert (pace.room(1.5), pace.opens_in_s(1.5)) == (0, 0.5)
    assert pace.room(2.0) == 1
    pace.started(2.0)
    assert pace.in_flight == 2


def test_a_crawl_delay_keeps_starts_apart_and_one_in_flight() -> None:
    pace = paced()
    pace.crawl_delay(5)
    pace.started(0.0)
    assert (pace.room(6.0), pace.opens_in_s(6.0)) == (0, None)
    end(pace, 2.0, 0.0, Outcome.OK)
    assert (pace.room(4.0), pace.opens_in_s(4.0)) == (0, 1.0)
    assert (pace.room(5.0), pace.interval_s) == (1, 5.0)
    for nothing in (None, 0.0, -3.0, math.nan):
        pace.crawl_delay(5)
        pace.crawl_delay(nothing)
        assert (pace.room(4.0), pace.interval_s) == (4, 0.0)
    pace.crawl_delay(1e12)
    assert pace.interval_s == DAY_S


def test_the_clocks_run_side_by_side_and_none_is_lengthened_by_another() -> None:
    pace = paced(min_delay_s=2.0, rate=Rate(1, 40.0))
    pace.crawl_delay(10)
    refuse(pace, 0.0, 5)
    assert pace.opens_in_s(1.0) == 39.0  # the rate's, which is the longest; 5 s of rest are within it
    pace = paced(min_delay_s=2.0)
    pace.crawl_delay(10)
    refuse(pace, 0.0, 5)
    assert pace.room(5.1) == 0  # the rest is over, robots' delay is not
    assert pace.room(10.0) == 1
    pace = paced(min_delay_s=2.0)
    pace.crawl_delay(10)
    refuse(pace, 0.0, 50, took_s=1.0)
    assert pace.room(50.9) == 0
    assert pace.room(51.0) == 1


def test_waiting_for_as_long_as_it_says_is_never_too_short() -> None:
    for began_s in (0.1, 1 / 3, 12_345.678, 987_654.321, 1e9 / 7):
        for retry_after_s in (1.0, 1.1, 7 / 3, 3_600.7, DAY_S):
            pace = paced(began_s)
            refuse(pace, began_s, retry_after_s)
            ended_s = began_s + 0.1
            wait_s = pace.opens_in_s(ended_s)
            assert wait_s is not None
            assert ended_s + wait_s >= pace.held_until_s >= ended_s + retry_after_s
            assert pace.room(math.nextafter(pace.held_until_s, 0.0)) == 0
            assert pace.room(ended_s + wait_s) == 1
    for now_s, until_s in ((39.2, 208.4), (43.1, 112.3), (46.7, 180.4)):  # now + (until - now) is less than until
        pace = paced(now_s)
        pace.hold(until_s, "refused")
        assert pace.room(now_s + (pace.opens_in_s(now_s) or 0.0)) == 1


# ---- refusals


def test_a_refusal_rests_the_domain_for_as_long_as_it_asks() -> None:
    pace = paced()
    refuse(pace, 10.0, 90, took_s=1.0)
    assert (pace.held_until_s, pace.refusals, pace.why) == (101.0, 1, "Retry-After")
    assert (pace.room(100.999), pace.opens_in_s(100.0)) == (0, 1.0)
    assert pace.room(101.0) == 1


def test_a_refusal_that_says_no_time_rests_longer_burst_by_burst() -> None:
    pace, now_s = paced(), 0.0
    for rest_s in (*RESTS_S, RESTS_S[-1]):
        refuse(pace, now_s)
        assert (pace.held_until_s, pace.why) == (now_s + 0.1 + rest_s, "refused")
        now_s = pace.held_until_s
    assert RESTS_S == (30.0, 60.0, 120.0, 240.0, 300.0)


def test_a_burst_of_refusals_counts_once_and_the_longest_rest_holds() -> None:
    pace = paced()
    pace.started(0.0, 4)
    end(pace, 1.0, 0.0, Outcome.REFUSED)
    end(pace, 2.0, 0.0, Outcome.REFUSED)
    assert (pace.held_until_s, pace.refusals) == (31.0, 1)
    end(pace, 3.0, 0.0, Outcome.REFUSED, 10.0)
    assert pace.held_until_s == 31.0
    end(pace, 4.0, 0.0, Outcome.REFUSED, 60.0)
    assert (pace.held_until_s, pace.refusals) == (64.0, 1)


def test_a_straggler_that_is_refused_after_the_rest_does_not_count_again() -> None:
    pace = paced()
    pace.started(0.0, 2)
    end(pace, 1.0, 0.0, Outcome.REFUSED, 5.0)
    end(pace, 7.0, 0.0, Outcome.REFUSED)
    assert (pace.refusals, pace.room(7.0)) == (1, 1)
    pace.started(7.0)
    end(pace, 8.0, 7.0, Outcome.REFUSED)
    assert (pace.refusals, pace.held_until_s) == (2, 68.0)


def test_a_rest_is_a_second_at_least_and_a_day_at_most() -> None:
    for asked_s, rest_s in ((0.0, 1.0), (-5.0, 1.0), (1e12, DAY_S), (math.nan, 30.0)):
        pace = paced()
        refuse(pace, 0.0, asked_s, took_s=0.5)
        assert pace.held_until_s == 0.5 + rest_s


def test_one_request_probes_after_a_rest_and_a_good_answer_opens_the_domain() -> None:
    for good in (Outcome.OK, Outcome.OTHER):
        pace = paced()
        refuse(pace, 0.0, 5)
        assert pace.room(6.0) == 1
        pace.started(6.0)
        assert (pace.room(6.0), pace.opens_in_s(6.0)) == (0, None)
        end(pace, 7.0, 6.0, Outcome.FAILED)
        assert (pace.room(7.0), pace.refusals) == (1, 1)
        pace.started(7.0)
        end(pace, 8.0, 7.0, good)
        assert (pace.room(8.0), pace.refusals, pace.why) == (4, 0, "")


def test_a_good_answer_to_what_began_before_the_rest_does_not_end_the_probing() -> None:
    pace = paced()
    pace.started(0.0, 2)
    end(pace, 1.0, 0.0, Outcome.REFUSED, 5.0)
    end(pace, 6.5, 0.0, Outcome.OK)
    assert (pace.room(7.0), pace.refusals) == (1, 1)


def test_a_probe_that_is_released_leaves_its_place_to_another() -> None:
    pace = paced()
    refuse(pace, 0.0, 5)
    pace.started(6.0)
    pace.released(6.0)
    assert pace.room(6.0) == 1


def test_a_domain_is_hopeless_after_ten_bursts_in_a_row_and_not_after_a_good_answer() -> None:
    pace, now_s = paced(), 0.0
    for burst in range(1, HOPELESS_BURSTS + 1):
        assert not pace.is_hopeless
        refuse(pace, now_s, 1.0)
        assert pace.refusals == burst
        now_s = pace.held_until_s
    assert pace.is_hopeless
    pace.started(now_s)
    end(pace, now_s + 1, now_s, Outcome.OTHER)
    assert not pace.is_hopeless


def test_a_rest_that_was_remembered_holds_and_opens_with_a_probe() -> None:
    pace = paced(100.0)
    pace.hold(150.0, "Retry-After", refusals=HOPELESS_BURSTS - 1)
    assert (pace.room(149.9), pace.opens_in_s(149.0), pace.why) == (0, 1.0, "Retry-After")
    assert (pace.room(150.0), pace.is_hopeless) == (1, False)
    pace.hold(120.0, "refused")
    assert (pace.held_until_s, pace.why, pace.refusals) == (150.0, "Retry-After", HOPELESS_BURSTS - 1)
    refuse(pace, 150.0)
    assert pace.is_hopeless


# ---- the rest


def test_an_end_that_is_told_twice_makes_no_places_up() -> None:
    pace = paced()
    pace.started(0.0)
    for _ in range(3):
        end(pace, 1.0, 0.0, Outcome.OK)
        pace.released(1.0)
    assert (pace.in_flight, pace.room(1.0)) == (0, 4)


def test_a_domain_is_idle_when_no_clock_of_it_runs() -> None:
    assert paced().is_idle(0.0)
    pace = paced(rate=Rate(2, 30.0), min_delay_s=10.0)
    pace.started(0.0)
    assert not pace.is_idle(1_000.0)
    end(pace, 1.0, 0.0, Outcome.OK)
    assert [pace.is_idle(now_s) for now_s in (9.0, 29.0, 30.0)] == [False, False, True]
    pace = paced(min_delay_s=10.0)
    pace.started(0.0)
    pace.released(0.0)
    assert [pace.is_idle(now_s) for now_s in (9.9, 10.0)] == [False, True]


def test_what_was_learnt_is_kept_for_five_minutes_of_quiet() -> None:
    pace = paced()
    refuse(pace, 0.0, 100.0, took_s=1.0)
    assert [pace.is_idle(now_s) for now_s in (102.0, 400.0, 401.0)] == [False, False, True]
    pace = paced(is_adaptive=True)
    pace.started(0.0)
    end(pace, 50.0, 0.0, Outcome.FAILED)
    assert [pace.is_idle(now_s) for now_s in (50.0, 349.0, 350.0)] == [False, False, True]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"per_domain": 0}, "per_domain=0"),
        ({"rate": "2/second"}, "rate='2/second'"),
        ({"min_delay_s": -1.0}, "min_delay_s=-1.0"),
        ({"is_adaptive": 1}, "is_adaptive=1"),
        ({"slow_s": math.inf}, "slow_s=inf"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}: must be ") as refused:
        paced(**settings)
    assert "\n" not in str(refused.value)
