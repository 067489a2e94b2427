"""Asking for permits: what is asked, what is answered, and the compare-and-sets in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.policy.breaker import IGNORED, Permit, Rejection
from holdfast.policy.limiter import Starts
from holdfast.ports import ValueChange
from holdfast.runtime.shared.breakers import BreakerValue, SharedBreaker
from holdfast.runtime.shared.budgets import SharedBudget
from holdfast.runtime.shared.guard import SKEW_S, GuardChange
from holdfast.runtime.shared.limits import SharedLimit
from holdfast.runtime.shared.names import LIMIT
from holdfast.runtime.shared.registry import AnyGuard, Registry
from holdfast.types import BreakerMode

MOST_ROUNDS: Final = 5
"""So often a request is sent; if others were quicker each time, it is held for a moment."""

_BY_HAND_S: Final = 1.0  # nobody knows when a person will open it; until then its gate holds the job at no cost
_BUDGET_S: Final = 5.0  # a budget is no gate, so each time costs a claim
_CROWDED_S: Final = 0.05
_LATE: Final = 0.1  # of a limit's window: a start that is made later than this after it was dated is dated anew
_CROWDED_MOST_S: Final = 0.5
_HALF_OPEN: Final = BreakerMode.HALF_OPEN
_FORCED_OPEN: Final = BreakerMode.FORCED_OPEN


class Request(Struct, frozen=True):
    """What one run needs before it may begin."""

    breaker: str | None = None
    limits: tuple[str, ...] = ()
    """Full gate names, as `limit_gate` makes them."""
    budget: str | None = None
    """The budget that pays for it: only where the run is a retry."""
    earns: str | None = None
    """The budget that a success adds to; where it is None, the one that pays."""


class Go(Struct, frozen=True):
    """The right to begin one run, now. Hand it back to `report` with what came of it."""

    breaker: str | None = None
    permit: Permit | None = None
    """Of the breaker; it knows its period."""
    limits: tuple[str, ...] = ()
    budget: str | None = None
    earns: str | None = None
    at: float = 0.0
    """The instant of the ask that succeeded."""
    dates: tuple[float, ...] = ()
    """The instants that its starts are remembered with, in the order of its limits: the same, or later where the
    store is slow."""


class Hold(Struct, frozen=True):
    """Not now; nothing was taken."""

    delay_s: float
    why: str
    is_breaker: bool = False
    """Whether a breaker holds it."""


class _Asked(Struct, frozen=True):
    """A request that waits for the store's answer."""

    index: int
    go: Go
    keys: frozenset[str]
    """The values that must have changed for it to be granted."""


class Round(Struct):
    """Some requests on their way: send `changes` while there are any; then `answers` has one for each request."""

    requests: Sequence[Request]
    changes: list[ValueChange]
    answers: list[Go | Hold]
    asked: list[_Asked]
    """Those that wait for the store's answer to the changes."""
    granted: list[_Asked]
    """Those that were granted already, and wait for the others: not for too long, or they are asked again."""
    lost: int = 0
    """How often somebody else was quicker, or the store too slow."""
    slack_s: float = 0.0
    """How far ahead starts are dated, so that a slow reply does not let them begin after their date."""


_UNASKED: Final = Hold(_CROWDED_S, "not answered yet")


def begin(registry: Registry, requests: Sequence[Request], now: float) -> Round:
    """Ask for all of these; what needs no compare-and-set is answered at once."""
    question = Round(requests, [], [_UNASKED] * len(requests), [], [])
    _send(registry, question, range(len(requests)), now)
    return question


def carry_on(registry: Registry, question: Round, changed: Sequence[bool], now: float, took_s: float) -> bool:
    """Take the store's answer; say whether every request has its own now.

    What is decided next is decided as of `now`, for others may be there first; how late it is counts the reply as well.
    """
    latest = now + took_s
    landed = _landed(registry, question.changes, changed)
    granted, again = [], []
    holding = [(asked, asked.keys) for asked in question.granted]
    holding += [(asked, asked.keys & landed) for asked in question.asked]
    for asked, kept in holding:
        if kept == asked.keys and not is_late(registry, asked.go, latest):
            granted.append(asked)
            question.answers[asked.index] = asked.go
        else:
            give_back(registry, asked.go, kept)
            again.append(asked)
    question.changes, question.asked, question.granted = [], [], granted
    if again:
        question.lost += 1
        if question.lost < MOST_ROUNDS:
            late = [asked.go for asked in again if is_late(registry, asked.go, latest)]
            late_s = max((latest - go.at for go in late), default=0.0)
            question.slack_s = min(2.0 * late_s, _believed_s(registry, question.requests))
            _send(registry, question, [asked.index for asked in again], now)
        else:
            for place, asked in enumerate(again):
                delay_s = min(_CROWDED_MOST_S, _CROWDED_S * (1 + place))
                question.answers[asked.index] = Hold(delay_s, "other workers were quicker each time, or the store slow")
    return not question.changes


def _landed(registry: Registry, changes: Sequence[ValueChange], changed: Sequence[bool]) -> set[str]:
    """The keys of the changes that took effect; the notes that they carried are done with."""
    landed = set()
    for change, is_done in zip(changes, changed, strict=True):
        guard = registry.find(change.key)
        if is_done and guard is not None and isinstance(change, GuardChange):
            landed.add(change.key)
            guard.landed(change.upto)
            registry.mark(guard)
    return landed


def give_back(registry: Registry, go: Go, keys: Iterable[str]) -> None:
    """Return what was taken of these values, for a run that will not begin."""
    for key in keys:
        guard = registry.find(key)
        if isinstance(guard, SharedBreaker) and go.permit is not None:
            guard.report(go.permit, IGNORED, go.at)
        elif isinstance(guard, SharedLimit):
            guard.add(go.dates[go.limits.index(key)])
        elif isinstance(guard, SharedBudget):
            guard.add(True)
        if guard is not None:
            registry.mark(guard)


def _send(registry: Registry, question: Round, indices: Iterable[int], now: float) -> None:
    drafts = _Drafts(registry, now, question.slack_s)
    for index in indices:
        answer, keys = drafts.answer(question.requests[index])
        if isinstance(answer, Go) and keys:
            question.asked.append(_Asked(index, answer, frozenset(keys)))
        else:
            question.answers[index] = answer
    question.changes = drafts.changes()


class _Drafts:
    """What the shared values would become if all that was granted so far were."""

    def __init__(self, registry: Registry, now: float, slack_s: float) -> None:
        self._registry = registry
        self._now = now
        self._dated_at = now + slack_s
        self._breakers: dict[str, BreakerValue] = {}
        self._starts: dict[str, Starts] = {}
        self._tokens: dict[str, float] = {}
        self._taken: dict[str, AnyGuard] = {}

    def answer(self, request: Request) -> tuple[Go | Hold, list[str]]:
        """All that a request needs, and the values that must change for it; or nothing, and the longest wait."""
        holds: list[Hold] = []
        keys: list[str] = []
        breaker = permit = value = None
        if request.breaker is not None:
            breaker = self._registry.breaker(request.breaker)
            permit = breaker.free_permit()
            if permit is None:
                value, answer = breaker.take(self._breakers.get(breaker.key) or breaker.draft(self._now), self._now)
                if isinstance(answer, Rejection):
                    holds.append(_refused(request.breaker, value, answer))
                else:
                    permit = answer
                    keys.append(breaker.key)
        limits = [self._registry.limit(gate) for gate in dict.fromkeys(request.limits)]
        for limit in limits:
            wait_s = limit.wait_s(self._draft_of(limit), self._now)
            if wait_s > 0.0:
                holds.append(Hold(wait_s, f"limit {limit.key.removeprefix(LIMIT)} is used up"))
        budget = None if request.budget is None else self._registry.budget(request.budget)
        left = None
        if budget is not None:
            tokens = self._tokens.get(budget.key)
            left = budget.take(budget.draft(self._now) if tokens is None else tokens)
            if left is None:
                holds.append(Hold(_BUDGET_S, f"retry budget {budget.name} is empty"))
        if holds:
            return max(holds, key=lambda hold: hold.delay_s), []
        if breaker is not None and value is not None:
            self._breakers[breaker.key] = value
            self._taken[breaker.key] = breaker
        dates = [limit.take(self._draft_of(limit), self._dated_at) for limit in limits]
        for limit in limits:
            self._taken[limit.key] = limit
            keys.append(limit.key)
        if budget is not None and left is not None:
            self._tokens[budget.key] = left
            self._taken[budget.key] = budget
            keys.append(budget.key)
        earns = request.earns or request.budget
        gates = tuple(limit.key for limit in limits)
        return Go(request.breaker, permit, gates, request.budget, earns, self._now, tuple(dates)), keys

    def changes(self) -> list[ValueChange]:
        """One change for each value of which something was taken."""
        changes = []
        for guard in self._taken.values():
            if isinstance(guard, SharedBreaker):
                changes.append(guard.change(self._breakers[guard.key], self._now))
            elif isinstance(guard, SharedLimit):
                changes.append(guard.change(self._starts[guard.key], self._now))
            else:
                changes.append(guard.change(self._tokens[guard.key], self._now))
        return [change for change in changes if change is not None]

    def _draft_of(self, limit: SharedLimit) -> Starts:
        starts = self._starts.get(limit.key)
        if starts is None:
            self._starts[limit.key] = starts = limit.draft(self._now)
        return starts


def _believed_s(registry: Registry, requests: Sequence[Request]) -> float:
    """How far ahead a start may be dated and still be believed: see `SharedLimit.read`."""
    gates = {gate for request in requests for gate in request.limits}
    return SKEW_S + min((registry.limit(gate).rate.time_window for gate in gates), default=0.0)


def is_late(registry: Registry, go: Go, now: float) -> bool:
    """Whether its starts would be forgotten too long before a whole window has passed since the run began."""
    return any(
        now - date > _LATE * registry.limit(gate).rate.time_window
        for gate, date in zip(go.limits, go.dates, strict=True)
    )


def _refused(name: str, value: BreakerValue, rejection: Rejection) -> Hold:
    if value.state.mode is _FORCED_OPEN:
        why = f"breaker {name} is held open by hand"
    elif value.state.mode is _HALF_OPEN:
        why = f"breaker {name} is half-open and its trials are under way"
    else:
        why = f"breaker {name} is open"
    delay_s = _BY_HAND_S if rejection.retry_after is None else rejection.retry_after
    return Hold(delay_s, why, is_breaker=True)
