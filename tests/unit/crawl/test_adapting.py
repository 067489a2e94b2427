"""Limit and interval follow the answers of a site: by single answers, and against simulated sites."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable
from typing import Any

from holdfast.crawl.adapting import Tempo
from holdfast.crawl.pace import Outcome, Pace, PaceSettings

Answer = tuple[Outcome, float, float | None]
"""What comes of a request, after so many seconds, and its Retry-After."""


def adaptive(**settings: Any) -> Pace:
    return Pace(PaceSettings(**{"per_domain": 32} | settings), 0.0)


def answer(pace: Pace, now_s: float, began_s: float, took_s: float, outcome: Outcome = Outcome.OK) -> None:
    pace.ended(now_s, began_s=began_s, outcome=outcome, took_s=took_s, retry_after_s=None)


class Crawl:
    """Asks a site as fast as the pace allows, in virtual time, and keeps what it saw."""

    def __init__(self, pace: Pace, site: Callable[[float, int], Answer]) -> None:
        self.pace = pace
        self.site = site
        self.now_s = 0.0
        self.starts: list[float] = []
        self.undercut: list[float] = []
        """Starts within a rest that was asked for."""
        self.good = 0
        self.refused = 0
        self._rest_until_s = 0.0
        self._ends: list[tuple[float, int, float, Outcome, float | None]] = []

    def run(self, *, seconds: float = 1e6, requests: int = 1_000_000) -> None:
        until_s, most = self.now_s + seconds, len(self.starts) + requests
        while self.now_s < until_s and len(self.starts) < most:
            for _ in range(min(self.pace.room(self.now_s), most - len(self.starts))):
                self._start()
            wait_s = self.pace.opens_in_s(self.now_s)
            assert wait_s is not None or self._ends
            opens_s = until_s if wait_s is None else self.now_s + wait_s
            if not self._ends or opens_s < self._ends[0][0]:
                self.now_s = opens_s
            else:
                self._end()

    def _start(self) -> None:
        self.pace.started(self.now_s)
        self.starts.append(self.now_s)
        if self.now_s < self._rest_until_s:
            self.undercut.append(self.now_s)
        outcome, took_s, retry_after_s = self.site(self.now_s, self.pace.in_flight)
        heapq.heappush(self._ends, (self.now_s + took_s, len(self.starts), self.now_s, outcome, retry_after_s))

    def _end(self) -> None:
        self.now_s, _, began_s, outcome, retry_after_s = heapq.heappop(self._ends)
        took_s = self.now_s - began_s
        self.pace.ended(self.now_s, began_s=began_s, outcome=outcome, took_s=took_s, retry_after_s=retry_after_s)
        self.good += outcome is Outcome.OK
        self.refused += outcome is Outcome.REFUSED
        if retry_after_s is not None:
            self._rest_until_s = max(self._rest_until_s, self.now_s + retry_after_s)


def hash_of(number: int) -> int:
    """Looks like chance, and is the same in every run."""
    return zlib.crc32(number.to_bytes(8, "big"))


def good(tempo: Tempo) -> bool:
    return tempo.answered(9.0, 9.0, 0.1, 99, is_timed=True)


def answers_until(tempo: Tempo, is_so: Callable[[], bool]) -> int:
    for count in range(1, 5_000):
        good(tempo)
        if is_so():
            return count
    raise AssertionError("never")


# ---- single answers


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


# ---- sites


def test_a_quick_site_is_asked_all_at_once_within_a_few_hundred_requests_and_stays_so() -> None:
    crawl = Crawl(adaptive(), lambda now_s, _: (Outcome.OK, 0.001 + (now_s * 7_919) % 0.049, None))
    crawl.run(requests=300)
    assert crawl.pace.limit == 32.0
    for _ in range(50):
        crawl.run(requests=100)
        assert (crawl.pace.limit, crawl.pace.interval_s) == (32.0, 0.0)


def test_a_site_with_some_pages_that_fail_is_still_crawled_by_several_at_once() -> None:
    count = iter(range(10**9))
    crawl = Crawl(adaptive(), lambda *_: (Outcome.FAILED if next(count) % 50 == 0 else Outcome.OK, 0.1, None))
    crawl.run(seconds=200.0)
    assert crawl.good > 200.0 / 0.1 * 5


def test_a_site_that_fails_altogether_is_asked_once_a_minute_and_soon_all_again_when_it_is_back() -> None:
    crawl = Crawl(adaptive(), lambda now_s, _: (Outcome.FAILED if now_s < 3_600 else Outcome.OK, 0.05, None))
    crawl.run(seconds=3_600.0)
    assert len(crawl.starts) < 80
    assert crawl.pace.interval_s == 60.0
    crawl.run(seconds=240.0)
    assert crawl.pace.limit > 16


def test_a_site_that_refuses_what_is_over_its_capacity_is_found_out_and_never_asked_too_early() -> None:
    capacity = [8]

    def site(now_s: float, in_flight: int) -> Answer:
        return (Outcome.OK, 0.2, None) if in_flight <= capacity[0] else (Outcome.REFUSED, 0.01, 30.0)

    crawl = Crawl(adaptive(), site)
    crawl.run(seconds=600.0)
    assert crawl.refused > 0
    good, refused = crawl.good, crawl.refused
    crawl.run(seconds=900.0)
    assert crawl.undercut == []
    assert 1 <= crawl.refused - refused < (crawl.good - good) / 1_000  # it tries for more, but ever more rarely
    assert crawl.good - good > 0.6 * 900 * 8 / 0.2
    capacity[0] = 64
    crawl.run(requests=20_000)
    assert crawl.pace.limit == 32.0


def test_a_site_that_refuses_more_than_one_request_a_second_is_asked_at_about_that_rate() -> None:
    last = [-9.0]

    def site(now_s: float, _: int) -> Answer:
        is_early, last[0] = now_s < last[0] + 1.0, now_s
        return (Outcome.REFUSED, 0.05, 20.0) if is_early else (Outcome.OK, 0.05, None)

    crawl = Crawl(adaptive(), site)
    crawl.run(seconds=600.0)
    good = crawl.good
    crawl.run(seconds=3_600.0)
    assert crawl.undercut == []
    assert crawl.good - good > 0.7 * 3_600


def test_a_tiny_site_is_treated_alike() -> None:
    crawl = Crawl(adaptive(), lambda now_s, _: (Outcome.REFUSED, 0.1, 7.0) if now_s < 7 else (Outcome.OK, 0.1, None))
    crawl.run(requests=1)
    crawl.run(requests=1)
    assert crawl.starts[1] >= 7.1
    assert crawl.undercut == []


def test_the_limit_comes_down_where_load_makes_a_site_slow_and_creeps_up_when_it_is_quick_again() -> None:
    capacity = [4]

    def site(now_s: float, in_flight: int) -> Answer:
        return Outcome.OK, 0.2 * max(1.0, in_flight / capacity[0]), None

    crawl = Crawl(adaptive(), site)
    limits = list[float]()
    for _ in range(100):
        crawl.run(requests=100)
        limits.append(crawl.pace.limit)
    assert max(limits[5:]) < 16  # four at once take the usual time; twelve take three times as long
    assert min(limits[5:]) > 4
    capacity[0] = 64
    crawl.run(requests=1_000)
    assert crawl.pace.limit == 32.0


def test_a_site_that_becomes_slow_for_good_is_asked_by_several_again() -> None:
    crawl = Crawl(adaptive(per_domain=8), lambda now_s, _: (Outcome.OK, 0.2 if now_s < 60 else 3.0, None))
    crawl.run(seconds=60.0)
    assert crawl.pace.limit == 8.0
    crawl.run(seconds=30.0)
    assert crawl.pace.limit < 4
    crawl.run(seconds=600.0)
    assert crawl.pace.limit == 8.0


def test_one_request_at_a_time_is_not_spaced_because_the_site_is_slow() -> None:
    crawl = Crawl(adaptive(per_domain=1), lambda now_s, _: (Outcome.OK, 0.2 if now_s < 60 else 3.0, None))
    for _ in range(100):
        crawl.run(seconds=1.0)
        assert crawl.pace.interval_s == 0.0


def test_pages_that_are_not_there_do_not_make_the_others_look_slow() -> None:
    crawl = Crawl(
        adaptive(per_domain=8),
        lambda now_s, _: (Outcome.OTHER, 0.01, None) if now_s < 10 else (Outcome.OK, 1.0, None),
    )
    crawl.run(seconds=10.0)
    for _ in range(20):
        crawl.run(seconds=1.0)
        assert crawl.pace.limit == 8.0


def test_a_site_of_quick_and_slow_pages_is_not_taken_for_one_in_trouble() -> None:
    count = iter(range(10**9))
    crawl = Crawl(adaptive(per_domain=8), lambda *_: (Outcome.OK, 1.0 if hash_of(next(count)) % 10 < 3 else 0.05, None))
    crawl.run(requests=500)
    limits = list[float]()
    for _ in range(50):
        crawl.run(requests=50)
        limits.append(crawl.pace.limit)
    assert sum(limits) / len(limits) > 6
