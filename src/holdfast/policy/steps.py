"""The delay steps of retries that let later messages pass: one topic for each.

Within one topic messages should be due in about the order they were written in, because the first one says when to
look again, and one with a long wait holds up what was written after it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from holdfast.errors import ConfigError, RateLimited
from holdfast.policy.backoff import Backoff
from holdfast.policy.retry import RetryPolicy
from holdfast.types import Failure, FailureType

MOST_STEPS: Final = 8
"""Each one is a topic."""
_RATE_LIMITED: Final = Failure(FailureType.RATE_LIMITED, RateLimited(""))
_RETRIES_LOOKED_AT: Final = 64  # by then every backoff has long reached its longest delay


def steps_of(policy: RetryPolicy) -> tuple[float, ...]:
    """The delays before the retries of a policy: rising, each one once, at most `MOST_STEPS` of them.

    Each is the longest that may be drawn, so that a delay goes through the topic of its own retry and never waits
    behind a longer one. Those of `per_failure` and of rate limits are among them: they are much longer than the
    policy's own. Where there are too many, those that are closest to each other become the longer one. ConfigError if
    the policy's own function fails.
    """
    entries = {FailureType.RATE_LIMITED: policy.backoff_for(_RATE_LIMITED), **policy.per_failure}
    backoffs = [policy, *(one for key, one in entries.items() if not isinstance(key, FailureType) or key.is_retriable)]
    retries = range(1, min(policy.max_retries, _RETRIES_LOOKED_AT) + 1)
    steps = sorted({_longest(backoff, n) for backoff in backoffs for n in retries} - {0.0})
    while len(steps) > MOST_STEPS:
        closest = min(range(len(steps) - 1), key=lambda i: steps[i + 1] / steps[i])
        del steps[closest]
    return tuple(steps)


def _longest(backoff: Backoff, n: int) -> float:
    try:
        return float(Backoff.delay(backoff, n, rng=lambda: 1.0))
    except Exception as error:  # whatever a user's own function raises
        raise ConfigError(f"strategy={backoff.strategy!r}: failed for n={n}: {error!r}") from error


def step_for(steps: Sequence[float], delay_s: float) -> int:
    """The number of the step for a delay, from 1: the first one that is as long, else the last. 0 is for no delay."""
    if delay_s <= 0.0:
        return 0
    return min(bisect_left(steps, delay_s) + 1, len(steps))
