"""The right to make one call, as users hold it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.policy.breaker import IGNORED, SUCCESS, Permit
from holdfast.types import Failure

if TYPE_CHECKING:
    from holdfast.runtime.guards.breaker import CircuitBreaker


class BreakerPermit:
    """The right to make one call. Say what came of it once; what is said later is ignored.

    As a context manager it says so by itself: an error of a type that counts is a failure, another error, a
    cancellation or an exit gives the permit back without counting.
    """

    __slots__ = ("_began_at", "_breaker", "_is_settled", "_permit")

    def __init__(self, breaker: CircuitBreaker, permit: Permit, began_at: float) -> None:
        self._breaker = breaker
        self._permit = permit
        self._began_at = began_at
        self._is_settled = False

    def success(self, duration: float | None = None) -> None:
        """The call has succeeded. Its duration is taken since `acquire`, unless given."""
        if self._settle_once():
            self._breaker.settle(self._permit, SUCCESS, duration=self._duration(duration))

    def failure(self, error: BaseException | Failure | None = None, duration: float | None = None) -> None:
        """The call has failed; an error of a type that does not count is ignored."""
        if self._settle_once():
            self._breaker.settle_error(self._permit, error, self._duration(duration))

    def release(self) -> None:
        """The call was not made, or says nothing about the service: give the permit back."""
        if self._settle_once():
            self._breaker.settle(self._permit, IGNORED)

    def __enter__(self) -> BreakerPermit:
        if self._permit.trial is not None:
            self._breaker.begin_trial()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._permit.trial is not None:
            self._breaker.end_trial()
        if error is None:
            self.success()
        elif isinstance(error, Exception):
            self.failure(error)
        else:
            self.release()

    def _settle_once(self) -> bool:
        if self._is_settled:
            return False
        self._is_settled = True
        return True

    def _duration(self, given: float | None) -> float:
        return self._breaker.clock.monotonic() - self._began_at if given is None else given
