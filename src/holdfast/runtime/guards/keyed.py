"""One thing per key, made on first use, and forgotten once it is as good as new."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Keyed(Generic[T]):
    """A thread-safe mapping that makes what is missing.

    Keys may come from outside (users, domains), so it must not grow without end: past `max_keys`, whatever is idle is
    forgotten. Forgetting changes nothing, since idle means that a new one would behave the same.
    """

    def __init__(self, make: Callable[[str], T], is_idle: Callable[[T], bool], max_keys: int = 10_000) -> None:
        self._make = make
        self._is_idle = is_idle
        self._max_keys = max_keys
        self._sweep_at = max_keys
        self._lock = threading.Lock()
        self._things: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        thing = self._things.get(key)
        if thing is not None:
            return thing
        with self._lock:
            if key not in self._things:
                if len(self._things) >= self._sweep_at:
                    self._sweep()
                self._things[key] = self._make(key)
            return self._things[key]

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._things.values()))

    def _sweep(self) -> None:
        self._things = {key: thing for key, thing in self._things.items() if not self._is_idle(thing)}
        # When most are in use, sweep again only after the number has doubled, or every new key would pay for a sweep.
        self._sweep_at = max(self._max_keys, 2 * len(self._things))
