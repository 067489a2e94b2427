"""`@retry`: the short form of a policy that only retries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from holdfast.clock import SystemClock, chance
from holdfast.errors import ConfigError
from holdfast.policy.backoff import Backoff, Jitter, Strategy
from holdfast.policy.classify import classify
from holdfast.policy.evidence import wait_of
from holdfast.policy.foreign import quietly
from holdfast.policy.retry import FailureKey, RetryPolicy
from holdfast.ports import Clock
from holdfast.runtime.guards.policy import Classify, Policy, RetryHook
from holdfast.types import Failure, FailureContext, FailureType, Rng

P = ParamSpec("P")
R = TypeVar("R")
On = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]


class RetrySettings(TypedDict, total=False):
    """The settings of `RetryPolicy`, where each is explained."""

    max_retries: int
    initial_delay: float
    max_delay: float
    multiplier: float
    jitter: Jitter
    strategy: Strategy
    total_timeout: float | None
    backoff_factor: float
    min_delay: float
    attempt_timeout: float | None
    per_failure: Mapping[FailureKey, Backoff]


@overload
def retry(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def retry(
    *,
    on: On | None = None,
    on_retry: RetryHook | Iterable[RetryHook] | None = None,
    clock: Clock | None = None,
    rng: Rng = chance,
    **settings: Unpack[RetrySettings],
) -> Policy: ...
def retry(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    on: On | None = None,
    on_retry: RetryHook | Iterable[RetryHook] | None = None,
    clock: Clock | None = None,
    rng: Rng = chance,
    **settings: Unpack[RetrySettings],
) -> Any:
    """Retry a function that fails: `@retry`, or `@retry(on=…, max_retries=…)` with the settings of `RetryPolicy`.

    on: an exception class, a tuple of them, or a function from the error to whether it is retried. These errors are
    retried whatever their type, and no others are; causes and members of groups are not looked at. Without it the
    failure's type decides.
    """
    if isinstance(fn, type) and issubclass(fn, BaseException):
        raise ConfigError(f"retry({fn.__name__}): to choose what is retried, write retry(on={fn.__name__})")
    policy = Policy(
        retry=RetryPolicy(**settings),
        classify=classify if on is None else _only(on, (clock or SystemClock()).now),
        on_retry=on_retry,
        clock=clock,
        rng=rng,
    )
    return policy if fn is None else policy(fn)


def _only(on: On, now: Callable[[], float]) -> Classify:
    classes = on if isinstance(on, tuple) else (on,)
    is_chosen_by_class = bool(classes) and all(isinstance(one, type) and issubclass(one, Exception) for one in classes)
    if not is_chosen_by_class and (isinstance(on, type | tuple) or not callable(on)):
        raise ConfigError(f"on={on!r}: must be a class of Exception, a tuple of them, or a function from error to bool")

    def matches(error: BaseException) -> bool:
        return isinstance(error, on) if isinstance(on, type | tuple) else bool(on(error))  # type: ignore[arg-type]

    def classify_by_choice(error: BaseException, context: FailureContext | None) -> Failure:
        failure = classify(error, context, now=now)
        is_chosen = matches(error)
        if failure.is_retriable == is_chosen:
            return failure
        if not is_chosen:
            return Failure(FailureType.PERMANENT, error, failure.severity)
        asked = quietly(wait_of, error, now) if failure.retry_after is None else failure.retry_after
        return Failure(FailureType.TRANSIENT, error, failure.severity, asked)

    return classify_by_choice
