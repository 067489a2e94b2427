"""Checkpoints in an app's store: one small versioned value for each consumer, compared and set."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.errors import CheckpointError
from holdfast.ports import Exchange, Exchanged, Value, ValueChange
from holdfast.ring.checkpoint_record import Checkpoint, SavedCheckpoint, checked_ring_name

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.ports import Store

R = TypeVar("R")

PREFIX: Final = "ring/"
_VERSION: Final = 1
_ATTEMPTS: Final = 20


class _Head(Struct, frozen=True):
    """What every version of the format begins with."""

    version: int


class _Record(Struct, frozen=True, kw_only=True):
    """The value. Whoever loads it writes its name into it, so that those who loaded it before are told."""

    version: int = _VERSION
    holder: str
    checkpoint: Checkpoint | None = None
    """None: somebody has begun, and not finished a batch yet."""


class StoreCheckpoints:
    """One consumer's checkpoint in the app's store.

    There is no lock that a crash could leave behind: whoever loads it last has it, and the one before is fenced with
    its next save. A save is one exchange. StoreAway passes through, and the same call may then be made again: what a
    lost reply had done is recognised. It blocks, and where a ring is made in async code its event loop stands still.
    """

    def __init__(self, app: App, *, ring: str, consumer: str) -> None:
        self._app = app
        self._name = f"consumer {consumer!r} of ring {ring!r}"
        self._key = _key_of(checked_ring_name("ring", ring), checked_ring_name("consumer", consumer))
        self._advice = f"to begin anew: holdfast rings reset {quote(ring)} {quote(consumer)}"
        self._holder = new_id()
        self._version = 0
        """That of our own last write; 0: we do not have it."""
        self._seen = 0

    def load(self) -> Checkpoint | None:
        """What was saved last; None: nothing yet. It is ours from now on."""
        return self._run(self._load())

    def save(self, checkpoint: Checkpoint) -> None:
        """Durable as the store is, on return. CheckpointError with `is_fenced`: it is somebody else's by now."""
        self._run(self._save(replace(checkpoint, saved_at=self._app.clock.now())))

    def reset(self) -> None:
        """Remove it, whatever is in it; a process that has it is fenced."""
        self._version = 0
        self._run(_remove(self._app.store, self._key))

    def close(self) -> None:
        """Nothing to give back; a closed one may be loaded again."""
        self._version = 0

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._app.bridge.run(coroutine)
        with ThreadPoolExecutor(1) as thread:  # the bridge refuses to block a loop; here nothing else will do
            return thread.submit(self._app.bridge.run, coroutine).result()

    async def _load(self) -> Checkpoint | None:
        for _ in range(_ATTEMPTS):
            value = await self._read()
            record = self._record_in(value)
            ours = _Record(holder=self._holder) if record is None else replace(record, holder=self._holder)
            if await self._change(0 if value is None else value.version, ours):
                return ours.checkpoint
        raise self._contended()

    async def _save(self, checkpoint: Checkpoint) -> None:
        if not self._version:
            await self._load()
        record = _Record(holder=self._holder, checkpoint=checkpoint)
        expected = self._version
        for _ in range(_ATTEMPTS):
            if await self._change(expected, record):
                return
            # The reply to an earlier save may be lost, or the store have come back without it: then it is ours still.
            value = await self._read()
            if value is None or not self._is_ours(value):
                became = "was removed" if value is None else "is another process's by now"
                raise CheckpointError(f"the checkpoint of {self._name} {became}; this one must stop", is_fenced=True)
            expected = value.version
        raise self._contended()

    async def _read(self) -> Value | None:
        self._seen = 0
        return self._learn(await self._app.store.exchange(Exchange()))

    async def _change(self, expected: int, record: _Record) -> bool:
        change = ValueChange(self._key, expected, msgspec.json.encode(record))
        reply = await self._app.store.exchange(Exchange(changes=(change,), seen=self._seen))
        value = self._learn(reply)
        if reply.changed[0] and value is not None:
            self._version = value.version
        return bool(reply.changed[0])

    def _learn(self, reply: Exchanged) -> Value | None:
        """Our value, if it is among the news; None: it was removed, or there is none."""
        if reply.values:
            self._seen = reply.values[-1].version
        return _living(reply.values).get(self._key)

    def _record_in(self, value: Value | None) -> _Record | None:
        if value is None:
            return None
        try:
            return _decoded(value)
        except ValueError as error:
            raise CheckpointError(f"the checkpoint of {self._name} {error}; {self._advice}") from None

    def _is_ours(self, value: Value) -> bool:
        try:
            return _decoded(value).holder == self._holder
        except ValueError:
            return False

    def _contended(self) -> CheckpointError:
        return CheckpointError(f"the checkpoint of {self._name} is changed by others all the time", is_fenced=True)


def store_checkpoints(app: App, *, ring: str, consumer: str) -> StoreCheckpoints:
    """The checkpoint of one consumer in the app's store; nothing is asked until it is loaded or saved."""
    return StoreCheckpoints(app, ring=ring, consumer=consumer)


def list_stored(app: App) -> list[SavedCheckpoint]:
    """The checkpoints in the app's store, by ring and consumer; those that cannot be read come with their problem."""
    return app.bridge.run(_list(app.store))


def reset_stored(app: App, ring: str, consumer: str | None = None) -> list[str]:
    """Remove the checkpoints of a ring, or of one consumer of it; answers whose there were.

    A running ring that has one of them is fenced: it stops with its next save.
    """
    prefix = _key_of(ring, consumer or "")
    return app.bridge.run(_reset(app.store, prefix, is_whole=consumer is not None))


async def _list(store: Store) -> list[SavedCheckpoint]:
    found = []
    for key, value in sorted((await _stored(store)).items()):
        _, ring, consumer = key.split("/", 2)
        try:
            checkpoint, problem = _decoded(value).checkpoint, ""
        except ValueError as error:
            checkpoint, problem = None, str(error)
        if checkpoint is not None or problem:
            found.append(SavedCheckpoint(ring=ring, consumer=consumer, checkpoint=checkpoint, problem=problem))
    return found


async def _reset(store: Store, prefix: str, *, is_whole: bool) -> list[str]:
    keys = [key for key in await _stored(store) if (key == prefix if is_whole else key.startswith(prefix))]
    return sorted([key.split("/", 2)[2] for key in keys if await _remove(store, key)])


async def _remove(store: Store, key: str) -> bool:
    for _ in range(_ATTEMPTS):
        value = (await _stored(store)).get(key)
        if value is None:
            return False
        removed = ValueChange(key, value.version, None)
        reply = await store.exchange(Exchange(changes=(removed,), seen=value.version))
        if reply.changed[0]:
            return True
    raise CheckpointError(f"{key} is changed by others all the time; stop the ring first")


async def _stored(store: Store) -> dict[str, Value]:
    return _living((await store.exchange(Exchange())).values)


def _living(values: Iterable[Value]) -> dict[str, Value]:
    return {value.key: value for value in values if value.data is not None and _is_key(value.key)}


def _is_key(key: str) -> bool:
    return key.startswith(PREFIX) and key.count("/") == 2


def _key_of(ring: str, consumer: str) -> str:
    return f"{PREFIX}{ring}/{consumer}"


def _decoded(value: Value) -> _Record:
    """The record, or a ValueError that says why not."""
    data = value.data or b""
    try:
        newer = msgspec.json.decode(data, type=_Head).version
        if newer <= _VERSION:
            return msgspec.json.decode(data, type=_Record)
    except (ValueError, RecursionError):
        raise ValueError("is not to be read") from None
    raise ValueError(f"is of format {newer} and this Holdfast knows {_VERSION}: run the newer one that wrote it")
