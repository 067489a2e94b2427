"""The loop form: a policy around code that is not a function."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError, HoldfastError, TimeLimitExceeded
from holdfast.runtime.guards.call import GuardedCall
from holdfast.runtime.guards.drivers import aenter, apause, enter, pause
from holdfast.runtime.guards.switch import SWITCH

if TYPE_CHECKING:
    import asyncio


class Attempts:
    """The attempts of one guarded block; a loop over it ends when one has succeeded. See `Policy.attempts`.

    A second loop over it is a second guarded block.
    """

    def __init__(self, begin: Callable[[], GuardedCall]) -> None:
        self._begin = begin
        self._call = begin()
        self._current: Attempt | None = None

    def __iter__(self) -> Attempts:
        if self._call.policy.timeout is not None:
            raise ConfigError("timeout: a block of sync code cannot be interrupted; guard a function, or use async for")
        self._call.policy.refuse_async_parts()
        return self._anew()

    def __next__(self) -> Attempt:
        if not self._goes_on():
            raise StopIteration
        if self._call.attempts and SWITCH.has_policies:
            pause(self._call)
        return self._next_attempt(is_async=False)

    def __aiter__(self) -> Attempts:
        return self._anew()

    async def __anext__(self) -> Attempt:
        if not self._goes_on():
            raise StopAsyncIteration
        if self._call.attempts and SWITCH.has_policies:
            await apause(self._call)
        return self._next_attempt(is_async=True)

    def _anew(self) -> Attempts:
        self._call, self._current = self._begin(), None
        return self

    def _goes_on(self) -> bool:
        if self._current is None:
            return True
        if not self._current.is_over:
            raise HoldfastError("an attempt was not used: write `with attempt:` around the guarded code")
        return not self._current.is_last

    def _next_attempt(self, *, is_async: bool) -> Attempt:
        self._current = Attempt(self._call, is_async=is_async)
        return self._current


class Attempt:
    """One attempt of a guarded block: `with attempt:` in a `for`, `async with attempt:` in an `async for`.

    Entering it passes the gates (breaker, bulkhead, limit); leaving it gives back what was taken and judges what came.
    """

    __slots__ = ("_call", "_is_async", "_timer", "is_last", "is_over", "number")

    def __init__(self, call: GuardedCall, *, is_async: bool) -> None:
        self._call = call
        self._is_async = is_async
        self._timer: asyncio.Timeout | None = None
        self.number = call.attempts + 1
        """Counted from 1."""
        self.is_over = False
        self.is_last = False
        """Known when it is over: True when it succeeded, or when no other follows."""

    def __enter__(self) -> Attempt:
        if self._is_async:
            raise ConfigError("in an `async for`, write `async with attempt:`")
        if SWITCH.has_policies:
            enter(self._call)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        call = self._call
        self.is_over = True
        call.leave()
        if isinstance(error, Exception):
            self.is_last = not call.failed(error, call.policy.monotonic())
        else:
            self.is_last = True
            if error is None:
                call.succeeded(call.policy.monotonic())
            else:
                call.dropped()
        if self.is_last:
            call.failure = None
        return not self.is_last

    async def __aenter__(self) -> Attempt:
        if not self._is_async:
            raise ConfigError("`async with attempt:` needs `async for`; in a `for`, write `with attempt:`")
        if SWITCH.has_policies:
            await aenter(self._call)
            policy = self._call.policy
            if policy.timeout is not None:
                self._timer = policy.clock.timeout(policy.timeout)
                await self._timer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if self._timer is None:
            return self.__exit__(kind, error, tb)
        try:
            await self._timer.__aexit__(kind, error, tb)
        except TimeoutError as over:
            limit = TimeLimitExceeded(self._call.policy.timeout or 0.0)
            if not self.__exit__(type(limit), limit, tb):
                raise limit from over
            return True
        return self.__exit__(kind, error, tb)
