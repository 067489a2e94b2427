"""One guarded call under way: what has been tried, and what comes next. It neither waits nor runs anything itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from holdfast.errors import Refused, TimeLimitExceeded
from holdfast.policy.breaker import IGNORED, SUCCESS, Outcome, Permit
from holdfast.policy.retry import next_delay
from holdfast.runtime.guards.switch import SWITCH
from holdfast.types import Failure, FailureContext, GiveUp, RetryScheduled

_logger = logging.getLogger("holdfast.policy")

_NOTE = "holdfast: gave up after"
_NOTES_KEPT = 5

NOTHING: Any = object()
"""The fallback that is none, since None may be one."""

if TYPE_CHECKING:
    from holdfast.runtime.guards.breaker import CircuitBreaker
    from holdfast.runtime.guards.policy import Policy


class GuardedCall(Struct, eq=False):
    """The judge of one call: told how each attempt ended, it says how long to wait for the next, or that none follows.

    The sync driver, the async driver and the loop form all drive this one object.
    """

    policy: Policy
    context: FailureContext
    breaker: CircuitBreaker | None
    permit: Permit | None = None
    key: str = ""
    began_at: float = 0.0
    """When the attempt under way began."""
    holds_place: bool = False
    """Whether it has a place in the bulkhead."""
    attempts: int = 0
    """How many have ended."""
    delay_s: float = 0.0
    """How long to wait before the next attempt."""
    elapsed_s: float = 0.0
    """Run time and waits for retries so far; time spent waiting for a limit is nobody's failure and not in it."""
    failure: Failure | None = None
    """What became of the last attempt, if another follows it."""

    def admit(self) -> None:
        """The attempt begins, if the breaker lets it; CircuitOpenError if it does not."""
        if self.breaker is not None:
            self.permit = self.breaker.admit()
            if self.permit.trial is not None:
                self.breaker.begin_trial()
        self.began_at = self.policy.monotonic()

    def succeeded(self, now: float) -> None:
        """The attempt has succeeded."""
        self._settle(SUCCESS, now - self.began_at)
        if self.policy.budget is not None:
            self.policy.budget.earn()

    def dropped(self) -> None:
        """The attempt was cancelled or the program is exiting: nothing is counted, the permit goes back."""
        self._settle(IGNORED)

    def failed(self, error: Exception, now: float) -> bool:
        """The attempt has failed: say whether another follows, after `delay_s`."""
        if not SWITCH.has_policies:
            self.dropped()
            return False
        policy, breaker = self.policy, self.breaker
        duration = now - self.began_at
        self.began_at = now
        self.attempts += 1
        self.elapsed_s += self.delay_s + duration
        failure = policy.classify(error, self.context)
        if breaker is not None:
            self._settle(breaker.outcome_of(failure), duration, failure)
        if policy.retry is None:
            return False
        verdict: float | GiveUp
        try:
            verdict = next_delay(policy.retry, failure, self.attempts - 1, self.elapsed_s, policy.rng)
        except Exception:  # a strategy is the user's function too
            _logger.exception("the strategy %r raised; there are no more retries", policy.retry.strategy)
            verdict = GiveUp.STRATEGY_FAILED
        # A GiveUp is a str, and asking isinstance of an enum costs 150 ns.
        if policy.holds_back and not isinstance(verdict, str):
            verdict = self._held_back(error, verdict)
        if isinstance(verdict, str):
            if verdict is not GiveUp.NOT_RETRIABLE or self.attempts > 1:
                self.note(error, verdict)
            return False
        self.failure = failure
        self.delay_s = verdict
        return True

    def _settle(self, outcome: Outcome, duration: float | None = None, failure: Failure | None = None) -> None:
        """Give the breaker's permit back, if there is one."""
        if self.breaker is None or self.permit is None:
            return
        permit, self.permit = self.permit, None
        if permit.trial is not None:
            self.breaker.end_trial()
        self.breaker.settle(permit, outcome, duration=duration, failure=failure)

    def _held_back(self, error: Exception, delay_s: float) -> float | GiveUp:
        """A retry that the retry policy wants, unless something else speaks against it."""
        if isinstance(error, TimeLimitExceeded) and error.still_running:
            return GiveUp.STILL_RUNNING  # a second run beside the first one is not a retry
        if self.breaker is not None and self.breaker.refuses_for > delay_s:
            return GiveUp.BREAKER_OPEN  # the wait would be for nothing
        if self.policy.budget is not None and not self.policy.budget.spend():
            return GiveUp.BUDGET_EMPTY
        return delay_s

    @property
    def scheduled(self) -> RetryScheduled:
        """What the hooks are told before the wait for the next attempt."""
        assert self.failure is not None  # noqa: S101 - there is a next attempt only after a failure
        return RetryScheduled(
            self.context.task or "", self.key, self.attempts, self.failure, self.delay_s, self.elapsed_s
        )

    def turned_away(self, error: BaseException) -> Exception | None:
        """An attempt did not get through the gates: what to raise instead, if it is not this error.

        The function's own last error says more than a refusal, if the function was ever called.
        """
        self.abandon()
        return self._last_error(str(error)) if isinstance(error, Refused) and self.failure is not None else None

    def out_of_time(self) -> Exception | None:
        """After hooks that may have taken long: the error to raise when the wait to come would end too late."""
        limit = self.policy.retry.total_timeout if self.policy.retry is not None else None
        if limit is None or self.elapsed_s + self.delay_s <= limit:
            return None
        return self._last_error(GiveUp.TOTAL_TIME_OVER)

    def _last_error(self, reason: str) -> Exception:
        failure, self.failure = self.failure, None
        assert failure is not None  # noqa: S101 - an attempt has failed, or there would be nothing to give up
        assert isinstance(failure.error, Exception)  # noqa: S101 - which is what made it fail
        self.note(failure.error, reason)
        return failure.error

    def leave(self) -> None:
        """Give the bulkhead's place back, if one is held."""
        if self.holds_place and self.policy.bulkhead is not None:
            self.holds_place = False
            self.policy.bulkhead.release()

    def abandon(self) -> None:
        """Give everything back that is still held: an interrupt may come between any two lines."""
        self.leave()
        self.dropped()

    def hand_over(self) -> Callable[[], None]:
        """Give the place away to a function that may outlive the call; it gives it back by calling what is returned."""
        bulkhead = self.policy.bulkhead
        held = [bulkhead.release] if bulkhead is not None and self.holds_place else []
        self.holds_place = False

        def give_back() -> None:
            for _ in range(len(held)):  # whoever calls it twice, or from two threads, gives the place back once
                with suppress(IndexError):
                    release = held.pop()
                    release()

        return give_back

    def note(self, error: Exception, reason: str) -> None:
        """Leave a line under the error's traceback that says what was tried and why no more.

        An error that cannot take a note goes without; one that is raised again and again keeps only the latest few.
        """
        attempts = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        try:
            error.add_note(f"{_NOTE} {attempts} in {round(self.elapsed_s, 3):g} s: {reason}")
            ours = [note for note in error.__notes__ if note.startswith(_NOTE)]
            for old in ours[:-_NOTES_KEPT]:
                error.__notes__.remove(old)
        except Exception as trouble:  # a frozen or odd error class: the error is worth more than the note
            _logger.debug("no note could be left on %r: %r", type(error), trouble)
