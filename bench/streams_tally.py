"""What a consumer under test says of itself: when its handler had the first message, and when it had all of them.

Without any package, since a peer may live in an environment of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path

FIRST, HANDLED = "first", "handled"


class Tally:
    """Be the handler: one call for each message, from any thread, or one for many from a single thread."""

    def __init__(self) -> None:
        self._total = int(os.environ["STREAMS_TOTAL"])
        self._path = Path(os.environ["STREAMS_FOLDER"]) / "tally"
        self._next = count(1).__next__  # one step of the interpreter, so threads need no lock
        self._many = 0

    def one(self) -> None:
        number = self._next()
        if number == 1:
            self.note(FIRST)
        if number == self._total:
            self.note(HANDLED)

    def many(self, messages: int) -> None:
        if not self._many:
            self.note(FIRST)
        self._many += messages
        if self._many >= self._total > self._many - messages:
            self.note(HANDLED)

    def note(self, word: str) -> None:
        """The monotonic clock is the same one in every process."""
        line = f"{word} {time.monotonic()}\n"
        with self._path.open("a") as file:
            file.write(line)


def noted(folder: Path, words: Sequence[str] = (FIRST, HANDLED)) -> dict[str, float]:
    """What was noted so far, by word."""
    path = folder / "tally"
    lines = path.read_text().splitlines() if path.exists() else []
    found = dict(line.split() for line in lines if line.count(" ") == 1)
    return {word: float(found[word]) for word in words if word in found}
