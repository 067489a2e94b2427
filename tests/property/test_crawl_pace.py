"""A domain's pace against a checker that keeps every start and every rest, in virtual time."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from holdfast.crawl.pace import HOPELESS_BURSTS, Outcome, Pace, PaceSettings
from holdfast.policy.limiter import Rate

LONGEST_REST_S = 400.0
GOOD = (Outcome.OK, Outcome.OTHER)

# Multiples of 1/1024 s, so that no rounding is in the way of the checker.
lengths = st.one_of(st.integers(0, 512), st.integers(0, 64 * 1024)).map(lambda part: part / 1024)
rates = st.builds(lambda calls, window: Rate(calls, window / 4), st.integers(1, 6), st.integers(1, 40))
settings = st.builds(
    PaceSettings,
    per_domain=st.integers(1, 8),
    rate=st.none() | rates,
    min_delay_s=st.sampled_from([0.0, 0.0, 0.5, 3.0]),
    is_adaptive=st.booleans(),
)
rests = st.none() | st.integers(0, int(LONGEST_REST_S) * 4).map(lambda part: part / 4)
ends = st.tuples(st.just("end"), st.integers(0, 7), st.sampled_from(list(Outcome)), rests)
steps = st.one_of(
    st.tuples(st.just("start"), st.integers(1, 8)),
    ends,
    ends,
    st.tuples(st.just("open")),
    st.tuples(st.just("delay"), st.sampled_from([None, 0.0, 1.5, 20.0])),
    st.tuples(st.just("hold"), st.integers(1, 300)),
    st.tuples(st.just("release")),
)
stories = st.integers(1, 60).flatmap(lambda size: st.lists(st.tuples(lengths, steps), min_size=size, max_size=size))


class Checker:
    """Does what a story says to a pace, and works out from all that ever happened what may be."""

    def __init__(self, settings: PaceSettings) -> None:
        self.settings = settings
        self.now_s = 1_000.0
        self.pace = Pace(settings, self.now_s)
        self.starts: list[float] = []
        self.flying: list[tuple[int, float]] = []
        """Number and instant of what has begun and not ended."""
        self.crawl_delay_s = 0.0
        self.rest_until_s = 0.0
        self.rested_at = 0
        """The number of the first request that could begin after the latest rest was set."""
        self.bursts = 0
        self.is_probing = False

    def do(self, name: str, *args: object) -> None:
        getattr(self, name)(*args)
        pace = self.pace
        assert pace.in_flight == len(self.flying)
        assert 0 <= pace.room(self.now_s) <= self.settings.per_domain - len(self.flying)
        assert pace.refusals == self.bursts
        assert pace.is_hopeless == (self.bursts >= HOPELESS_BURSTS)
        assert 1.0 <= pace.limit <= self.settings.per_domain

    def start(self, most: int) -> None:
        count = min(self.pace.room(self.now_s), most)
        if count == 0:
            return
        self.pace.started(self.now_s, count)
        for _ in range(count):
            self.begin()

    def begin(self) -> None:
        """One more request begins: is that right?"""
        assert len(self.flying) < self.settings.per_domain
        assert self.now_s >= self.rest_until_s
        assert not self.is_probing or not self.flying
        assert self.crawl_delay_s == 0.0 or not self.flying
        if self.starts:
            assert self.now_s - self.starts[-1] >= max(self.settings.min_delay_s, self.crawl_delay_s)
        if (rate := self.settings.rate) is not None:
            assert sum(start > self.now_s - rate.time_window for start in self.starts) < rate.max_calls
        self.flying.append((len(self.starts), self.now_s))
        self.starts.append(self.now_s)

    def end(self, which: int, outcome: Outcome, retry_after_s: float | None) -> None:
        if not self.flying:
            return
        number, began_s = self.flying.pop(which % len(self.flying))
        self.pace.ended(
            self.now_s,
            began_s=began_s,
            outcome=outcome,
            took_s=self.now_s - began_s,
            retry_after_s=retry_after_s if outcome is Outcome.REFUSED else None,
        )
        is_after_rest = number >= self.rested_at
        if outcome in GOOD and is_after_rest:
            self.bursts, self.is_probing = 0, False
        if outcome is Outcome.REFUSED:
            self.bursts += is_after_rest
            if retry_after_s is not None:
                self.rest(self.now_s + max(retry_after_s, 1.0))
            elif is_after_rest:
                self.rest(self.now_s + (30, 60, 120, 240, 300)[min(self.bursts, 5) - 1])
            assert self.pace.held_until_s == self.rest_until_s

    def rest(self, until_s: float) -> None:
        self.is_probing = True
        if until_s > self.rest_until_s:
            self.rest_until_s, self.rested_at = until_s, len(self.starts)

    def open(self) -> None:
        """Wait for as long as the pace says: not a moment less, and no more."""
        wait_s = self.pace.opens_in_s(self.now_s)
        if wait_s is None:
            return
        assert self.pace.room(self.now_s) == 0
        assert wait_s <= LONGEST_REST_S
        self.now_s += wait_s / 2
        assert self.pace.room(self.now_s) == 0
        self.now_s += wait_s / 2
        assert self.pace.room(self.now_s) > 0
        assert self.pace.opens_in_s(self.now_s) is None

    def delay(self, seconds: float | None) -> None:
        self.pace.crawl_delay(seconds)
        self.crawl_delay_s = seconds or 0.0

    def hold(self, seconds: int) -> None:
        self.pace.hold(self.now_s + seconds, "remembered")
        self.rest(self.now_s + seconds)

    def release(self) -> None:
        self.pace.released(self.now_s)
        if self.flying:
            self.flying.pop()


def told(settings: PaceSettings, story: list[tuple[float, tuple[str, object]]]) -> Checker:
    checker = Checker(settings)
    for gap_s, (name, *args) in story:
        checker.now_s += gap_s
        checker.do(name, *args)
    return checker


@given(settings, stories)
def test_nothing_starts_that_any_clock_forbids(
    settings: PaceSettings, story: list[tuple[float, tuple[str, object]]]
) -> None:
    told(settings, story)


@given(settings, stories)
def test_whatever_happened_the_domain_opens_again_once_the_site_is_well(
    settings: PaceSettings, story: list[tuple[float, tuple[str, object]]]
) -> None:
    checker = told(settings, story)
    while checker.flying:
        checker.do("end", 0, Outcome.OK, None)
    begun = len(checker.starts)
    for _ in range(12):
        checker.do("open")
        checker.do("start", 1)
        checker.now_s += 1 / 8
        checker.do("end", 0, Outcome.OK, None)
    assert len(checker.starts) == begun + 12
    assert not checker.pace.refusals
    waited_s = checker.pace.opens_in_s(checker.now_s) or 0.0
    window_s = 0.0 if settings.rate is None else settings.rate.time_window
    assert waited_s <= max(60.0, settings.min_delay_s, checker.crawl_delay_s, window_s)


@given(
    st.integers(1, 16),
    st.permutations(range(16)),
    st.lists(st.tuples(lengths, st.booleans(), rests), min_size=16, max_size=16),
    st.booleans(),
)
def test_a_burst_of_refusals_counts_once_and_cuts_the_limit_once(
    size: int, order: list[int], refusals: list[tuple[float, bool, float | None]], is_adaptive: bool
) -> None:
    pace = Pace(PaceSettings(per_domain=16, is_adaptive=is_adaptive), 0.0)
    begun = [which / 64 for which in range(size)]
    for began_s in begun:
        pace.started(began_s)
    now_s, until_s = 1.0, -math.inf
    for which, (gap_s, is_refused, rest_s) in zip((one for one in order if one < size), refusals, strict=False):
        now_s += gap_s
        outcome = Outcome.REFUSED if is_refused else Outcome.OTHER
        pace.ended(now_s, began_s=begun[which], outcome=outcome, took_s=0.1, retry_after_s=rest_s)
        if is_refused and rest_s is not None:
            until_s = max(until_s, now_s + rest_s)
    assert pace.refusals == any(is_refused for _, is_refused, _ in refusals[:size])
    assert pace.held_until_s >= until_s
    assert pace.limit >= (2.0 if is_adaptive else 16.0)
