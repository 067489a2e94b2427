"""What handlers of messages have done, in a file that every worker process appends to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.clock import SystemClock

What = Literal["start", "end", "fail", "stop"]
Name = tuple[str, int]
"""A message, whatever the server calls it: its key, and its number there."""

_FIELDS = 10
_CLOSED = "."


class Handling(Struct, frozen=True):
    """One line of a handler: that it began, ended, failed by itself or was stopped; `at` is monotonic time."""

    stream: str
    message: str
    """Its id: where it was written."""
    key: str
    n: int
    attempt: int
    what: What
    pid: int = 0
    parent: int = 0
    """The worker, where it ran in a process of its own."""
    at: float = 0.0

    @property
    def name(self) -> Name:
        """Which message it was."""
        return self.key, self.n


class StreamLedger:
    """An O_APPEND file: one write for all messages of a call, so that a batch is noted whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clock = SystemClock()
        self._fd: int | None = None

    def write(self, rows: Iterable[tuple[str, str, str, int, int, What]]) -> None:
        """Add lines. Each begins with its newline, so that one torn by a kill spoils no other."""
        if self._fd is None:
            self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        who, at = f"{os.getpid()} {os.getppid()}", self._clock.monotonic()
        lines = "".join(f"\n{' '.join(map(str, row))} {who} {at!r} {_CLOSED}" for row in rows)
        os.write(self._fd, lines.encode())

    def read(self) -> list[Handling]:
        """Every whole line, in order."""
        if not self.path.exists():
            return []
        return [_handling(words) for words in map(str.split, self.path.read_text().splitlines()) if _is_whole(words)]


def _is_whole(words: Sequence[str]) -> bool:
    return len(words) == _FIELDS and words[-1] == _CLOSED


def _handling(words: Sequence[str]) -> Handling:
    stream, message, key, n, attempt, what, pid, parent, at, _ = words
    numbers = (int(pid), int(parent), float(at))
    return Handling(stream, message, key, int(n), int(attempt), what, *numbers)  # type: ignore[arg-type]
