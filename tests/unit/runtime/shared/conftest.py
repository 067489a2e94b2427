"""A store's values, and workers that share them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.policy.breaker import FAILURE, BreakerConfig, Outcome
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.limiter import Rate
from holdfast.ports import Exchanged, Value, ValueChange
from holdfast.runtime.shared.guards import Go, Hold, Request, SharedGuards
from holdfast.types import BreakerChanged


class Fleet:
    """Compare and set over one table, at an instant that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.values: dict[str, Value] = {}
        self.version = 0
        self.era = 0
        self.exchanges = 0
        self.breaker: BreakerConfig | None = BreakerConfig(failure_threshold=3, half_open_max_calls=2)
        self.limits: dict[str, Rate] = {}
        self.budget: BudgetConfig | None = None

    def worker(self) -> SharedGuards:
        """One more, who knows what the store has."""
        guards = SharedGuards()
        if self.breaker is not None:
            guards.add_breaker("payments", self.breaker)
        if self.budget is not None:
            guards.add_budget("payments", self.budget)
        for name, rate in self.limits.items():
            guards.add_limit(name, rate)
        self.sync(guards)
        return guards

    def change(self, change: ValueChange) -> bool:
        value = self.values.get(change.key)
        if change.expected != (value.version if value is not None and value.data is not None else 0):
            return False
        self.write(change.key, change.data)
        return True

    def write(self, key: str, data: bytes | None) -> None:
        self.version += 1
        self.values[key] = Value(key, self.version, data)

    def restore(self, values: dict[str, Value]) -> None:
        """Lose all that was written since a copy was made of the values."""
        self.values = dict(values)
        self.version = max((value.version for value in values.values()), default=0)

    def data(self, key: str) -> bytes | None:
        value = self.values.get(key)
        return None if value is None else value.data

    def sync(self, guards: SharedGuards, changes: Sequence[ValueChange] = ()) -> list[BreakerChanged]:
        """An exchange; what it said about `changes` is in `changed`."""
        self.exchanges += 1
        seen, newest = guards.seen, self.version
        self.changed = [self.change(change) for change in changes]
        newer = sorted((v for v in self.values.values() if v.version > seen), key=lambda v: v.version)
        return guards.absorb(Exchanged(now=self.now, values=newer, newest=newest, era=self.era))

    def flush(self, guards: SharedGuards) -> list[BreakerChanged]:
        """Send what has to be sent, until it is."""
        events = list[BreakerChanged]()
        while changes := guards.changes(self.now):
            events += self.sync(guards, changes)
            guards.confirm(changes, self.changed, self.now)
        return events

    def ask(self, guards: SharedGuards, *requests: Request) -> list[Go | Hold]:
        question = guards.ask(requests, self.now)
        while question.changes:
            self.sync(guards, question.changes)
            guards.finish(question, self.changed, self.now)
        return question.answers

    def go(self, guards: SharedGuards, request: Request | None = None) -> Go:
        (answer,) = self.ask(guards, request or Request("payments"))
        assert isinstance(answer, Go), answer
        return answer

    def hold(self, guards: SharedGuards, request: Request | None = None) -> Hold:
        (answer,) = self.ask(guards, request or Request("payments"))
        assert isinstance(answer, Hold), answer
        return answer

    def run(self, guards: SharedGuards, *outcomes: Outcome, slow_s: float = 0.0) -> None:
        """Runs one after the other, reported at their ends and sent together."""
        gos = [self.go(guards) for _ in outcomes]
        for go, outcome in zip(gos, outcomes, strict=True):
            cause = "ConnectionError: refused" if outcome is FAILURE else None
            guards.report(go, outcome, self.now, slow_s=slow_s, cause=cause)
        self.flush(guards)

    def opened(self, guards: SharedGuards) -> None:
        """Open the breaker through this worker."""
        assert self.breaker is not None
        self.run(guards, *[FAILURE] * self.breaker.failure_threshold)

    def half_opened(self, guards: SharedGuards) -> None:
        """Open it, and let its recovery time pass."""
        assert self.breaker is not None
        self.opened(guards)
        self.now += self.breaker.recovery_timeout


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()
