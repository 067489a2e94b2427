"""What every shared guard is: a value that the store says, and notes that this worker has still to add to it."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from typing import Final, Generic, TypeVar

from holdfast.ports import Value, ValueChange

State = TypeVar("State")
Note = TypeVar("Note")

SKEW_S: Final = 1.0
"""Instants this far ahead of the clock are other workers' estimates of it; those further ahead are mistakes."""

_MOST_NOTES: Final = 10_000  # while the store does not answer, the oldest are forgotten
_logger = logging.getLogger("holdfast.shared")


class GuardChange(ValueChange, frozen=True):
    """A change that also says which notes it carries: those up to this number."""

    upto: int = 0


class Guard(ABC, Generic[State, Note]):
    """One shared value. What it becomes is always worked out anew from what the store said last, plus the notes."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.version = 0
        """What a change has to expect; 0 where the store has no value."""
        self.known: State = self.empty()
        self.notes: deque[tuple[int, Note]] = deque()
        self._noted = 0
        self._is_told = False

    # ---- what the store says

    def absorb(self, value: Value, now: float) -> None:
        """Take over what the store says. What cannot be read counts as absent, and is replaced by the next change."""
        self.version = 0 if value.data is None else value.version
        known = None if value.data is None else self.read(value.data, now)
        if known is None and value.data is not None and not self._is_told:
            self._is_told = True
            _logger.warning("the shared value %r cannot be read and is taken as absent", self.key)
        self.known = self.empty() if known is None else known

    def forget(self) -> None:
        """What was known is wrong: begin as if the store had nothing."""
        self.version = 0
        self.known = self.empty()

    # ---- what this worker adds

    def add(self, note: Note) -> None:
        """Remember something until it has reached the store."""
        self._noted += 1
        self.notes.append((self._noted, note))
        if len(self.notes) > _MOST_NOTES:
            self.notes.popleft()

    def landed(self, upto: int) -> None:
        """The notes up to this number have reached the store."""
        while self.notes and self.notes[0][0] <= upto:
            self.notes.popleft()

    def lost(self, upto: int) -> None:
        """Nobody knows whether the notes up to this number have reached the store; keep what may count twice."""

    def change(self, state: State, now: float) -> GuardChange | None:
        """The change that makes this the shared value, with all notes in it; None where there is nothing to change."""
        data = self.write(state, now)
        if data is None and self.version == 0:
            return None
        return GuardChange(self.key, self.version, data, self.upto)

    @property
    def upto(self) -> int:
        """The number of the newest note."""
        return self._noted

    @property
    def is_urgent(self) -> bool:
        """Whether a note must not wait."""
        return False

    # ---- what differs between them

    @abstractmethod
    def empty(self) -> State:
        """What it is where the store has no value."""

    @abstractmethod
    def read(self, data: bytes, now: float) -> State | None:
        """The value, made safe against mistaken clocks and foreign settings; None where it cannot be read."""

    @abstractmethod
    def write(self, state: State, now: float) -> bytes | None:
        """The value as bytes; None where there is nothing to remember."""

    @abstractmethod
    def draft(self, now: float) -> State:
        """What is known, with the notes added: a copy to go on with."""

    @abstractmethod
    def differs(self, draft: State) -> bool:
        """Whether the notes in a draft have changed anything."""

    @abstractmethod
    def set_back(self, now: float) -> None:
        """The clock has gone back: nothing that is known may lie too far ahead of it."""
