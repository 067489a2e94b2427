"""Limiter and budget against checkers that keep every start and every retry."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.policy.budget import BudgetConfig, earned, spent
from holdfast.policy.limiter import Rate, Starts

# Everything is a multiple of 1/1024 s, and the pace too: no rounding is in the way.
gaps = st.one_of(st.integers(0, 64), st.integers(0, 8192)).map(lambda part: part / 1024)
crowds = st.integers(0, 25).flatmap(
    lambda size: st.lists(st.tuples(gaps, st.integers(1, 32), st.booleans()), min_size=size, max_size=size)
)
"""Some callers at once after each gap, who either wait their turn or go away."""


@st.composite
def rates(draw: st.DrawFn) -> Rate:
    max_calls = 2 ** draw(st.integers(0, 7))  # above 64, starts share entries
    burst = draw(st.sampled_from([max_calls, 1, max(1, max_calls // 2), max(1, max_calls - 1)]))
    return Rate(max_calls, max_calls * 2 ** draw(st.integers(0, 4)) / 64, burst=burst)


class EveryStart:
    """All starts there ever were; what may be is worked out from them."""

    def __init__(self, rate: Rate, starts: list[float] | None = None) -> None:
        self.rate = rate
        self.starts = starts or []

    def fits(self, instant: float) -> bool:
        window = sum(1 for start in self.starts if start > instant - self.rate.time_window)
        return window < self.rate.max_calls and self._even(instant) <= instant

    def first_fit(self, now: float) -> float:
        leaving = [start + self.rate.time_window for start in self.starts]
        return next(
            instant for instant in sorted([now, self._even(now), *leaving]) if instant >= now and self.fits(instant)
        )

    def _even(self, now: float) -> float:
        """When the pace allows the next one: a burst may be ahead of the even spread, and no more."""
        if self.rate.burst == self.rate.max_calls:
            return now
        gap, even = self.rate.time_window / self.rate.max_calls, float("-inf")
        for start in self.starts:
            even = max(even, start) + gap
        return even - (self.rate.burst - 1) * gap

    def after(self, ahead: int, now: float) -> float:
        """When the next one starts if so many others start before it, each as soon as it can."""
        copy, instant = EveryStart(self.rate, [*self.starts]), now
        for _ in range(ahead + 1):
            instant = copy.first_fit(instant)
            copy.starts.append(instant)
        return instant


def most_in_any_window(starts: list[float], length: float) -> int:
    return max((sum(1 for other in starts if start <= other < start + length) for start in starts), default=0)


@given(rates(), crowds)
def test_never_more_than_max_calls_start_in_any_window_and_waits_are_exact(
    rate: Rate, steps: list[tuple[float, int, bool]]
) -> None:
    starts, every, now = Starts(), EveryStart(rate), 0.0
    shared = rate.time_window / 64 if rate.max_calls > 64 else 0.0
    for gap, callers, is_patient in steps:
        now += gap
        for _ in range(callers):
            wait, exact = starts.wait(rate, now), every.first_fit(now) - now
            assert exact <= wait <= exact + shared
            if wait > 0.0 and is_patient:
                assert starts.wait(rate, now + wait / 2) > 0.0
                now += wait
                wait = starts.wait(rate, now)
                assert wait == 0.0
            if wait == 0.0:
                starts.add(rate, now)
                every.starts.append(now)
    assert most_in_any_window(every.starts, rate.time_window) <= rate.max_calls


@given(rates(), crowds)
def test_taking_a_start_is_asking_and_then_starting(rate: Rate, steps: list[tuple[float, int, bool]]) -> None:
    taking, asking, now = Starts(), Starts(), 0.0
    for gap, callers, has_others_ahead in steps:
        now += gap
        for ahead in range(callers):
            wait = asking.wait(rate, now, ahead * has_others_ahead)
            if wait == 0.0:
                asking.add(rate, now)
            assert taking.take(rate, now, ahead * has_others_ahead) == wait
    assert taking.is_idle(rate, now) == asking.is_idle(rate, now)
    assert (taking.count, taking.entries, taking.next_even) == (asking.count, asking.entries, asking.next_even)


@given(
    st.integers(65, 130),
    st.lists(st.tuples(st.integers(0, 24) | st.integers(990, 1030), st.integers(1, 90)), min_size=8, max_size=24),
)
def test_never_more_than_max_calls_start_in_any_window_where_starts_share_entries(
    max_calls: int, steps: list[tuple[int, int]]
) -> None:
    rate, starts, every, now = Rate(max_calls, 1.0), Starts(), list[float](), 0.0
    for gap, callers in steps:  # in parts of 1024: an entry spans 16, and a window later its calls leave
        now += gap / 1024
        for _ in range(callers):
            if starts.take(rate, now) == 0.0:
                every.append(now)
    assert most_in_any_window(every, 1.0) <= max_calls
    assert len(starts.entries) <= 66


def crowded(rate: Rate, steps: list[tuple[float, int, bool]]) -> tuple[Starts, EveryStart, float]:
    """Let crowds come and take what starts there are, and say what the time is when the last have come."""
    starts, every, now = Starts(), EveryStart(rate), 0.0
    for gap, callers, _ in steps:
        now += gap
        for _ in range(callers):
            if starts.wait(rate, now) == 0.0:
                starts.add(rate, now)
                every.starts.append(now)
    return starts, every, now


@given(rates(), crowds, gaps, st.integers(0, 200))
def test_a_newcomer_waits_for_those_ahead_exactly_or_at_most_too_short(
    rate: Rate, steps: list[tuple[float, int, bool]], rest: float, ahead: int
) -> None:
    starts, every, now = crowded(rate, steps)
    now += rest
    wait, exact = starts.wait(rate, now, ahead), every.after(ahead, now) - now
    if rate.max_calls > 64:
        assert wait <= exact + rate.time_window / 64
    elif rate.burst == rate.max_calls:
        assert wait == exact
    else:  # limit and pace are looked at apart; the caller asks again when it wakes
        assert wait <= exact


@given(rates(), crowds, gaps)
def test_it_is_idle_only_when_it_is_as_good_as_new(
    rate: Rate, steps: list[tuple[float, int, bool]], rest: float
) -> None:
    starts, _, now = crowded(rate, steps)
    now += rest
    if starts.is_idle(rate, now):
        for ahead in (0, rate.burst - 1, rate.burst, rate.max_calls, 3 * rate.max_calls):
            assert starts.wait(rate, now, ahead) == Starts().wait(rate, now, ahead)
    assert starts.is_idle(rate, now + 2 * rate.time_window)


@given(
    st.integers(1, 10**9 - 1),
    st.integers(1, 999_999),
    st.sampled_from([("s", 1), ("second", 1), ("minutes", 60), ("min", 60), ("h", 3600), ("days", 86_400)]),
    st.sampled_from(["", " "]),
)
def test_a_rate_that_is_written_down_is_read_back(calls: int, number: int, unit: tuple[str, int], space: str) -> None:
    word, seconds = unit
    assume(number * seconds <= 1e9)
    rate = Rate.parse(f"{calls}{space}/{space}{number}{space}{word}")
    assert (rate.max_calls, rate.time_window) == (calls, number * seconds)


# ---- the budget

thousandths = st.integers(0, 1000).map(lambda part: Fraction(part, 1000))
ratios = st.integers(0, 10).map(lambda part: Fraction(part, 10)) | thousandths
runs = st.lists(st.integers(1, 12), min_size=1, max_size=30)
many_integers = st.integers(0, 60).flatmap(lambda size: st.lists(st.integers(0, 5), min_size=size, max_size=size))


@given(ratios, st.integers(1, 4).map(Fraction), runs)
def test_retries_are_granted_exactly_as_exact_arithmetic_says(ratio: Fraction, cap: Fraction, runs: list[int]) -> None:
    config = BudgetConfig(ratio=float(ratio), cap=float(cap))
    tokens, exact = config.cap, cap
    for successes in runs:
        for _ in range(successes):
            tokens, exact = earned(config, tokens), min(cap, exact + ratio)
        while exact >= 1:  # then every retry that there is
            left = spent(tokens)
            assert left is not None
            assert 0.0 <= left <= config.cap
            tokens, exact = left, exact - 1
        assert spent(tokens) is None


@given(ratios, st.integers(1, 5).map(Fraction), many_integers)
def test_over_any_stretch_retries_are_at_most_cap_and_ratio_times_successes(
    ratio: Fraction, cap: Fraction, steps: list[int]
) -> None:
    config = BudgetConfig(ratio=float(ratio), cap=float(cap))
    tokens = config.cap
    log = list[tuple[int, int]]()  # successes, and retries granted
    for successes in steps:
        if successes:
            tokens = earned(config, tokens, successes)
            log.append((successes, 0))
            continue
        left = spent(tokens)
        tokens = tokens if left is None else left
        log.append((0, left is not None))
    for begin in range(len(log)):
        granted, allowed = 0, cap
        for successes, retries in log[begin:]:
            granted, allowed = granted + retries, allowed + ratio * successes
            assert granted <= allowed
