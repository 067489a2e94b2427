"""Letters of a file, given once more to the consumers that they died in.

The file is moved aside first, as `<file>.<n>.reprocessing`: what dies meanwhile goes to a new one. Letters that went
through are gone; those that fail again, and lines that are no letters of this ring, are appended to the file anew. What
is not done when it is stopped is put back. Only a crash leaves the moved file behind, in which those that went through
are marked: the next reprocessing takes it up first, and handles the one again that the crash has interrupted, and those
that have failed.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import Invalid, NotFound
from holdfast.policy.classify import classify as classify_error
from holdfast.ports import Clock
from holdfast.redact import error_in_words
from holdfast.ring.given_up import Hand, Unhandled
from holdfast.ring.json_lines import (
    FileLetter,
    append_lines,
    error_of,
    is_in_place,
    letter_in,
    line_of,
    lock_in_place,
    sync_folder,
    try_lock,
)
from holdfast.runtime.ring_letters import refuse_unfit
from holdfast.runtime.streams.texts import instant_text
from holdfast.types import Failure

_logger = logging.getLogger("holdfast.ring")

_AT_ONCE: Final = 100
"""So many lines that are kept are written at once."""

_LETTER: Final = b'{"id":'
_DONE: Final = b'\0"id":'
"""What a line begins with, and what it begins with once its letter has been handled."""

Classify = Callable[[BaseException], Failure]


class Reprocessed(Struct, frozen=True, kw_only=True):
    """What became of the letters of a file."""

    done: int = 0
    """Letters that their consumers have handled."""
    failed: int = 0
    """Letters that have failed again, or have nothing to be handled: they are in the file anew."""
    kept: int = 0
    """Letters of other rings, or of consumers that this one does not have: they are in the file as they were."""
    unreadable: int = 0
    """Lines that are no letters, such as one that a crash has torn: they are in the file as they were."""


def reprocess_file(
    path: str | os.PathLike[str],
    *,
    ring: str,
    consumers: Mapping[str, Hand],
    clock: Clock,
    classify: Classify = classify_error,
) -> Reprocessed:
    """Hand each letter of the file to its consumer, and say what became of them; blocks until all are handled.

    NotFound where there is no such file, nor one that an earlier reprocessing has left. What another one is at just now
    is left to it. RingClosed, where the ring closes, and OSError end it in the middle, with nothing lost.
    """
    own = Path(path).absolute()
    run = _Run(own, ring, consumers, clock, classify)
    with ExitStack() as stack:
        moved = _move_aside(own, stack)
        left = _left(own)
        if not left:
            raise NotFound(f"there is no file of dead letters at {own}")
        for one in left:
            file = moved[1] if moved is not None and one == moved[0] else _take_up(one, stack)
            if file is not None:
                error = run.take(file)
                os.unlink(one)
                if error is not None:
                    raise error
        sync_folder(own)
    return run.counts


def _move_aside(path: Path, stack: ExitStack) -> tuple[Path, BinaryIO] | None:
    """Give the file another name, and keep its lock; None where there is none."""
    while True:
        file = _open(path, stack)
        if file is None:
            return None
        if lock_in_place(file.fileno(), path):
            # Looked for under the lock: whoever moved another file aside has done it before this one had its name.
            number = 1 + max((_number_of(one, path) or 0 for one in _left(path)), default=0)
            moved = path.with_name(f"{path.name}.{number}.reprocessing")
            os.rename(path, moved)
            sync_folder(path)
            return moved, file


def _take_up(path: Path, stack: ExitStack) -> BinaryIO | None:
    """A file that a reprocessing has left behind; None where that one is still at it."""
    file = _open(path, stack)
    if file is None:
        return None
    if not try_lock(file.fileno()):
        _logger.warning("%s is being reprocessed, and left to whoever does it", path)
        return None
    return file if is_in_place(file.fileno(), path) else None


def _open(path: Path, stack: ExitStack) -> BinaryIO | None:
    try:
        return stack.enter_context(open(path, "rb+"))
    except FileNotFoundError:
        return None


def _left(path: Path) -> list[Path]:
    """What was moved aside and is not done yet, oldest first."""
    found = [(_number_of(one, path), one) for one in path.parent.iterdir()] if path.parent.is_dir() else []
    return [one for number, one in sorted(found, key=lambda pair: (pair[0] or 0, pair[1])) if number is not None]


def _number_of(moved: Path, path: Path) -> int | None:
    match = re.fullmatch(re.escape(path.name) + r"\.([0-9]{1,9})\.reprocessing", moved.name)
    return None if match is None else int(match[1])


class _Run:
    def __init__(self, path: Path, ring: str, consumers: Mapping[str, Hand], clock: Clock, classify: Classify) -> None:
        self._path = path
        self._ring = ring
        self._consumers = consumers
        self._clock = clock
        self._classify = classify
        self._seen: set[str] = set()
        self._lines: list[bytes] = []
        self._file = -1
        self._at = 0
        """Where the line at hand begins in the moved file."""
        self.counts = Reprocessed()

    def take(self, file: BinaryIO) -> BaseException | None:
        """Do all lines of a moved file; what stopped it, if anything did, after the rest was put back.

        When it returns, the file holds nothing any more that is not done, or in the file of letters again.
        """
        self._file, self._at = file.fileno(), 0
        stopped: BaseException | None = None
        for line in file:
            try:
                self._do(line.rstrip(b"\r\n"))
            except BaseException as error:  # an interrupt too: it is raised again when the rest is safe
                stopped = error
                self._put_back(itertools.chain([line], file))
            self._at += len(line)
        self._flush()
        return stopped

    def _do(self, line: bytes) -> None:
        if not line.strip() or line.startswith(_DONE):
            return
        letter = letter_in(line)
        if letter is None:
            self._keep(line)
            self._count(unreadable=1)
        elif letter.id not in self._seen:  # a crash may have left it in two files
            hand = self._consumers.get(letter.consumer) if letter.ring == self._ring else None
            if hand is None:
                self._keep(line)
                self._count(kept=1)
            else:
                self._hand_over(letter, line, hand)
            self._seen.add(letter.id)

    def _hand_over(self, letter: FileLetter, line: bytes, hand: Hand) -> None:
        try:
            refuse_unfit(letter.elements, letter.unreadable)
        except Invalid as error:
            _logger.warning("the letter %s cannot be reprocessed: %s", letter.id, error)
            self._keep(line)
            self._count(failed=1)
            return
        try:
            hand(letter.elements)
        except Unhandled:
            raise
        except Exception as error:  # whatever the consumer raises
            _logger.warning("the letter %s has failed again: %s", letter.id, error_in_words(error))
            again = replace(
                letter,
                at=instant_text(self._clock.now()),
                error=error_of(self._classify(error)),
                attempts=letter.attempts + 1,
            )
            self._keep(line_of(again))
            self._count(failed=1)
        else:
            self._mark_done(line)
            self._count(done=1)

    def _mark_done(self, line: bytes) -> None:
        """Of all letters that went through, a crash makes the next reprocessing repeat none."""
        if line.startswith(_LETTER) and os.name == "posix":  # one that was written by hand may begin otherwise
            with suppress(OSError):
                os.pwrite(self._file, _DONE[:1], self._at)

    def _count(self, *, done: int = 0, failed: int = 0, kept: int = 0, unreadable: int = 0) -> None:
        now = self.counts
        self.counts = Reprocessed(
            done=now.done + done,
            failed=now.failed + failed,
            kept=now.kept + kept,
            unreadable=now.unreadable + unreadable,
        )

    # ---- lines that stay

    def _keep(self, line: bytes) -> None:
        self._lines.append(line)
        if len(self._lines) >= _AT_ONCE:
            self._flush()

    def _put_back(self, lines: Iterator[bytes]) -> None:
        for line in lines:
            if line.strip() and not line.startswith(_DONE):
                self._keep(line.rstrip(b"\r\n"))

    def _flush(self) -> None:
        append_lines(self._path, self._lines)
        self._lines = []
