"""What the locks are for: another thread comes in at the worst moment, and nothing is lost or given twice.

Each test runs the other thread at a chosen moment, and goes on when that thread has ended, or when it has had ample
time to end and must therefore be waiting for a lock.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, ParamSpec, TypeVar

import pytest

from holdfast import (
    BreakerConfig,
    Bulkhead,
    BulkheadFull,
    CircuitBreaker,
    CircuitBreakers,
    IllegalChange,
    RateLimiter,
    RetryBudget,
)
from holdfast.policy import breaker as rules
from holdfast.policy.budget import earned, spent
from holdfast.policy.limiter import Starts
from holdfast.runtime.guards import budget as budget_module
from holdfast.runtime.guards.bulkhead import _Waiter
from holdfast.runtime.guards.keyed import Keyed
from holdfast.testing import ManualClock
from holdfast.types import BreakerChanged

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

AMPLE_S = 0.05


class Other(Generic[T]):
    """Another thread that does one thing, once, when it is let in."""

    def __init__(self, does: Callable[[], T]) -> None:
        self._does = does
        self._results: list[T] = []
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._results.append(self._does())
        except BaseException as error:
            self._errors.append(error)

    def let_in(self) -> None:
        """Run it now, if it has not been yet, for as long as nothing holds it up."""
        if self._thread.ident is None:
            self._thread.start()
            self._thread.join(AMPLE_S)

    def let_in_after(self, fn: Callable[P, R]) -> Callable[P, R]:
        """The function, in whose first call the thread is let in when the value is known and not yet returned."""

        def unlucky(*args: P.args, **kwargs: P.kwargs) -> R:
            value = fn(*args, **kwargs)
            self.let_in()
            return value

        return unlucky

    @property
    def result(self) -> T:
        """What came of it, once it has ended."""
        self._thread.join(30)
        if self._errors:
            raise self._errors[0]
        return self._results[0]


def failing() -> None:
    raise ConnectionError("refused")


def fails_through(breaker: CircuitBreaker) -> None:
    with pytest.raises(ConnectionError):
        breaker.call(failing)


def is_illegal(change: Callable[[], None]) -> bool:
    try:
        change()
    except IllegalChange:
        return True
    return False


def is_full(bulkhead: Bulkhead) -> bool:
    try:
        bulkhead.acquire()
    except BulkheadFull:
        return True
    return False


def test_one_trial_is_given_once_though_two_threads_ask_in_the_same_moment(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=1, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    other = Other(breaker.can_execute)
    monkeypatch.setattr(clock, "monotonic", other.let_in_after(clock.monotonic))
    assert sorted([breaker.can_execute(), other.result]) == [False, True]


def test_two_failures_that_end_in_the_same_moment_are_both_counted(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = CircuitBreaker(failure_threshold=2, clock=clock)
    other = Other(lambda: fails_through(breaker))
    monkeypatch.setattr(clock, "monotonic", other.let_in_after(clock.monotonic))
    fails_through(breaker)
    assert other.result is None
    assert breaker.state == "open"


def test_two_changes_by_hand_in_the_same_moment_are_made_one_after_the_other(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BreakerChanged] = []
    breaker = CircuitBreaker(clock=clock, on_change=told.append)
    other = Other(lambda: is_illegal(breaker.disable))
    monkeypatch.setattr(rules, "force_open", other.let_in_after(rules.force_open))
    assert sorted([is_illegal(breaker.force_open), other.result]) == [False, True]
    assert [event.after for event in told] == [breaker.state]


def test_a_failure_in_the_moment_of_a_reset_is_either_before_or_after_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[BreakerChanged] = []
    breaker = CircuitBreaker(failure_threshold=1, clock=clock, on_change=told.append)
    other = Other(lambda: fails_through(breaker))
    monkeypatch.setattr(rules, "reset", other.let_in_after(rules.reset))
    breaker.reset()
    assert other.result is None
    assert breaker.state == "closed"
    assert told == []  # the reset began a new period before the failure, which is of the old one


def test_a_trial_of_the_plain_trio_is_settled_once_though_two_threads_report_one(clock: ManualClock) -> None:
    class Unlucky(deque[Any]):
        """A queue in which the other thread is let in between a look and what follows from it."""

        def __len__(self) -> int:
            length = super().__len__()
            other.let_in()
            return length

    breaker = CircuitBreaker(failure_threshold=1, half_open_max_calls=2, clock=clock)
    breaker.record_failure()
    clock.advance(30.0)
    breaker._unnamed = Unlucky()
    other = Other(breaker.record_success)
    assert breaker.can_execute()
    breaker.record_success()
    assert other.result is None
    assert breaker.state == "half_open"


def test_whether_a_breaker_is_idle_can_be_asked_while_a_call_is_counted(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BreakerConfig(window=timedelta(seconds=10), failure_rate=1.0, min_calls=10)
    breaker = CircuitBreaker.of(config, clock=clock)

    class Unlucky(float):
        """An instant in whose use the other thread is let in."""

        def __sub__(self, began_at: float) -> float:
            if asks:
                other.let_in()
            return float(self) - float(began_at)

    def count_later() -> None:
        clock.advance(1.0)
        breaker.record_failure()

    other = Other(count_later)
    asks: list[bool] = []
    plain = clock.monotonic
    monkeypatch.setattr(clock, "monotonic", lambda: Unlucky(plain()))
    breaker.record_failure()
    asks.append(True)
    assert not breaker.is_idle
    assert other.result is None


def test_one_retry_that_is_left_is_spent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = RetryBudget(cap=1.0)
    other = Other(budget.spend)
    monkeypatch.setattr(budget_module, "spent", other.let_in_after(spent))
    assert sorted([budget.spend(), other.result]) == [False, True]
    assert budget.tokens == 0.0


def test_two_successes_in_the_same_moment_are_both_earned(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = RetryBudget(0.25, cap=10.0)
    assert budget.spend()
    other = Other(budget.earn)
    monkeypatch.setattr(budget_module, "earned", other.let_in_after(earned))
    budget.earn()
    assert other.result is None
    assert budget.tokens == 9.5


def test_a_success_in_the_moment_of_a_retry_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = RetryBudget(0.5, cap=10.0)
    assert budget.spend()
    other = Other(budget.earn)
    monkeypatch.setattr(budget_module, "spent", other.let_in_after(spent))
    assert budget.spend()
    assert other.result is None
    assert budget.tokens == 8.5


def test_the_last_start_of_a_window_is_had_once(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    limiter = RateLimiter(1, 60.0, clock=clock)
    other = Other(limiter.allow)
    monkeypatch.setattr(Starts, "wait", other.let_in_after(Starts.wait))
    assert sorted([limiter.allow(), other.result]) == [False, True]


def test_two_who_join_the_queue_in_the_same_moment_stand_one_behind_the_other(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = RateLimiter(1, 10.0, clock=clock)
    assert limiter.allow()
    other = Other(lambda: limiter._join("")[1:])
    monkeypatch.setattr(Starts, "wait", other.let_in_after(Starts.wait))
    assert sorted([limiter._join("")[1:], other.result]) == [(0, 10.0), (1, 20.0)]


def test_one_who_joins_while_a_bucket_is_judged_idle_is_not_forgotten_with_it(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    limiter = RateLimiter(1, 10.0, clock=clock)
    bucket = limiter._buckets["ann"]
    other = Other(lambda: limiter.allow("ann"))
    limiter._buckets._sweep_at = 1
    monkeypatch.setattr(Starts, "is_idle", other.let_in_after(Starts.is_idle))
    limiter.allow("bob")
    assert other.result
    assert bucket.is_retired
    assert not limiter.allow("ann")


def test_a_thing_is_made_once_though_two_threads_find_it_missing() -> None:
    made: list[str] = []

    def make(key: str) -> object:
        made.append(key)
        other.let_in()
        return object()

    keyed: Keyed[object] = Keyed(make, lambda thing: False)
    other: Other[object] = Other(lambda: keyed["one"])
    assert keyed["one"] is other.result
    assert made == ["one"]


def test_one_free_place_is_taken_once() -> None:
    class Unlucky(int):
        """A bound in whose comparison the other thread is let in."""

        def __gt__(self, value: int) -> bool:
            answer = int(self) > value
            other.let_in()
            return answer

    bulkhead = Bulkhead(Unlucky(1))
    other = Other(lambda: is_full(bulkhead))
    assert sorted([is_full(bulkhead), other.result]) == [False, True]
    assert bulkhead.in_use == 1


class Unwaiting(ManualClock):
    """A clock for those who must not wait."""

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        raise AssertionError("waited for a place that was free")


def test_a_place_given_back_between_the_look_and_the_queue_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    bulkhead = Bulkhead(1, max_wait=None, clock=Unwaiting())
    bulkhead.acquire()
    other = Other(bulkhead.release)
    monkeypatch.setattr(bulkhead, "_enter", other.let_in_after(bulkhead._enter))
    bulkhead.acquire()
    assert other.result is None
    assert bulkhead.in_use == 1


def test_a_place_that_is_freed_while_another_joins_the_queue_is_not_left_unused() -> None:
    class Unlucky(int):
        def __gt__(self, value: int) -> bool:
            answer = int(self) > value
            if not answer and looks.pop(0) == "join":
                other.let_in()
            return answer

    class Granting(ManualClock):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            return event.wait(5 * AMPLE_S)

    looks = ["enter", "join"]
    bulkhead = Bulkhead(Unlucky(1), max_wait=1.0, clock=Granting())
    bulkhead.acquire()
    other = Other(bulkhead.release)
    bulkhead.acquire()
    assert other.result is None
    assert bulkhead.in_use == 1


def test_a_waiter_that_is_woken_before_its_grant_is_written_down_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    bulkhead = Bulkhead(1, max_wait=None)
    bulkhead.acquire()
    waiting = threading.Thread(target=bulkhead.acquire, daemon=True)

    def unlucky(waiter: _Waiter) -> bool:
        is_woken = wake(waiter)
        waiting.join(AMPLE_S)
        return is_woken

    wake = _Waiter.wake
    monkeypatch.setattr(_Waiter, "wake", unlucky)
    waiting.start()
    while not bulkhead._queue:
        pass
    bulkhead.release()
    waiting.join(30)
    assert bulkhead.in_use == 1
    bulkhead.release()
    assert bulkhead.in_use == 0


class Impatient(ManualClock):
    """A clock on which every wait is over at once, or is interrupted."""

    def __init__(self, error: type[BaseException] | None) -> None:
        super().__init__()
        self.error = error

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        if self.error is not None:
            raise self.error
        return False


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_a_place_that_comes_while_a_waiter_leaves_the_queue_is_not_lost(error: type[BaseException] | None) -> None:
    class Unlucky(deque[Any]):
        """A queue in which the other thread is let in just before somebody leaves it."""

        def remove(self, value: Any, /) -> None:
            other.let_in()
            super().remove(value)

    bulkhead = Bulkhead(1, max_wait=5.0, clock=Impatient(error))
    bulkhead._queue = Unlucky()
    bulkhead.acquire()
    other = Other(bulkhead.release)
    with pytest.raises(error or BulkheadFull):
        bulkhead.acquire()
    assert other.result is None
    assert bulkhead.in_use == 0
    assert not bulkhead._queue


def test_breakers_with_time_windows_can_be_swept_while_threads_use_them(
    clock: ManualClock, quick_switches: None
) -> None:
    config = BreakerConfig(window=timedelta(seconds=1), failure_rate=1.0, min_calls=10**6)
    breakers = CircuitBreakers(config, max_keys=1, clock=clock)
    used = [breakers[f"used {number}"] for number in range(3)]
    ready = threading.Barrier(4)

    def use() -> None:
        ready.wait(30)
        for turn in range(3_000):
            used[turn % 3].record_failure()
            clock.advance(0.1)  # a new slice of the window each time

    def sweep() -> None:
        ready.wait(30)
        for turn in range(3_000):
            breakers._breakers._sweep_at = 1
            breakers[f"visitor {turn}"]

    others = [Other(use), Other(use), Other(use), Other(sweep)]
    for other in others:
        other._thread.start()
    assert [other.result for other in others] == [None] * 4
