"""The dead letters of a ring's consumer: into the inbox of an app, or into a file of JSON lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.json_values import MAX_BYTES
from holdfast.ports import Exchange
from holdfast.ring.given_up import Encode, GivenUp, Hand, Kept, LetterIds, Letters, Unwritten, kept
from holdfast.ring.json_lines import file_letters
from holdfast.runtime.ring_letters import GATE, RingLetter, ring_payload, stub_of
from holdfast.runtime.ring_origins import QUEUE, RingOrigin
from holdfast.runtime.rings import task_of
from holdfast.runtime.run import storable
from holdfast.runtime.streams.texts import bounded_attempt, storable_attempt
from holdfast.types import Attempt, Change, End, NewJob

if TYPE_CHECKING:
    from holdfast.app import App

__all__ = ["GivenUp", "Hand", "Letters", "file_letters", "inbox_letters"]

_logger = logging.getLogger("holdfast.ring")

KEEP_S: Final = 7 * 86_400.0
"""So long dead letters are kept, as those of tasks are by default."""

_AROUND_BYTES: Final = 4096
"""What a payload has beside its elements, at most."""
_CALL_BYTES: Final = 8 * 1024 * 1024
_CALL_LETTERS: Final = 200
"""Letters that go to the store at once: more may be more than it takes in one call."""
_REFUSALS: Final = (StoreError, ConfigError, ValueError, TypeError, OverflowError)
"""What a store, or a driver, raises of what it cannot write."""
_NO_VALUES: Final = 2**62  # newer than every version
_SKEW_S: Final = 0.5


def inbox_letters(app: App, *, ring: str, consumer: str, encode: Encode | None, keep_s: float = KEEP_S) -> Letters:
    """Letters in the inbox of an app; opened at the first one."""
    return _InboxLetters(app, ring, consumer, encode, keep_s)


class _InboxLetters:
    def __init__(self, app: App, ring: str, consumer: str, encode: Encode | None, keep_s: float) -> None:
        self._app = app
        self._ring = ring
        self._consumer = consumer
        self._encode = encode
        self._keep_s = keep_s
        self._shift_s = 0.0
        self._ids = LetterIds()
        self._unwritten = Unwritten(self._made)

    def write(self, given_up: Sequence[GivenUp]) -> int:
        self._shift_s = self._ahead_s()
        letters = [letter for one in given_up for letter in self._unwritten.of(one)]
        for some in _parted(letters):
            self._write(some)
        self._unwritten.forget(given_up)
        return len(letters)

    def close(self) -> None:
        """The store is the app's."""

    # ---- from what was given up to records

    def _made(self, given_up: GivenUp) -> list[NewJob]:
        attempts = [_shifted(storable_attempt(one), self._shift_s) for one in given_up.history]
        end = End(change=Change.BURY, attempts=tuple(attempts), reason=storable(given_up.reason), keep_s=self._keep_s)
        return [
            NewJob(
                id=self._ids.new(given_up, start, some),
                task=task_of(self._ring, self._consumer),
                payload=self._payload(given_up, start, some),
                queue=f"{QUEUE}{self._ring}",
                gates=(GATE,),
                end=end,
            )
            for start, some in _in_payloads([kept(one, self._encode) for one in given_up.elements])
        ]

    def _payload(self, given_up: GivenUp, start: int, some: Sequence[Kept]) -> bytes:
        origin = RingOrigin(
            kind="ring",
            ring=self._ring,
            consumer=self._consumer,
            batch=given_up.batch,
            offset=None if given_up.offset is None else given_up.offset + start,
            count=len(some),
        )
        unreadable = [place for place, one in enumerate(some) if not one.is_readable]
        return ring_payload(origin, [one.data for one in some], unreadable)

    def _ahead_s(self) -> float:
        """How far the store's clock is ahead: by it a store tells what happened since a letter ended, and before."""
        ahead_s = self._ask() - self._app.clock.now()
        return ahead_s if abs(ahead_s) > _SKEW_S else 0.0

    def _ask(self) -> float:
        """The instant now on the store's clock; raises while the store cannot be used."""
        return self._app.bridge.run(self._app.store.exchange(Exchange(seen=_NO_VALUES))).now

    # ---- writing

    def _write(self, letters: Sequence[NewJob]) -> None:
        if self._refusal(letters) is None:
            return
        for letter in letters:
            if len(letters) == 1 or self._refusal([letter]) is not None:
                self._write_less(letter)

    def _refusal(self, letters: Sequence[NewJob]) -> Exception | None:
        """Write these; why the store does not take them, where it takes others."""
        try:
            self._app.store.enqueue_now(letters)
        except StoreAway:
            raise
        except _REFUSALS as error:
            self._ask()  # if that fails too, it is not for the letters
            return error
        return None

    def _write_less(self, letter: NewJob) -> None:
        """A letter that is refused goes without its history; and in the worst case without its elements, to the log."""
        error = self._refusal([_shortened(letter)])
        if error is None:
            _logger.error("the letter %s was refused, and is in the inbox without its history", letter.id)
            return
        stub = stub_of("", f"the store refuses its elements: {error}")
        origin = msgspec.json.decode(letter.payload, type=RingLetter).origin
        bare = replace(_shortened(letter), payload=ring_payload(origin, [stub], [0]))
        last = self._refusal([bare])
        if last is not None:
            raise StoreError(f"the letter {letter.id} is refused by the store: {last}") from last
        _logger.critical("the letter %s is in the inbox without its elements: %r", letter.id, letter.payload[:10_000])


def _in_payloads(elements: Sequence[Kept]) -> Iterator[tuple[int, Sequence[Kept]]]:
    """The elements in their order, in parts that a payload can hold, each with the place of its first one.

    One that is larger by itself is stored whole, since nothing else has it: it can be replayed, but not edited.
    """
    start = size = 0
    for place, one in enumerate(elements):
        own = len(one.data) + 1
        if place > start and size + own > MAX_BYTES - _AROUND_BYTES:
            yield start, elements[start:place]
            start, size = place, 0
        size += own
    yield start, elements[start:]


def _parted(letters: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The letters in their order, no more at a time than a store takes well."""
    some: list[NewJob] = []
    size = 0
    for letter in letters:
        attempts = () if letter.end is None else letter.end.attempts
        own = len(letter.payload) + sum(len(one.traceback) + len(one.message) for one in attempts)
        if some and (size + own > _CALL_BYTES or len(some) == _CALL_LETTERS):
            yield some
            some, size = [], 0
        some.append(letter)
        size += own
    if some:
        yield some


def _shifted(attempt: Attempt, by_s: float) -> Attempt:
    if not by_s:
        return attempt
    return replace(attempt, started_at=attempt.started_at + by_s, ended_at=attempt.ended_at + by_s)


def _shortened(letter: NewJob) -> NewJob:
    """With its last attempt alone, and of that only what every store can hold."""
    if letter.end is None or not letter.end.attempts:
        return letter
    return replace(letter, end=replace(letter.end, attempts=(bounded_attempt(letter.end.attempts[-1]),)))


if TYPE_CHECKING:
    _contract: type[Letters] = _InboxLetters
