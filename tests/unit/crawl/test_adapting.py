"""Limit and interval follow the answers of a site, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.crawl.adapting import Tempo
from holdfast.crawl.pace import Outcome, Pace, PaceSettings


def adaptive(**settings: Any) -> Pace:
    return Pace(PaceSettings(**{"per_domain": 32} | settings), 0.0)


def answer(pace: Pace, now_s: float, began_s: float, took_s: float, outcome: Outcome = Outcome.OK) -> None:
    pace.ended(now_s, began_s=began_s, outcome=outcome, took_s=took_s, retry_after_s=None)


def good(tempo: Tempo) -> bool:
    return tempo.answered(9.0, 9.0, 0.1, 99, is_timed=True)


def answers_until(tempo: Tempo, is_so: Callable[[], bool]) -> int:
    for count in range(1, 5_000):
        good(tempo)
        if is_so():
            return count
    raise AssertionError("never")


def test_the_limit_grows_by_about_one_per_limit_of_good_answers_once_there_was_trouble() -> None:
    pace = adaptive()
    pace.started(0.0, 8)
    answer(pace, 1.0, 0.0, 1.0, Outcome.FAILED)
    assert pace.limit == 2.0
    grown = list[float]()
    for _ in range(5):
        answer(pace, 2.0, 2.0, 0.1)
        grown.append(pace.limit)
    assert grown[:2] == [2.5, 2.9]
    assert 3.8 < grown[4] < 4.0


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    pace = adaptive()
    for second in range(100):
        pace.started(float(second))
        answer(pace, second + 0.1, float(second), 0.1)
    assert pace.limit == 4.0


def test_requests_of_one_round_trip_cut_the_limit_once() -> None:
    pace = adaptive(per_domain=4)
    pace.started(0.0, 4)
    for _ in range(3):
        answer(pace, 1.0, 0.0, 1.0, Outcome.FAILED)
    assert (pace.limit, pace.interval_s) == (2.0, 0.0)
    pace.started(2.0)
    answer(pace, 3.0, 2.0, 1.0, Outcome.FAILED)
    assert (pace.limit, pace.interval_s) == (1.0, 0.0)


def test_below_a_limit_of_one_failures_space_requests_and_good_answers_bring_them_together() -> None:
    pace, intervals, now_s = adaptive(per_domain=1), list[float](), 0.0
    for _ in range(10):
        pace.started(now_s)
        answer(pace, now_s + 1, now_s, 1.0, Outcome.FAILED)
        intervals.append(pace.interval_s)
        assert pace.opens_in_s(now_s + 1) == (pace.interval_s - 1 if pace.interval_s > 1 else None)
        now_s += 61.0
    assert intervals == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    for left_s in (30.0, 15.0, 7.5, 3.75, 1.875, 0.9375, 0.46875, 0.234375, 0.0):
        pace.started(now_s)
        answer(pace, now_s + 1, now_s, 1.0)
        assert pace.interval_s == left_s
        now_s += 61.0


def test_a_refusal_halves_the_limit_and_a_refused_probe_does_not() -> None:
    pace = adaptive()
    pace.started(0.0, 4)
    for _ in range(4):
        pace.ended(1.0, began_s=0.0, outcome=Outcome.REFUSED, took_s=1.0, retry_after_s=9.0)
    assert (pace.limit, pace.room(10.0)) == (2.0, 1)
    for now_s in (10.0, 20.0, 30.0):
        pace.started(now_s)
        pace.ended(now_s + 1, began_s=now_s, outcome=Outcome.REFUSED, took_s=1.0, retry_after_s=9.0)
    assert (pace.limit, pace.interval_s) == (2.0, 0.0)
    pace.started(40.0)
    answer(pace, 41.0, 40.0, 1.0)
    assert pace.room(41.0) == 2


def test_one_slow_page_among_quick_ones_changes_nothing() -> None:
    pace = adaptive(per_domain=4)
    for second in range(50):
        pace.started(float(second), 4)
        for page in range(4):
            answer(pace, second + 0.1, float(second), 60.0 if (second, page) == (25, 0) else 0.1)
            assert pace.limit == 4.0


def test_a_quick_answer_from_a_slow_site_is_not_slow() -> None:
    pace = adaptive(per_domain=4)
    pace.started(0.0, 200)
    for _ in range(50):
        answer(pace, 1.0, 0.0, 0.1)
    for _ in range(50):
        answer(pace, 1.0, 0.0, 2.0)
    slowed = pace.limit
    assert slowed == 4.0 * 0.7
    answer(pace, 2.0, 1.5, 0.1, Outcome.OTHER)
    assert pace.limit > slowed


def test_a_refused_limit_is_soon_neared_and_then_tried_again_ever_more_rarely() -> None:
    tempo = Tempo(16, 0.5)
    while tempo.limit < 8.0:
        assert good(tempo)
    tempo.refused(1.0, 0.0)
    trials = list[int]()
    for trial in (2.0, 4.0, 6.0):
        assert int(tempo.limit) == 4
        for _ in range(25):
            good(tempo)
        assert 7.0 <= tempo.limit < 7.1
        trials.append(answers_until(tempo, lambda: tempo.limit >= 8.0))
        tempo.refused(trial + 1, trial)
        assert not tempo.is_as_new
    assert [32 * 7 < trial / times < 32 * 8 for trial, times in zip(trials, (1, 2, 4), strict=True)] == [True] * 3
    answers_until(tempo, lambda: tempo.limit >= 9.0)
    assert tempo.is_as_new  # it takes what it refused, so the rest comes quickly
    assert answers_until(tempo, lambda: tempo.limit == 16.0) < 100


def test_where_all_at_once_was_refused_the_limit_still_ends_at_all() -> None:
    tempo = Tempo(4, 0.5)
    for second in range(2):
        tempo.refused(second + 0.5, float(second))
        answers_until(tempo, lambda: tempo.limit >= 4.0)
        assert tempo.limit == 4.0


def test_a_refused_interval_is_tried_again_ever_more_rarely() -> None:
    tempo = Tempo(1, 0.5)
    tempo.refused(1.0, 0.0)
    assert (tempo.interval_s, tempo.is_as_new) == (0.25, False)
    assert answers_until(tempo, lambda: tempo.interval_s == 0.0) == 32
    assert not tempo.is_as_new
    for _ in range(20):
        good(tempo)
    tempo.refused(3.0, 2.0)
    assert tempo.interval_s == 0.25
    assert answers_until(tempo, lambda: tempo.interval_s == 0.0) == 64
    assert answers_until(tempo, lambda: tempo.is_as_new) == 64
    tempo.failed(5.0, 4.0)
    assert (tempo.interval_s, tempo.is_as_new) == (0.25, False)
    assert answers_until(tempo, lambda: tempo.interval_s == 0.0) == 1


def test_going_down_step_by_step_is_no_trying_again() -> None:
    tempo = Tempo(4, 0.5)
    for second in range(6):  # 4, 2, 1, 0.25 s, 0.5 s, 1 s
        tempo.refused(second + 0.5, float(second))
    assert (tempo.limit, tempo.interval_s) == (1.0, 2.0)
    assert answers_until(tempo, lambda: tempo.interval_s == 1.0) == 32
