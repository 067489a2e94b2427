"""What rings have given up, for tests of where it goes."""

from __future__ import annotations

from typing import Any

from holdfast.policy.classify import classify
from holdfast.ring.given_up import GivenUp
from holdfast.types import Attempt, Change, Failure

AT = 1_700_000_000.0


def failure_of(message: str = "no such price") -> Failure:
    """A failure with a traceback."""
    try:
        raise KeyError(message)
    except KeyError as error:
        return classify(error)


def attempt_of(failure: Failure, number: int, at: float, outcome: Change = Change.BURY) -> Attempt:
    """A call that has failed so."""
    return Attempt(
        number=number,
        started_at=at - 0.5,
        ended_at=at,
        outcome=outcome,
        failure_type=failure.type,
        severity=failure.severity,
        error_name=failure.error_name,
        message=failure.message,
        traceback=failure.traceback,
        fingerprint=failure.fingerprint,
    )


def given_up(
    *elements: Any,
    offset: int | None = None,
    batch: int = 7,
    at: float = AT,
    failure: Failure | None = None,
    attempts: int = 1,
) -> GivenUp:
    """Elements of the consumer `enrich` of the ring `prices`."""
    failure = failure or failure_of()
    return GivenUp(
        ring="prices",
        consumer="enrich",
        batch=batch,
        offset=offset,
        elements=elements,
        failure=failure,
        attempts=tuple(attempt_of(failure, n, at - attempts + n) for n in range(1, attempts + 1)),
        reason="retries used up",
        at=at,
    )
