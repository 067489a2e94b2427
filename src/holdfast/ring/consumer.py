"""What a ring hands its elements to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.runtime.guards.functions import is_async

T = TypeVar("T")


class Consumer(Generic[T]):
    """A consumer of a ring: write `consume`, sync or async; `close` where something has to be given back.

    Every call is made on one thread, or as one task, of its own: one after the other, in the order of the elements. A
    batch is finished when `consume` returns; a consumer that raises has finished none of it.
    """

    def consume(self, elements: Sequence[T]) -> Any:
        """Handle these elements. The list is shared with the other consumers: change nothing in it."""
        raise NotImplementedError

    def close(self) -> Any:
        """Everything is consumed, and nothing more will come."""


class Callee(Struct, frozen=True):
    """A consumer as the ring calls it."""

    consumer: Any
    name: str
    consume: Callable[[Sequence[Any]], Any]
    close: Callable[[], Any] | None
    is_async: bool


def callee_of(consumer: object, name: str | None) -> Callee:
    """The two calls of a consumer, or of a plain function."""
    if inspect.isclass(consumer):
        raise ConfigError(f"consumer={consumer!r}: must be an object of the class, not the class itself")
    consume = getattr(consumer, "consume", None)
    close = getattr(consumer, "close", None) if callable(consume) else None
    if not callable(consume):
        consume = consumer
    if not callable(consume):
        raise ConfigError(f"consumer={consumer!r}: must have a method consume(elements), or be a function of them")
    if inspect.isgeneratorfunction(consume) or inspect.isasyncgenfunction(consume):
        raise ConfigError(f"consumer={consumer!r}: is a generator, which would run nothing; return from it instead")
    own = name if name is not None else getattr(consumer, "__name__", type(consumer).__name__)
    return Callee(consumer, own, consume, close if callable(close) else None, is_async(consume))
