"""Checkpoints in files: JSON with a digest, replaced as a whole, locked while they are in use."""

from __future__ import annotations

import hashlib
import os
from shlex import quote
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import CheckpointError, ConfigError
from holdfast.ring.checkpoint_record import Checkpoint, Natural, SavedCheckpoint, checked_ring_name
from holdfast.ring.file_lock import FileLock, LockInUse
from holdfast.ring.whole_file import discard_unfinished, make_folder, read_whole, sync_folder, write_whole

if TYPE_CHECKING:
    from holdfast.ports import Clock

_FORMAT: Final = "holdfast-ring-checkpoint"
_VERSION: Final = 1
_MOST_BYTES: Final = 65_536


class _Head(Struct, frozen=True):
    """What every version of the format begins with."""

    format: str
    version: int


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file as it is written; the digest is taken over the rest."""

    format: str
    version: int
    ring: str
    consumer: str
    offset: Natural
    batch: Natural
    processed: Natural
    saved_at: float
    digest: str = ""


class FileCheckpoints:
    """One consumer's checkpoint in a file.

    It is written beside the file, flushed to the disk and renamed, so whoever reads finds the old one or the new one.
    From `load` (or the first `save`, which loads) to `close` the file `<path>.lock` is locked: another process, another
    consumer or a forked child that wants the same checkpoint is refused. On a platform without `fcntl` (Windows) nobody
    is refused. A symbolic link is followed and stays; the permissions of an existing file stay too.
    """

    def __init__(self, path: str | os.PathLike[str], *, ring: str, consumer: str, clock: Clock) -> None:
        self._path = _checked_path(path)
        self._ring = checked_ring_name("ring", ring)
        self._consumer = checked_ring_name("consumer", consumer)
        self._clock = clock
        self._file = self._path
        self._lock: FileLock | None = None

    def load(self) -> Checkpoint | None:
        """What was saved last; None: nothing yet. Has the lock from now on, unless it raises."""
        was_held = self._is_held
        self._hold()
        try:
            return self._read()
        except BaseException:
            if not was_held:
                self.close()
            raise

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable on return. After an error the old one is there or the new one, and the call may be repeated."""
        if not self._is_held:
            self.load()  # takes the lock, and refuses to write over what is not ours
        data = _encoded(self._ring, self._consumer, checkpoint, self._clock.now())
        try:
            write_whole(self._file, data)
        except OSError as error:
            raise CheckpointError(_line(f"checkpoint {self._path} cannot be written: {_why(error)}")) from error

    def reset(self) -> None:
        """Remove it, whatever is in it, as `reset_file` does; a lock that is held stays held."""
        was_held = self._is_held
        self._hold()
        try:
            _remove(self._path, self._file)
        finally:
            if not was_held:
                self.close()

    def close(self) -> None:
        """Give the lock back; a closed one may be loaded again."""
        if self._lock is not None:
            self._lock.give_back()
            self._lock = None

    @property
    def _is_held(self) -> bool:
        return self._lock is not None and self._lock.is_held  # a forked child has lost it

    def _hold(self) -> None:
        if not self._is_held:
            self._file = os.path.realpath(self._path)
            self._lock = _locked(self._path, self._file)

    def _read(self) -> Checkpoint | None:
        try:
            discard_unfinished(self._file)
        except OSError as error:
            raise _refusal(self._path, f"cannot be used: {_why(error)}") from error
        found = read_file(self._path)
        if found is None:
            return None
        if (found.ring, found.consumer) != (self._ring, self._consumer):
            raise _refusal(
                self._path,
                f"belongs to consumer {found.consumer!r} of ring {found.ring!r}, not to {self._consumer!r} of "
                f"{self._ring!r}, and every consumer needs a file of its own",
            )
        return found.checkpoint


def file_checkpoints(path: str | os.PathLike[str], *, ring: str, consumer: str, clock: Clock) -> FileCheckpoints:
    """The checkpoint of one consumer in a file; nothing is touched until it is loaded or saved."""
    return FileCheckpoints(path, ring=ring, consumer=consumer, clock=clock)


def read_file(path: str | os.PathLike[str]) -> SavedCheckpoint | None:
    """What is in the file, without its lock; None: there is no such file. CheckpointError: it cannot be trusted."""
    shown = _checked_path(path)
    try:
        data = read_whole(shown, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(shown, f"cannot be read: {_why(error)}") from error
    one = _decoded(shown, data)
    checkpoint = Checkpoint(offset=one.offset, batch=one.batch, processed=one.processed, saved_at=one.saved_at)
    return SavedCheckpoint(ring=one.ring, consumer=one.consumer, checkpoint=checkpoint)


def reset_file(path: str | os.PathLike[str]) -> bool:
    """Remove the checkpoint of a ring that is not running; say whether there was one.

    What cannot be recognised as a checkpoint is kept beside it, as `<path>.unreadable`: somebody may have named a
    wrong file. CheckpointError while the checkpoint is in use.
    """
    shown = _checked_path(path)
    file = os.path.realpath(shown)
    if not os.path.lexists(file):  # and no folder is made for a lock
        return False
    lock = _locked(shown, file)
    try:
        return _remove(shown, file)
    finally:
        lock.give_back()


def _locked(shown: str, file: str) -> FileLock:
    lock = FileLock(f"{file}.lock")
    try:
        make_folder(os.path.dirname(file))
        lock.take()
    except LockInUse as error:
        holder = f"process {error.pid}" if error.pid else "another process"
        if error.pid == os.getpid():
            holder = "this process, and every consumer needs a file of its own"
        raise CheckpointError(_line(f"checkpoint {shown} is in use by {holder}")) from None
    except OSError as error:
        raise CheckpointError(_line(f"checkpoint {shown} cannot be locked: {_why(error)}")) from error
    return lock


def _remove(shown: str, file: str) -> bool:
    try:
        discard_unfinished(file)
        if not os.path.lexists(file):
            return False
        if _is_recognised(file):
            os.unlink(file)
        else:
            os.replace(file, f"{file}.unreadable")
        sync_folder(os.path.dirname(file))
    except OSError as error:
        raise CheckpointError(_line(f"checkpoint {shown} cannot be removed: {_why(error)}")) from error
    return True


def _is_recognised(file: str) -> bool:
    """Whether it is a checkpoint, or nothing that anybody could miss."""
    data = read_whole(file, _MOST_BYTES)
    return not data or _FORMAT.encode() in data[: len(_FORMAT) * 2]


def _encoded(ring: str, consumer: str, checkpoint: Checkpoint, now: float) -> bytes:
    record = _Record(
        format=_FORMAT,
        version=_VERSION,
        ring=ring,
        consumer=consumer,
        offset=checkpoint.offset,
        batch=checkpoint.batch,
        processed=checkpoint.processed,
        saved_at=now,
    )
    return msgspec.json.encode(replace(record, digest=_digest_of(record))) + b"\n"


def _decoded(shown: str, data: bytes) -> _Record:
    if not data:
        raise _refusal(shown, "is torn: the file is empty")
    try:
        head = msgspec.json.decode(data, type=_Head)
    except (ValueError, RecursionError):
        raise _refusal(shown, "is torn, or no checkpoint at all") from None
    if head.format != _FORMAT:
        raise _refusal(shown, "is no checkpoint of a ring")
    if head.version > _VERSION:
        what = f"is of format {head.version} and this Holdfast knows {_VERSION}: run the newer one that wrote it"
        raise _refusal(shown, what)
    try:
        record = msgspec.json.decode(data, type=_Record)
    except (ValueError, RecursionError) as error:
        raise _refusal(shown, f"is torn, or was edited: {error}") from None
    if record.digest != _digest_of(replace(record, digest="")):
        raise _refusal(shown, "is torn, or was edited: its digest is another")
    return record


def _digest_of(record: _Record) -> str:
    return hashlib.sha256(msgspec.json.encode(record)).hexdigest()


def _checked_path(path: str | os.PathLike[str]) -> str:
    """An absolute path, so that it stays the same when the working directory changes."""
    if isinstance(path, str | os.PathLike):
        text = os.fspath(path)
        if isinstance(text, str) and text and "\0" not in text:
            return os.path.abspath(text)
    raise ConfigError(f"checkpoint={path!r}: must be the path of a file")


def _refusal(shown: str, what: str) -> CheckpointError:
    anew = f"to begin anew: holdfast rings reset --file {quote(shown)}"
    return CheckpointError(_line(f"checkpoint {shown} {what}; {anew}"))


def _line(text: str) -> str:
    return " ".join(text.split())


def _why(error: OSError) -> str:
    return error.strerror or str(error)
