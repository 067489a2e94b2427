"""One attempt of a job while it is under way, and how it becomes a settlement."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from holdfast.errors import Invalid
from holdfast.policy.judge import COMPLETE, Bury, Complete, Drop, Park, Release, RetryAt, Verdict
from holdfast.ports import Delivery, Settlement
from holdfast.runtime.payload import encode_result
from holdfast.runtime.shared.guards import Go
from holdfast.runtime.spec import TaskSpec
from holdfast.types import Attempt, Change, Failure

if TYPE_CHECKING:
    from opentelemetry.trace import Span

_COMPLETE: Final = Change.COMPLETE
_NULL: Final = b"null"
UNKNOWN_KEEP_S: Final = 7 * 86_400.0


class Run:
    """One attempt, from its claim to its settlement; times are monotonic, as the store's clock may be set meanwhile."""

    __slots__ = (
        "began_s",
        "delivery",
        "error",
        "failure",
        "go",
        "is_begun",
        "is_entered",
        "is_settled",
        "span",
        "spec",
        "stop",
        "task",
        "value",
    )

    def __init__(self, delivery: Delivery, spec: TaskSpec, go: Go) -> None:
        self.delivery = delivery
        self.spec = spec
        self.go = go
        self.is_begun = False
        self.began_s = 0.0
        self.task: asyncio.Task[None] | None = None
        self.stop: str = ""
        """Why it is being stopped: "overdue", "cancelled", "shutdown"; empty while it is not."""
        self.is_settled = False
        """Settled already by itself, as `job.transaction()` does, or not ours to settle any more."""
        self.is_entered = False
        """Whether its task has taken its first step: one cancelled before that ends without a word."""
        self.span: Span | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.failure: Failure | None = None
        """What the error is, where that was found out on the thread it was raised on."""


def settlement_of(
    delivery: Delivery,
    spec: TaskSpec | None,
    verdict: Verdict,
    *,
    worker: str,
    began_at: float | None,
    ended_at: float,
    failure: Failure | None = None,
    result: bytes = _NULL,
    breaker: str = "",
    reason: str = "",
) -> Settlement:
    """The verdict on a claimed job, as its store is told it."""
    run_s = 0.0 if began_at is None else ended_at - began_at
    if verdict is COMPLETE:
        return Settlement(
            id=delivery.id,
            token=delivery.token,
            change=_COMPLETE,
            keep_s=spec.result_keep_s if spec else None,
            result=result,
            reason=reason,
            elapsed_s=delivery.elapsed_s + run_s,
            started_at=began_at,
        )
    change, delay_s, keep_s, reason = _change_of(verdict, spec)
    elapsed_s = delivery.elapsed_s + run_s + (delay_s if change is Change.RETRY else 0.0)
    attempt = None
    if failure is not None:
        attempt = Attempt(
            number=delivery.attempt,
            started_at=ended_at if began_at is None else began_at,
            ended_at=ended_at,
            worker=worker,
            outcome=change,
            failure_type=failure.type,
            severity=failure.severity,
            error_name=storable(failure.error_name),
            message=storable(failure.message),
            traceback=storable(failure.traceback),
            fingerprint=failure.fingerprint,
            delay_s=delay_s if change is Change.RETRY else None,
            breaker=breaker,
        )
    return Settlement(
        id=delivery.id,
        token=delivery.token,
        change=change,
        delay_s=delay_s,
        keep_s=keep_s,
        reason=storable(str(reason)),
        elapsed_s=elapsed_s,
        started_at=began_at,
        attempt=attempt,
        is_refunded=change in {Change.PARK, Change.RELEASE},
        is_suspect=isinstance(verdict, Release | RetryAt) and verdict.is_suspect,
    )


def _change_of(verdict: Verdict, spec: TaskSpec | None) -> tuple[Change, float, float | None, str]:
    """The change, the delay, how long the record is kept, and the reason."""
    match verdict:
        case Complete():
            return Change.COMPLETE, 0.0, spec.result_keep_s if spec else None, ""
        case RetryAt(delay_s=delay_s):
            return Change.RETRY, delay_s, None, ""
        case Park(delay_s, why):
            return Change.PARK, delay_s, None, why
        case Release():
            return Change.RELEASE, 0.0, None, ""
        case Drop(reason):
            return Change.DISCARD, 0.0, spec.result_keep_s if spec else None, reason
        case Bury(reason):
            change = Change.FAIL if spec is not None and not spec.has_dead_letters else Change.BURY
            return change, 0.0, spec.dead_letter_keep_s if spec else UNKNOWN_KEEP_S, reason


def storable(text: str) -> str:
    """Text that every store can hold: half of a surrogate pair is no character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def encoded(value: Any) -> tuple[bytes, str]:
    """A task's result as JSON, and why it could not be kept where it cannot: the work is done all the same."""
    if value is None:
        return _NULL, ""
    if type(value) is Raw:
        return bytes(value), ""  # it is JSON already
    try:
        return encode_result(value), ""
    except Invalid as error:
        return _NULL, f"the result was not kept: {error}"
