"""The judge: from a failure, or from what a task returned, to a verdict. Pure."""

from __future__ import annotations

from msgspec import Struct

from holdfast.policy.retry import RetryPolicy, next_delay
from holdfast.types import Discard, Failure, GiveUp, Rng, Snooze

UNKNOWN_TASK_RETRY = RetryPolicy(
    max_retries=6, initial_delay=5.0, multiplier=2.0, max_delay=120.0, total_timeout=None, jitter=False
)
"""A task that nobody here knows may be on its way, in a deploy: about four minutes, then it is given up."""


class Complete(Struct, frozen=True):
    """It is done."""


class RetryAt(Struct, frozen=True):
    """Another attempt, after so many seconds; of a suspect, by itself."""

    delay_s: float
    is_suspect: bool = False


class Park(Struct, frozen=True):
    """Not now, and nobody's failure: again after so many seconds, at no cost."""

    delay_s: float
    why: str


class Bury(Struct, frozen=True):
    """Given up: to the dead letters, or failed where those are switched off."""

    reason: str


class Drop(Struct, frozen=True):
    """The task itself said that it need not be done."""

    reason: str


class Release(Struct, frozen=True):
    """Given back unrun, or run only in part: for somebody else, at once, at no cost."""

    is_suspect: bool = False


Verdict = Complete | RetryAt | Park | Bury | Drop | Release

COMPLETE = Complete()


def judge(policy: RetryPolicy, failure: Failure, retries: int, elapsed_s: float, rng: Rng) -> RetryAt | Bury:
    """What becomes of a job whose attempt failed.

    retries: how many there have been since it was enqueued or replayed. elapsed_s: run time and computed delays since
    its first start, this attempt included.
    """
    try:
        delay = next_delay(policy, failure, retries, elapsed_s, rng)
    except Exception:  # a strategy is the user's function too
        delay = GiveUp.STRATEGY_FAILED
    return Bury(delay.value) if isinstance(delay, GiveUp) else RetryAt(delay)


def judge_value(value: object) -> Complete | Park | Drop:
    """What becomes of a job whose task returned this."""
    if isinstance(value, Snooze):
        return Park(value.seconds, value.why)
    if isinstance(value, Discard):
        return Drop(value.reason)
    return COMPLETE


def blames_orphan(*, is_alone: bool, orphaned: int) -> bool:
    """Whether a worker's death is counted against a job that it held.

    It is when nothing else ran in that process; and from the third death on, since a job that is run by itself in a
    process of its own, and whose worker still dies, must not go on for ever.
    """
    return is_alone or orphaned >= 3
