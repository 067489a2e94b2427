"""What can be guarded, and what would only look guarded."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, NoReturn

from holdfast.errors import ConfigError

_GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def name_of(fn: Callable[..., Any]) -> str:
    """Module and name; a partial goes by its function, and a callable object by its class."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return f"{named.__module__}.{named.__qualname__}"


def is_async(fn: object) -> bool:
    """Whether calling it gives a coroutine."""
    return any(inspect.iscoroutinefunction(one) for one in _callables(fn))


def refuse_unguardable(fn: object) -> None:
    """Refuse what would look guarded and not be."""
    if isinstance(fn, FunctionType) and not fn.__code__.co_flags & _GENERATOR_FLAGS:
        return
    if isinstance(fn, staticmethod | classmethod):
        raise ConfigError(f"{fn!r}: put the policy below @{type(fn).__name__}, directly on the function")
    if not callable(fn):
        raise ConfigError(f"{fn!r}: a policy guards a function")
    if any(inspect.isgeneratorfunction(one) or inspect.isasyncgenfunction(one) for one in _callables(fn)):
        raise ConfigError(
            f"{name_of(fn)} is a generator: it would run outside its guard. Guard the call that may fail inside it"
        )


def _callables(fn: object) -> tuple[object, ...]:
    """The function, and what runs when it is an object that can be called."""
    return fn, getattr(fn, "__call__", None)  # noqa: B004 - the method, not whether there is one


def refuse_coroutine(value: Any) -> NoReturn:
    """A coroutine from a sync function has not run yet: returning it would leave it unguarded."""
    value.close()
    raise TypeError("the function returned a coroutine; make it `async def`, or use `acall` instead of `call`")
