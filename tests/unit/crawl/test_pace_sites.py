"""The pace of a crawl against simulated sites, in virtual time."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Callable
from typing import Any

from holdfast.crawl.pace import Outcome, Pace, PaceSettings

Answer = tuple[Outcome, float, float | None]
"""What comes of a request, after so many seconds, and its Retry-After."""


def adaptive(**settings: Any) -> Pace:
    return Pace(PaceSettings(**{"per_domain": 32} | settings), 0.0)


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


def test_refusals_that_have_nothing_to_do_with_the_rate_do_not_stop_the_crawl() -> None:
    asked = [0]

    def site(now_s: float, _: int) -> Answer:
        asked[0] += 1
        return (Outcome.REFUSED, 0.05, 1.5) if asked[0] % 10 == 0 else (Outcome.OK, 0.05, None)

    crawl = Crawl(adaptive(), site)
    crawl.run(seconds=600.0)
    assert crawl.undercut == []
    resting_s = 600.0 * 1.5 / (1.5 + 9 * 0.05)
    assert crawl.good > 0.5 * 9 * resting_s / 1.5, "half of what one request at a time could get between the rests"


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
