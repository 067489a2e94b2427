"""What a store says that a worker holds, beside what the worker knows of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

_MOST_AT_ONCE: Final = 100
"""Each is a question to the store, and nothing is settled or claimed meanwhile."""


class Held:
    """Finds the tokens under which jobs run that nobody here runs.

    A claim that was done after its sender had given it up brings jobs that nobody heard of; and a store that failed
    over may have lost what it had acknowledged. Such a job would run there for as long as its worker lives.
    """

    def __init__(self) -> None:
        self._told: Mapping[bytes, int] | None = None
        self._odd: frozenset[bytes] = frozenset()

    def hear(self, told: Mapping[bytes, int]) -> None:
        """How many jobs run under each token, as the answer to a heartbeat says."""
        self._told = told

    @property
    def is_news(self) -> bool:
        """Whether there was a heartbeat since the last look."""
        return self._told is not None

    def odd(self, known: Counter[bytes], asked: Collection[bytes]) -> list[bytes]:
        """Tokens with more jobs than are known of, now and at the look before: settlements on their way look so once.

        asked: those whose answers may still come.
        """
        told, self._told = self._told or {}, None
        before = self._odd
        self._odd = frozenset(token for token, n in told.items() if n > known[token] and token not in asked)
        return [token for token in told if token in self._odd and token in before][:_MOST_AT_ONCE]
