"""What the consumer's thread tells the event loop, and what it asks it for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from holdfast.errors import SourceError
from holdfast.ports import Progress
from holdfast.types import Message, Place


class Answer:
    """What the owner says of partitions that it has to give back: given on the event loop, awaited by the thread."""

    def __init__(self, places: frozenset[Place], ring: Callable[[], None]) -> None:
        self.places = places
        self.progress: Mapping[Place, Progress] | None = None
        """None until it is given."""
        self._ring = ring

    def give(self, progress: Mapping[Place, Progress]) -> None:
        """Here it is."""
        self.progress = progress
        self._ring()


class Audience(Protocol):
    """Who hears of what happens on the thread; all of it is called on the event loop, in its order."""

    def deliver(self, messages: list[Message]) -> None:
        """These have come."""

    def assigned(self, positions: Mapping[Place, int], deleted: int) -> None:
        """These partitions are ours, if any; so many messages were deleted before we came to read them."""

    def revoke(self, answer: Answer) -> None:
        """These partitions go to somebody else once the answer is given."""

    def give_up(self, answer: Answer) -> None:
        """The answer took too long."""

    def lost(self, places: Collection[Place]) -> None:
        """These partitions are somebody else's already."""

    def trouble(self, why: str) -> None:
        """It may be that the broker is away."""

    def failed(self, error: SourceError) -> None:
        """It cannot work as it is; the thread ends."""

    def ended(self) -> None:
        """The thread has left the group and ended."""
