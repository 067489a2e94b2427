"""Whether a failed call is tried again, and when."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import force_setattr, replace

from holdfast.clock import chance
from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.backoff import Backoff, jitter_range
from holdfast.policy.retry_after import bounded
from holdfast.types import Failure, FailureType, GiveUp, Rng

FailureKey = FailureType | type[BaseException]

RATE_LIMITED_BACKOFF = Backoff(initial_delay=30.0, multiplier=2.0, max_delay=300.0, min_delay=0.0, jitter=False)
"""30, 60, 120 … s and at most 300 s, for a refusal that does not say when to come back."""

# Jitter here only ever adds: coming back early is what got us refused.
_RATE_LIMITED_JITTERED = replace(RATE_LIMITED_BACKOFF, jitter="additive")
_RATE_LIMITED: Final = FailureType.RATE_LIMITED  # see breaker.py
_NOTHING: Mapping[FailureKey, Backoff] = MappingProxyType({})


class RetryPolicy(Backoff, frozen=True, kw_only=True):
    """How often a failed call is tried again, how long to wait before each retry, and when to stop.

    max_retries: retries after the first attempt, so at most max_retries + 1 attempts.
    strategy, initial_delay, multiplier, backoff_factor, jitter, min_delay, max_delay: see `Backoff`.
    total_timeout: seconds over all attempts, their run time and the waits between them together; no wait is begun that
        would end after it. It never interrupts a running attempt: `attempt_timeout` does. None is no limit.
    attempt_timeout: seconds one attempt may take; see `Policy` on what that means for a sync function.
    per_failure: a `Backoff` of its own for a failure type or an exception class, with its own limits. The most derived
        class wins, and a class wins over a type. Unless given, a rate-limited failure waits 30, 60, 120 … s, at most
        300 s, whatever max_delay says.
    """

    max_retries: int = 5
    total_timeout: float | None = 300.0
    attempt_timeout: float | None = None
    per_failure: Mapping[FailureKey, Backoff] = _NOTHING

    def __post_init__(self) -> None:
        super().__post_init__()
        bounds.whole("max_retries", self.max_retries, low=0)
        if self.total_timeout is not None:
            bounds.length("total_timeout", self.total_timeout, above=0.0)
        if self.attempt_timeout is not None:
            bounds.length("attempt_timeout", self.attempt_timeout, above=0.0)
        force_setattr(self, "per_failure", dict(self._checked_entries()))

    def _checked_entries(self) -> Mapping[FailureKey, Backoff]:
        if not isinstance(self.per_failure, Mapping):
            raise ConfigError(f"per_failure={self.per_failure!r}: must be a mapping from failures to Backoffs")
        for key, entry in self.per_failure.items():
            is_class = isinstance(key, type) and issubclass(key, BaseException)
            if not is_class and not isinstance(key, FailureType):
                raise ConfigError(f"per_failure={key!r}: a key must be a FailureType or an exception class")
            if not isinstance(entry, Backoff) or isinstance(entry, RetryPolicy):  # its own limits would not be kept
                raise ConfigError(f"per_failure[{key!r}]={entry!r}: must be a Backoff, not a whole RetryPolicy")
        return self.per_failure

    def delay(self, n: int, failure: Failure | None = None, *, rng: Rng = chance) -> float:
        """Seconds to wait before the n-th retry, n from 1. What the other side asked for wins over our own backoff."""
        backoff: Backoff = self
        if failure is not None:
            if failure.retry_after is not None and (asked := bounded(failure.retry_after)) is not None:
                return asked
            if self.per_failure or failure.type is _RATE_LIMITED:
                backoff = self.backoff_for(failure)
        return Backoff.delay(backoff, n, rng=rng)

    def backoff_for(self, failure: Failure) -> Backoff:
        """The backoff that applies to this failure: this policy's own, unless per_failure says another."""
        if self.per_failure:
            for error_class in type(failure.error).__mro__:
                if error_class in self.per_failure:
                    return self.per_failure[error_class]
            if failure.type in self.per_failure:
                return self.per_failure[failure.type]
        if failure.type is _RATE_LIMITED:
            low, high = jitter_range(self.jitter)
            return RATE_LIMITED_BACKOFF if low == high else _RATE_LIMITED_JITTERED
        return self


STREAM_RETRY = RetryPolicy(max_retries=3, initial_delay=1.0, multiplier=2.0, jitter=(1.0, 1.5), total_timeout=None)
"""The default for streams: 1, 2, 4 s, each plus up to half of it, however long the attempts take."""


def next_delay(policy: RetryPolicy, failure: Failure, retries: int, elapsed_s: float, rng: Rng) -> float | GiveUp:
    """Seconds until the next attempt, or why there is none.

    retries: how many retries there have been. elapsed_s: run time and waits since the first attempt began.
    """
    if not failure.type.is_retriable:
        return GiveUp.NOT_RETRIABLE
    if retries >= policy.max_retries:
        return GiveUp.RETRIES_USED_UP
    delay = policy.delay(retries + 1, failure, rng=rng)
    if policy.total_timeout is not None and elapsed_s + delay > policy.total_timeout:
        return GiveUp.TOTAL_TIME_OVER
    return delay
