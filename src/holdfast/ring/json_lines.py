"""Dead letters of a ring in a file: one JSON object a line, appended by as many consumers and processes as like.

    {"id": …, "at": "2026-01-31T12:00:00.000Z", "ring": …, "consumer": …, "batch": …, "offset": …, "error": {"type": …,
     "message": …, "failure_type": …, "fingerprint": …, "traceback": …}, "attempts": 3, "elements": […]}

A line is written as a whole or not at all; what a crash has torn is told apart, and kept. Messages and tracebacks go
without what looks like a secret. The elements are as they were, or they could not be reprocessed: so the file is made
for its owner alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.json_values import UNSTORABLE
from holdfast.redact import redacted_text
from holdfast.ring import whole_file
from holdfast.ring.given_up import Encode, GivenUp, LetterIds, Letters, Unwritten, kept
from holdfast.runtime.ring_letters import refuse_depth
from holdfast.runtime.run import storable
from holdfast.runtime.streams.texts import instant_text
from holdfast.types import Failure

try:
    from fcntl import LOCK_EX, LOCK_NB, flock

    _has_locks = True
except ImportError:  # Windows: one process a file
    _has_locks = False

_OWNER: Final = 0o600
_POLL_S: Final = 0.001
_NEWLINE: Final = b"\n"
_MANY_BRACKETS: Final = 200


class LetterError(Struct, frozen=True, kw_only=True):
    """Why the elements of a line were given up: the failure of the last call with them."""

    type: str
    message: str = ""
    failure_type: str = ""
    fingerprint: str = ""
    traceback: str = ""


class FileLetter(Struct, frozen=True, kw_only=True):
    """A dead letter of a file; its elements are JSON values."""

    id: str
    at: str
    """When they were given up: ISO 8601, UTC."""
    ring: str
    consumer: str
    batch: int
    offset: int | None
    error: LetterError
    attempts: int
    elements: tuple[Any, ...]
    unreadable: tuple[int, ...] = ()
    """The places of elements that were not kept as JSON: in each stands the text of one, with the reason."""


class _Line(Struct, kw_only=True):
    """The same as it is written, in this order."""

    id: str
    at: str
    ring: str
    consumer: str
    batch: int
    offset: int | None
    error: LetterError
    attempts: int
    elements: list[Raw]
    unreadable: list[int] | UnsetType = UNSET


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(FileLetter).decode


# ---------------------------------------------------------------- writing


def file_letters(path: str | os.PathLike[str], *, ring: str, consumer: str, encode: Encode | None) -> Letters:
    """Letters in a file, which is made at the first one; ConfigError where its folder is not there."""
    own = Path(path).absolute()
    if own.is_dir() or not own.parent.is_dir():
        what = "is a folder" if own.is_dir() else f"there is no folder {own.parent}"
        raise ConfigError(f"dead_letters={str(path)!r}: {what}; give the path of a file in a folder that exists")
    return _FileLetters(own, ring, consumer, encode)


class _FileLetters:
    def __init__(self, path: Path, ring: str, consumer: str, encode: Encode | None) -> None:
        self._path = path
        self._ring = ring
        self._consumer = consumer
        self._encode = encode
        self._ids = LetterIds()
        self._unwritten = Unwritten(self._made)

    def write(self, given_up: Sequence[GivenUp]) -> int:
        append_lines(self._path, [self._unwritten.of(one) for one in given_up])
        self._unwritten.forget(given_up)
        return len(given_up)

    def close(self) -> None:
        """No file is open between two letters."""

    def _made(self, given_up: GivenUp) -> bytes:
        elements = [kept(one, self._encode) for one in given_up.elements]
        unreadable = [place for place, one in enumerate(elements) if not one.is_readable]
        line = _Line(
            id=self._ids.new(given_up, 0, elements),
            at=instant_text(given_up.at),
            ring=self._ring,
            consumer=self._consumer,
            batch=given_up.batch,
            offset=given_up.offset,
            error=error_of(given_up.failure),
            attempts=len(given_up.history),
            elements=[Raw(one.data) for one in elements],
            unreadable=unreadable or UNSET,
        )
        return _encode(line)


def error_of(failure: Failure) -> LetterError:
    """A failure as a line has it, without secrets."""
    return LetterError(
        type=storable(failure.error_name),
        message=redacted_text(storable(failure.message)),
        failure_type=failure.type.value,
        fingerprint=failure.fingerprint,
        traceback=redacted_text(storable(failure.traceback)),
    )


def line_of(letter: FileLetter) -> bytes:
    """A letter that was read, as a line again."""
    fields = msgspec.structs.asdict(letter)
    if not letter.unreadable:
        del fields["unreadable"]
    return _encode(fields)


def append_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append these, each with its newline, all or none of them; durable on return. OSError where it cannot be done."""
    if not lines:
        return
    try:
        _append(path, lines)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # a write does not say to which file it was


def _append(path: Path, lines: Sequence[bytes]) -> None:
    with _locked(path) as file:
        size = os.fstat(file).st_size
        is_torn = size > 0 and _byte_at(file, size - 1) != _NEWLINE  # a crash in the middle of a line
        try:
            _write_all(file, b"".join((_NEWLINE if is_torn else b"", *(line + _NEWLINE for line in lines))))
            os.fsync(file)
        except BaseException:
            # Nobody else appends meanwhile. Where this fails too, the line is torn, or comes twice with one id.
            with suppress(OSError):
                os.ftruncate(file, size)
            raise
        if size == 0:
            sync_folder(path)


def _byte_at(file: int, place: int) -> bytes:
    os.lseek(file, place, os.SEEK_SET)  # pread is not there on Windows, and what is written goes to the end anyway
    return os.read(file, 1)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file of this name, open for appending and locked, also where it was moved aside a moment ago."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _OWNER)
        try:
            if lock_in_place(file, path):
                yield file
                return
        finally:
            os.close(file)


def lock_in_place(file: int, path: Path) -> bool:
    """Lock an open file until it is closed; False where its name belongs to another one by now.

    It is asked for again and again: one who moved the file aside keeps its lock for as long as it is reprocessed.
    """
    clock = SystemClock()
    while is_in_place(file, path):
        if try_lock(file):
            return is_in_place(file, path)
        clock.sleep(_POLL_S)
    return False


def try_lock(file: int) -> bool:
    """Lock an open file until it is closed; False where somebody else has."""
    try:
        if _has_locks:
            flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_in_place(file: int, path: Path) -> bool:
    """Whether an open file has this name still."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def sync_folder(path: Path) -> None:
    """Make the name of a file durable, where the platform can."""
    whole_file.sync_folder(str(path.parent))


# ---------------------------------------------------------------- reading


def letter_in(line: bytes) -> FileLetter | None:
    """The letter of a line; None where it is torn, or none of ours."""
    try:
        if line.count(b"[") + line.count(b"{") > _MANY_BRACKETS:
            refuse_depth(msgspec.json.decode(line))
        return _decode(line)
    except UNSTORABLE:
        return None


def read_letters(path: str | os.PathLike[str]) -> Iterator[FileLetter]:
    """The letters of a file, oldest first, each once; lines that are none are passed over. Nothing is changed.

    Those that a reprocessing which was cut short has left are not among them: see `reprocess`.
    """
    seen: set[str] = set()
    with open(path, "rb") as file:
        for line in file:
            letter = letter_in(line)
            if letter is not None and letter.id not in seen:
                seen.add(letter.id)
                yield letter


if TYPE_CHECKING:
    _contract: type[Letters] = _FileLetters
