"""One thing per key, made on first use, and forgotten once it is as good as new."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Keyed(Generic[T]):
    """A thread-safe mapping that makes what is missing.

    Keys may come from outside (users, domains), so it must not grow without end: past `max_keys`, whatever is idle is
    forgotten. `retire` says whether a thing is idle, that is, whether a new one would behave the same.
    """

    def __init__(self, make: Callable[[str], T], retire: Callable[[T], bool], max_keys: int = 10_000) -> None:
        self._make = make
        self._retire = retire
        self._max_keys = max_keys
        self._sweep_at = max_keys
        self._lock = threading.Lock()
        self.things: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        thing = self.things.get(key)
        if thing is not None:
            return thing
        with self._lock:
            if key not in self.things:
                if len(self.things) >= self._sweep_at:
                    self._sweep()
                self.things[key] = self._missing(key)
            return self.things[key]

    def __len__(self) -> int:
        return len(self.things)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self.things.values()))

    def _missing(self, key: str) -> T:
        return self._make(key)

    def _forget(self, key: str) -> None:
        del self.things[key]

    def _sweep(self) -> None:
        for key, thing in list(self.things.items()):
            if self._retire(thing):
                self._forget(key)
        # When most are in use, sweep again only after the number has doubled, or every new key would pay for a sweep.
        self._sweep_at = max(self._max_keys, 2 * len(self.things))
