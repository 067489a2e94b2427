"""What people do with replays: start, look, pause, resume, stop."""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, overload

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.errors import ConfigError, IllegalChange, NotFound
from holdfast.policy import bounds
from holdfast.policy.limiter import Rate
from holdfast.ports import Exchange, Query, Store, Value, ValueChange
from holdfast.runtime.replay import PREFIX, Replay, ReplayState, decode, key_of, patched, write
from holdfast.types import JobRecord, JobState

_RUNNING: Final = ReplayState.RUNNING
_OVER: Final = frozenset({ReplayState.STOPPED, ReplayState.DONE})
_KEPT: Final = 50  # replays of a tenant that have ended and are still shown
_KEPT_IN_ALL: Final = 500  # every worker has all of them
_MOST_LIVE: Final = 20  # of a tenant; each costs every worker a look a second
_LARGEST_EDIT: Final = 16_384  # bytes
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
    """Starts, shows and steers the replays of a store.

    tenant [None]: as one tenant's people have them: they see those of its letters only, and the ids that they give are
    their own, so that nobody can tell, or take, an id of another tenant.
    """

    def __init__(self, store: Store, *, tenant: str | None = None) -> None:
        self._store = store
        self._tenant = tenant
        self._prefix = "" if tenant is None else _prefix_of(tenant)

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

        IllegalChange where a tenant has 20 already that have not ended; replays of all tenants count as one tenant's.
        """
        if self._tenant is not None:
            query = replace(query, tenant=self._tenant)
        patch = _patch_of(edit)
        if bounds.whole("canary", canary, low=0) > _MOST_CANARIES:
            raise ConfigError(f"canary={canary!r}: must be at most {_MOST_CANARIES}")
        pace = per_second(rate)
        number = self._prefix + _checked_id(new_id() if replay_id is None else replay_id)
        known, now = await _read_all(self._store)
        if not dry_run:
            if number in known:
                return self._shown(known[number])
            _refuse_too_many(known.values(), query.tenant, _MOST_LIVE - 1)
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
            rate=pace,
            created_at=now,
            total=total,
            verdict="waiting" if canary else "",
            paced_at=now - 1.0 / pace if pace else now,
        )
        created = ValueChange(key_of(number), 0, msgspec.json.encode(replay))
        answer = await self._store.exchange(
            Exchange(changes=(created, *_forgotten(known.values(), query.tenant)), seen=0)
        )
        found = _decoded(answer.values)
        if answer.changed[0]:
            try:
                # Those who began at the same moment are all here, as the store does one exchange after the other.
                _refuse_too_many(found.values(), query.tenant, _MOST_LIVE)
            except IllegalChange:
                removed = ValueChange(created.key, found[number].version, None)
                await self._store.exchange(Exchange(changes=(removed,), seen=removed.expected))
                raise
        if number not in found:
            raise IllegalChange(f"replay_id={replay_id!r}: a newer Holdfast has a replay of this id")
        return self._shown(found[number])

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
        found, _ = await self._find(replay_id)
        return self._shown(found)

    async def list(self) -> list[Replay]:
        """Every replay, newest first; of those that have ended, the latest 50 of each tenant."""
        known, _ = await _read_all(self._store)
        own = [self._shown(one) for one in known.values() if self._is_own(one.replay)]
        return sorted(own, key=lambda replay: (replay.created_at, replay.id), reverse=True)

    async def _steer(self, replay_id: str, change: Callable[[Replay, float], Replay]) -> Replay:
        found, now = await self._find(replay_id)
        while found.replay.state not in _OVER:
            value = Value(key_of(found.replay.id), found.version, b"")
            is_written, newest = await write(self._store, value, change(found.replay, now))
            if newest is None or newest.data is None:
                raise _not_found(replay_id)
            found = _Known(newest.version, decode(newest))
            if is_written:
                break
        return self._shown(found)

    async def _find(self, replay_id: str) -> tuple[_Known, float]:
        """The replay that goes by this id here, and the store's clock. Of others' values none is decoded."""
        answer = await self._store.exchange(Exchange(seen=0))
        own, given = key_of(self._prefix + replay_id), key_of(replay_id)
        named = _decoded([value for value in answer.values if value.key in (own, given)])
        # One that somebody for all tenants has begun for this one has no prefix.
        for number in (self._prefix + replay_id, replay_id):
            if number in named and self._is_own(named[number].replay):
                return named[number], answer.now
        raise _not_found(replay_id)

    def _is_own(self, replay: Replay) -> bool:
        return self._tenant is None or replay.query.tenant == self._tenant

    def _shown(self, known: _Known) -> Replay:
        """With the id by which it goes here."""
        return replace(known.replay, id=known.replay.id.removeprefix(self._prefix))


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


class _Known(NamedTuple):
    """A replay, and the version of its value."""

    version: int
    replay: Replay


async def _read_all(store: Store) -> tuple[dict[str, _Known], float]:
    """Every replay that can be read, by its id, and the store's clock."""
    answer = await store.exchange(Exchange(seen=0))
    return _decoded(answer.values), answer.now


def _decoded(values: Iterable[Value]) -> dict[str, _Known]:
    """The replays among these values, by id, without those that this version does not know: a newer Holdfast's."""
    found = {}
    for value in values:
        if value.key.startswith(PREFIX) and value.data is not None:
            with suppress(msgspec.MsgspecError):
                found[value.key.removeprefix(PREFIX)] = _Known(value.version, decode(value))
    return found


def _not_found(replay_id: str) -> NotFound:
    return NotFound(f"no replay has the id {replay_id!r}")


def _refuse_too_many(known: Iterable[_Known], tenant: str | None, most: int) -> None:
    live = sum(one.replay.state not in _OVER and _is_of(one.replay, tenant) for one in known)
    if live > most:
        raise IllegalChange(f"{_MOST_LIVE} replays are running or paused; stop one, or wait until one is done")


def _is_of(replay: Replay, tenant: str | None) -> bool:
    """Whether it counts as one of this tenant; those of all tenants count together."""
    return (replay.query.tenant or "") == (tenant or "")


def _forgotten(known: Iterable[_Known], tenant: str | None) -> list[ValueChange]:
    """The removal of those that ended long ago, of each tenant by itself; one of this tenant's is about to be added.

    With very many tenants whoever has the most loses the oldest first.
    """
    over = sorted((one for one in known if one.replay.state in _OVER), key=lambda one: -one.replay.created_at)
    ranks: Counter[str] = Counter({tenant or "": 1})
    ranked = []
    for one in over:
        ranks[one.replay.query.tenant or ""] += 1
        ranked.append((ranks[one.replay.query.tenant or ""], one))
    ranked.sort(key=lambda pair: pair[0])
    kept = bisect_right(ranked, _KEPT, hi=min(len(ranked), _KEPT_IN_ALL), key=lambda pair: pair[0])
    return [ValueChange(key_of(one.replay.id), one.version, None) for _, one in ranked[kept:]]


def _prefix_of(tenant: str) -> str:
    """What the ids of a tenant's replays begin with in the store; of one length, whatever is in the name."""
    return hashlib.sha256(tenant.encode()).hexdigest()[:16] + "~"


def _patch_of(edit: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if edit is None:
        return None
    try:
        text = msgspec.json.encode(edit)
        patch = msgspec.convert(msgspec.json.decode(text), type=dict[str, Any])
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ConfigError(f"edit={edit!r}: must be a JSON object: {error}") from error
    if len(text) > _LARGEST_EDIT:  # it is in the replay's value, which every worker has
        raise ConfigError(f"edit: is {len(text)} bytes of JSON; must be at most {_LARGEST_EDIT}")
    return patch


def per_second(rate: float | str | Rate | None) -> float | None:
    """A rate as letters a second; None is as fast as it goes."""
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
