"""The two ledgers that the checker believes: what clients were promised, and what handlers did."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.clock import SystemClock

What = Literal["start", "end", "fail", "stop"]

_FIELDS = 9
_CLOSED = "."


class Effect(Struct, frozen=True):
    """One line of a handler: that it began, ended, failed by itself or was stopped; `at` is monotonic time."""

    job: str
    attempt: int
    token: str
    """Of the lease that it ran under."""
    what: What
    task: str = "work"
    pid: int = 0
    parent: int = 0
    """The worker, for a job in a process of its own."""
    at: float = 0.0


class EffectLedger:
    """An O_APPEND file that every worker process writes: one write a line, kept outside of the store under test."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clock = SystemClock()
        self._fd: int | None = None

    def write(self, job: str, attempt: int, token: str, what: What, task: str) -> None:
        """Add a line. It begins with its newline, so that one torn by a kill spoils no other."""
        if self._fd is None:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        at = self._clock.monotonic()
        line = f"\n{job} {attempt} {token} {what} {task} {os.getpid()} {os.getppid()} {at!r} {_CLOSED}"
        os.write(self._fd, line.encode())

    def read(self) -> list[Effect]:
        """Every whole line, in order."""
        if not self._path.exists():
            return []
        return [_effect(words) for words in map(str.split, self._path.read_text().splitlines()) if _is_whole(words)]


def _is_whole(words: Sequence[str]) -> bool:
    return len(words) == _FIELDS and words[-1] == _CLOSED


def _effect(words: Sequence[str]) -> Effect:
    job, attempt, token, what, task, pid, parent, at, _ = words
    return Effect(job, int(attempt), token, what, task, int(pid), int(parent), float(at))  # type: ignore[arg-type]


class ClientLedger:
    """What a producer asked for, and what it was promised: `attempt id`, and `acked id` only after the reply."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.attempted: list[str] = []
        self.acked: list[str] = []
        if path.exists():
            self.reload()

    def attempt(self, ids: Iterable[str]) -> None:
        """About to be sent."""
        self._add("attempt", self.attempted, list(ids))

    def ack(self, ids: Iterable[str]) -> None:
        """The store has said yes."""
        self._add("acked", self.acked, list(ids))

    def _add(self, word: str, known: list[str], ids: list[str]) -> None:
        with open(self._path, "ab", buffering=0) as file:
            file.write("".join(f"{word} {one}\n" for one in ids).encode())
        known.extend(ids)

    def reload(self) -> None:
        """Read what other processes have written."""
        self.attempted.clear()
        self.acked.clear()
        for line in self._path.read_text().splitlines(keepends=True):
            word, _, one = line.partition(" ")
            if one.endswith("\n"):
                (self.acked if word == "acked" else self.attempted).append(one.strip())
