"""What people do with replays: start, look, pause, resume, stop."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, overload

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.errors import ConfigError, NotFound
from holdfast.policy import bounds
from holdfast.policy.limiter import Rate
from holdfast.ports import Exchange, Query, Store, Value, ValueChange
from holdfast.runtime.replay import PREFIX, Replay, ReplayState, decode, key_of, patched, write
from holdfast.types import JobRecord, JobState

_RUNNING: Final = ReplayState.RUNNING
_OVER: Final = frozenset({ReplayState.STOPPED, ReplayState.DONE})
_KEPT: Final = 50  # replays that have ended and are still shown
_SAMPLE: Final = 5
_PAGE: Final = 500
_LONGEST_ID: Final = 64
_MOST_CANARIES: Final = 1000  # they are all in the replay's value


class Preview(Struct, frozen=True):
    """What a replay would do."""

    total: int
    sample: tuple[JobRecord, ...]
    """The newest of its letters, with the edit applied."""


class Replays:
    """Starts, shows and steers the replays of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @overload
    async def start(
        self,
        query: Query,
        *,
        edit: Mapping[str, Any] | None = ...,
        canary: int = ...,
        rate: float | str | Rate | None = ...,
        replay_id: str | None = ...,
        dry_run: Literal[False] = ...,
    ) -> Replay: ...

    @overload
    async def start(
        self,
        query: Query,
        *,
        edit: Mapping[str, Any] | None = ...,
        canary: int = ...,
        rate: float | str | Rate | None = ...,
        replay_id: str | None = ...,
        dry_run: bool,
    ) -> Replay | Preview: ...

    async def start(
        self,
        query: Query,
        *,
        edit: Mapping[str, Any] | None = None,
        canary: int = 0,
        rate: float | str | Rate | None = None,
        replay_id: str | None = None,
        dry_run: bool = False,
    ) -> Replay | Preview:
        """Begin a replay of the dead letters of a query; workers do the rest.

        edit [None]: a JSON merge patch for the arguments: null removes one, objects merge, all else replaces.
        canary [0]: send so many first, and the others once these have completed; if one of them fails with the cause it
        had, or ends dead again, the replay stops by itself.
        rate [None]: letters a second, or a rate such as "100/minute"; None is as fast as it goes.
        replay_id [a new one]: starting twice with one id makes one replay, so a lost answer may be asked for again.
        dry_run [False]: only count, and show a sample; nothing is stored.
        """
        patch = _patch_of(edit)
        if bounds.whole("canary", canary, low=0) > _MOST_CANARIES:
            raise ConfigError(f"canary={canary!r}: must be at most {_MOST_CANARIES}")
        per_second = _per_second(rate)
        number = _checked_id(new_id() if replay_id is None else replay_id)
        values, now = await _read_all(self._store)
        if not dry_run and (known := values.get(key_of(number))):
            return decode(known)
        # A letter that ended in this very instant counts too.
        latest = math.nextafter(now, math.inf)
        until = latest if query.until is None else min(query.until, latest)
        query = replace(query, states=(JobState.DEAD_LETTER,), until=until, cursor="")
        total = await _count(self._store, query)
        if dry_run:
            return Preview(total, tuple([_edited(one, patch) for one in await _newest(self._store, query, _SAMPLE)]))
        replay = Replay(
            id=number,
            query=query,
            edit=patch,
            canary=canary,
            rate=per_second,
            created_at=now,
            total=total,
            verdict="waiting" if canary else "",
            paced_at=now - 1.0 / per_second if per_second else now,
        )
        created = ValueChange(key_of(number), 0, msgspec.json.encode(replay))
        answer = await self._store.exchange(Exchange(changes=(created, *_forgotten(values)), seen=0))
        return decode(next(value for value in answer.values if value.key == created.key))

    async def pause(self, replay_id: str, why: str = "") -> Replay:
        """Send nothing more until it is resumed; one that has ended stays as it is."""
        return await self._steer(replay_id, lambda one, now: replace(one, state=ReplayState.PAUSED, why=why))

    async def resume(self, replay_id: str) -> Replay:
        """Go on where it was paused, at its rate, without making up for the pause."""
        return await self._steer(replay_id, lambda one, now: replace(one, state=_RUNNING, why="", paced_at=now))

    async def stop(self, replay_id: str, why: str = "stopped by hand") -> Replay:
        """End it; what was sent stays sent, the other letters stay dead letters."""
        return await self._steer(
            replay_id, lambda one, now: replace(one, state=ReplayState.STOPPED, why=why, ended_at=now)
        )

    async def show(self, replay_id: str) -> Replay:
        """How far it is; NotFound when there is none."""
        values, _ = await _read_all(self._store)
        return decode(_found(values.get(key_of(replay_id)), replay_id))

    async def list(self) -> list[Replay]:
        """Every replay, newest first; of those that have ended, the latest 50."""
        values, _ = await _read_all(self._store)
        return sorted(map(decode, values.values()), key=lambda replay: (replay.created_at, replay.id), reverse=True)

    async def _steer(self, replay_id: str, change: Callable[[Replay, float], Replay]) -> Replay:
        values, now = await _read_all(self._store)
        value = _found(values.get(key_of(replay_id)), replay_id)
        while (replay := decode(value)).state not in _OVER:
            is_written, newest = await write(self._store, value, change(replay, now))
            value = _found(newest, replay_id)
            if is_written:
                break
        return decode(value)


async def _count(store: Store, query: Query) -> int:
    """How many letters there are of a query; with a text the groups are those of the newest alone, so all are found."""
    if not query.text:
        return sum(group.count for group in await store.groups(query))
    return sum([len(items) async for items in _pages(store, replace(query, limit=_PAGE))])


async def _newest(store: Store, query: Query, most: int) -> list[JobRecord]:
    """The newest letters of a query, up to so many."""
    found: list[JobRecord] = []
    async for items in _pages(store, replace(query, limit=most)):
        found += items
        if len(found) >= most:
            break
    return found[:most]


async def _pages(store: Store, query: Query) -> AsyncIterator[Sequence[JobRecord]]:
    """The pages of a query; one may be short, or empty, and others follow."""
    while True:
        page = await store.find(query)
        yield page.items
        if not page.cursor:
            return
        query = replace(query, cursor=page.cursor)


async def _read_all(store: Store) -> tuple[dict[str, Value], float]:
    """The value of every replay that can be read, by key, and the store's clock."""
    answer = await store.exchange(Exchange(seen=0))
    replays = {one.key: one for one in answer.values if one.key.startswith(PREFIX) and _is_readable(one)}
    return replays, answer.now


def _is_readable(value: Value) -> bool:
    """Whether there is a replay in it that this version knows: a newer Holdfast may have made it."""
    try:
        decode(value)
    except msgspec.MsgspecError:
        return False
    return True


def _found(value: Value | None, replay_id: str) -> Value:
    if value is None or value.data is None:
        raise NotFound(f"no replay has the id {replay_id!r}")
    return value


def _forgotten(values: Mapping[str, Value]) -> list[ValueChange]:
    """The removal of those that ended long ago."""
    over = [(replay.created_at, value) for value in values.values() if (replay := decode(value)).state in _OVER]
    over.sort(key=lambda one: one[0], reverse=True)
    return [ValueChange(value.key, value.version, None) for _, value in over[_KEPT - 1 :]]


def _patch_of(edit: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if edit is None:
        return None
    try:
        return msgspec.convert(msgspec.json.decode(msgspec.json.encode(edit)), type=dict[str, Any])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"edit={edit!r}: must be a JSON object: {error}") from error


def _per_second(rate: float | str | Rate | None) -> float | None:
    if rate is None:
        return None
    if isinstance(rate, str):
        rate = Rate.parse(rate)
    if isinstance(rate, Rate):
        return rate.max_calls / rate.time_window
    return bounds.number("rate", rate, above=0.0, low=1e-6, high=1e9)


def _checked_id(replay_id: str) -> str:
    if isinstance(replay_id, str) and 0 < len(replay_id) <= _LONGEST_ID and replay_id.isprintable():
        return replay_id
    raise ConfigError(f"replay_id={replay_id!r}: must be a text of 1 to {_LONGEST_ID} characters")


def _edited(record: JobRecord, patch: dict[str, Any] | None) -> JobRecord:
    payload = None if patch is None else patched(record, patch)
    if payload is None:
        return record
    return replace(record, payload=payload, original_payload=record.original_payload or record.payload)
