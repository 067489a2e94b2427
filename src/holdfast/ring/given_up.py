"""What a ring gives up, the places that take it, and how its elements are kept as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from holdfast.clock import new_secret
from holdfast.errors import Invalid, RingClosed
from holdfast.json_values import ENCODER, UNSTORABLE, difference, refuse_lies, why
from holdfast.redact import error_in_words
from holdfast.runtime.ring_letters import stub_of
from holdfast.runtime.run import storable
from holdfast.types import Attempt, Change, Failure

T = TypeVar("T")

Encode = Callable[[Any], Any]
"""From an element to a JSON value."""
Decode = Callable[[Any], Any]
"""And back."""

LARGEST_BYTES: Final = 64 * 1024 * 1024
"""An element that is larger than this as JSON is kept by its beginning alone: no store takes values of any size."""

_TEXT: Final = 10_000


class GivenUp(Struct, frozen=True, kw_only=True, eq=False):
    """Elements of one batch that a consumer of a ring will not see again by itself: those of the call that failed."""

    ring: str
    consumer: str
    batch: int
    """The number of the batch that they were in."""
    offset: int | None
    """That of the first of them; the others follow without a gap. None in a ring without offsets."""
    elements: tuple[Any, ...]
    failure: Failure
    attempts: tuple[Attempt, ...]
    """Every call with them, oldest first."""
    reason: str
    at: float
    """When they were given up, by the clock of this machine."""

    @property
    def history(self) -> tuple[Attempt, ...]:
        """The attempts; one that is made of the failure where there are none, as no letter goes without its cause."""
        failure = self.failure
        return self.attempts or (
            Attempt(
                number=1,
                started_at=self.at,
                ended_at=self.at,
                outcome=Change.BURY,
                failure_type=failure.type,
                severity=failure.severity,
                error_name=failure.error_name,
                message=failure.message,
                traceback=failure.traceback,
                fingerprint=failure.fingerprint,
            ),
        )


class Letters(Protocol):
    """Where the dead letters of one consumer go. Not for several threads at a time."""

    def write(self, given_up: Sequence[GivenUp]) -> int:
        """Durable on return; how many letters it made of them. StoreError or OSError: not now.

        The same objects may be given again, at any time: what was written of them before is not doubled by that.
        """

    def close(self) -> None:
        """Nothing more is written."""


class Unhandled(RingClosed):
    """A consumer was not, or not to the end, at elements that it was given once more: its ring is closing.

    Never what a consumer has raised itself, such as the RingClosed of another ring that it feeds.
    """


class Hand(Struct, frozen=True, eq=False):
    """A consumer of a running ring, for elements that it is given once more."""

    handle: Callable[[tuple[Any, ...]], None]
    """Blocks until the consumer has handled them, on its own thread and under its retry policy; raises what it raised;
    Unhandled where they have to wait for the ring's next run."""
    decode: Decode | None = None

    def __call__(self, values: Sequence[Any]) -> None:
        """Hand over elements as they were kept; Invalid where one of them cannot be decoded."""
        self.handle(tuple(values) if self.decode is None else tuple(map(self._decoded, range(len(values)), values)))

    def _decoded(self, place: int, value: Any) -> Any:
        try:
            return value if self.decode is None else self.decode(value)
        except Exception as error:  # whatever the user's own function raises
            raise Invalid(f"element {place} cannot be decoded: {error_in_words(error)}") from error


# ---------------------------------------------------------------- elements as JSON


class Kept(Struct, frozen=True):
    """An element as it is kept."""

    data: bytes
    """JSON; where it has none, what stands in its place."""
    is_readable: bool = True


def kept(element: Any, encode: Encode | None) -> Kept:
    """An element as JSON that is read back as the same; otherwise its text, with the reason. Raises nothing."""
    try:
        value = element if encode is None else encode(element)
        data = ENCODER.encode(value)
        refuse_lies(value, data)
        changed = difference(value, msgspec.json.decode(data)) if encode is None else ""
    except UNSTORABLE as error:
        reason = why(error) if encode is None else f"encode failed: {error_in_words(error)}"
        return _unreadable(element, reason)
    except Exception as error:  # whatever the user's own function raises
        return _unreadable(element, f"encode failed: {error_in_words(error)}")
    if changed:
        what, _, _ = changed.partition(";")  # an element has no annotation
        return _unreadable(element, f"{what}; give the consumer encode= and decode=")
    if len(data) > LARGEST_BYTES:
        text = data[:_TEXT].decode(errors="ignore")
        return Kept(stub_of(text, f"it has {len(data):,} bytes as JSON, and this is their beginning"), False)
    return Kept(data)


def _unreadable(element: Any, reason: str) -> Kept:
    try:
        text = repr(element)
    except Exception as error:  # a broken __repr__ must not lose the letter
        text = f"<{type(element).__name__} without a text: {error_in_words(error)}>"
    if len(text) > _TEXT:
        text = f"{text[:_TEXT]}… {len(text) - _TEXT:,} characters left out"
    return Kept(stub_of(storable(text), storable(reason)), False)


# ---------------------------------------------------------------- ids


class LetterIds:
    """Ids of one consumer's letters: UUIDs of version 7.

    With an offset the id is that of these elements at this offset: given up again after a restart, they are the same
    letter. Without one nothing says that two runs of a program have the same elements, so each letter is a new one.
    """

    def __init__(self) -> None:
        self._run = new_secret()
        self._numbers = itertools.count()

    def new(self, given_up: GivenUp, start: int, some: Sequence[Kept]) -> str:
        """The id of these elements, of which the first is at this place of what was given up."""
        digest = sha256()
        for name in (given_up.ring, given_up.consumer):
            data = name.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8) + data)
        if given_up.offset is None:
            digest.update(self._run + next(self._numbers).to_bytes(8))
        else:
            digest.update(b"%d %d" % (given_up.offset + start, len(some)))
            for one in some:
                digest.update(b"," + one.data)
        drawn = int.from_bytes(digest.digest()[:16])
        if given_up.offset is None:
            drawn = drawn & (1 << 80) - 1 | min(max(round(given_up.at * 1000), 0), (1 << 48) - 1) << 80
        drawn = drawn & ~(0xF << 76) | 0x7 << 76
        text = f"{drawn & ~(0b11 << 62) | 0b10 << 62:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Unwritten(Generic[T]):
    """What was made of things that are not written yet, so that they are written again as they were."""

    def __init__(self, make: Callable[[GivenUp], T]) -> None:
        self._make = make
        self._made: dict[int, tuple[GivenUp, T]] = {}  # with the object, or another might get its id

    def of(self, given_up: GivenUp) -> T:
        """What is made of it, or was before."""
        if id(given_up) not in self._made:
            self._made[id(given_up)] = (given_up, self._make(given_up))
        return self._made[id(given_up)][1]

    def forget(self, given_up: Sequence[GivenUp]) -> None:
        """These are written."""
        for one in given_up:
            self._made.pop(id(one), None)
