"""Chance that follows a script."""

from __future__ import annotations

from collections.abc import Iterable


class ScriptedRng:
    """Returns the given numbers, each in [0, 1), in order, and then begins again."""

    def __init__(self, numbers: Iterable[float]) -> None:
        self._numbers = tuple(numbers)
        if not self._numbers or not all(0 <= number < 1 for number in self._numbers):
            raise ValueError(f"numbers={self._numbers}: give at least one, each in [0, 1)")
        self._drawn = 0

    def __call__(self) -> float:
        """The next number."""
        number = self._numbers[self._drawn % len(self._numbers)]
        self._drawn += 1
        return number
