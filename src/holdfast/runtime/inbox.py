"""The inbox: dead letters, found by cause, mended, sent back or removed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypedDict, Unpack

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError, NotFound
from holdfast.policy import bounds
from holdfast.policy.limiter import Rate
from holdfast.ports import Changed, Exchange, Operation, Page, Query, Store
from holdfast.runtime.payload import Arguments
from holdfast.runtime.replay import Replay
from holdfast.runtime.replays import Preview, Replays
from holdfast.types import Change, FailureType, Group, JobRecord, JobState

When: TypeAlias = datetime | timedelta | float
"""An aware datetime, a length of time ago, or seconds since 1970."""

BATCH: Final = 500
"""Letters removed in one go."""
_MOST: Final = 1000
_DEAD: Final = JobState.DEAD_LETTER
_FAILURE_TYPES: Final = {one.value: one for one in FailureType}
_NO_VALUES: Final = 2**62  # newer than every version


class Filters(TypedDict, total=False):
    """Which letters; what is left out does not filter."""

    failure_type: FailureType | str | None
    task: str
    tenant: str | None
    group: str
    """The fingerprint of a group."""
    fingerprint: str
    """The same by its other name."""
    since: When | None
    """Given up at that instant or later."""
    until: When | None
    """Given up before."""
    text: str
    """Part of the id, task, error name, message, reason, payload or idempotency key."""


class LetterStats(Struct, frozen=True, kw_only=True):
    """The dead letters, counted."""

    total: int
    by_failure_type: Mapping[str, int]
    by_task: Mapping[str, int]
    oldest: float | None
    """When the first of them was given up, in seconds since 1970; None when there are none."""
    newest: float | None


class Inbox:
    """The dead letters of a store. What takes filters takes those of `Filters`, by name."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.replays = Replays(store)

    async def groups(self, **filters: Unpack[Filters]) -> list[Group]:
        """The letters by cause, the largest group first; with a text, those among the newest 2,000 letters at least."""
        return await self._store.groups(await self.query(**filters))

    async def list(self, *, limit: int = 50, cursor: str = "", **filters: Unpack[Filters]) -> Page:
        """A page of letters without their attempts, newest first; `limit` is at most 1000."""
        if bounds.whole("limit", limit, low=1) > _MOST:
            raise ConfigError(f"limit={limit!r}: must be at most {_MOST}; a page's cursor leads to the next one")
        return await self._store.find(replace(await self.query(**filters), limit=limit, cursor=cursor))

    async def get(self, id: str) -> JobRecord:  # noqa: A002
        """A letter with every attempt; NotFound when there is none of this id."""
        (record,) = await self._store.get([id])
        if record is None:
            raise NotFound(f"no dead letter has the id {id!r}")
        if record.state is not _DEAD:
            raise NotFound(f"job {id} is {record.state.value}, and no dead letter")
        return record

    async def retry(self, id: str, payload: Mapping[str, Any] | None = None) -> Changed:  # noqa: A002
        """Send a letter back to the queue with new attempts; `payload` replaces all of its arguments.

        The original arguments are kept beside the new ones. Where it is no dead letter nothing is done, and the answer
        says so.
        """
        data = None if payload is None else encoded_arguments(payload)
        (changed,) = await self._store.change(Operation(change=Change.REPLAY, ids=(id,), payload=data))
        return changed

    async def remove(self, id: str) -> Changed:  # noqa: A002
        """Delete a letter for good. Where it is no dead letter nothing is done, and the answer says so."""
        (record,) = await self._store.get([id])
        if record is None or record.state is not _DEAD:
            return Changed(id, is_done=False, state=None if record is None else record.state)
        (changed,) = await self._store.change(Operation(change=Change.REMOVE, ids=(id,)))
        return changed

    async def purge(self, older_than: timedelta | float, **filters: Unpack[Filters]) -> int:
        """Delete the letters that were given up longer ago than this (a timedelta, or seconds); say how many.

        It goes in batches of 500, so that others are not held up; when it is interrupted, what is gone is gone.
        """
        seconds = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
        edge = await self._now() - bounds.length("older_than", seconds)
        query = await self.query(**filters)
        query = replace(query, until=edge if query.until is None else min(edge, query.until), limit=BATCH)
        removed = 0
        while True:
            page = await self._store.find(query)
            if page.items:
                ids = [record.id for record in page.items]
                removed += sum(one.is_done for one in await self._store.change(_removal(ids)))
            if not page.cursor:
                return removed
            query = replace(query, cursor=page.cursor)

    async def stats(self) -> LetterStats:
        """All of them, counted by failure type and by task, with the first and the last."""
        groups = await self._store.groups(Query(states=(_DEAD,)))
        by_failure_type: dict[str, int] = {}
        for group in groups:
            name = group.failure_type.value
            by_failure_type[name] = by_failure_type.get(name, 0) + group.count
        by_task: dict[str, int] = {}
        for tally in (await self._store.stats()).tallies:
            if tally.state is _DEAD:
                by_task[tally.task] = by_task.get(tally.task, 0) + tally.n
        return LetterStats(
            total=sum(group.count for group in groups),
            by_failure_type=by_failure_type,
            by_task=by_task,
            oldest=min((group.first_at for group in groups), default=None),
            newest=max((group.last_at for group in groups), default=None),
        )

    async def replay(
        self,
        *,
        edit: Mapping[str, Any] | None = None,
        canary: int = 0,
        rate: float | str | Rate | None = None,
        replay_id: str | None = None,
        dry_run: bool = False,
        **filters: Unpack[Filters],
    ) -> Replay | Preview:
        """Begin a durable replay of these letters, as `Replays.start` describes; `replays` shows and steers it."""
        query = await self.query(**filters)
        return await self.replays.start(
            query, edit=edit, canary=canary, rate=rate, replay_id=replay_id, dry_run=dry_run
        )

    async def query(
        self,
        *,
        failure_type: FailureType | str | None = None,
        task: str = "",
        tenant: str | None = None,
        group: str = "",
        fingerprint: str = "",
        since: When | None = None,
        until: When | None = None,
        text: str = "",
    ) -> Query:
        """The store's query for these filters; ConfigError names the one that cannot be right."""
        if group and fingerprint and group != fingerprint:
            raise ConfigError(f"group={group!r}: is the same filter as fingerprint={fingerprint!r}; give one of them")
        is_relative = isinstance(since, timedelta) or isinstance(until, timedelta)
        now = await self._now() if is_relative else 0.0
        return Query(
            states=(_DEAD,),
            failure_type=_failure_type("failure_type", failure_type),
            task=task,
            tenant=tenant,
            fingerprint=group or fingerprint,
            since=instant_of("since", since, now),
            until=instant_of("until", until, now),
            text=text,
        )

    async def _now(self) -> float:
        return (await self._store.exchange(Exchange(seen=_NO_VALUES))).now


def instant_of(field: str, when: When | None, now: float) -> float | None:
    """A point in time as seconds since 1970; `field` names it where it is refused."""
    if when is None:
        return None
    if isinstance(when, datetime):
        if when.utcoffset() is None:
            raise ConfigError(f"{field}={when!r}: must have a time zone, such as datetime.now(UTC)")
        return when.timestamp()
    if isinstance(when, timedelta):
        return now - bounds.length(field, when.total_seconds())
    return bounds.number(field, when)


def _failure_type(field: str, value: FailureType | str | None) -> FailureType | None:
    if value is None or value == "":
        return None
    found = _FAILURE_TYPES.get(value)
    if found is None:
        raise ConfigError(f"{field}={value!r}: must be one of {', '.join(_FAILURE_TYPES)}")
    return found


def _removal(ids: list[str]) -> Operation:
    return Operation(change=Change.REMOVE, ids=ids)


def encoded_arguments(payload: Mapping[str, Any]) -> bytes:
    """The arguments as JSON; Invalid where they would not come back as they are."""
    if not isinstance(payload, Mapping):
        raise ConfigError(f"payload={payload!r}: must be an object with the arguments by name")
    stored = msgspec.json.decode(_any_arguments.encode((dict(payload),), {}), type=dict[str, msgspec.Raw])
    return bytes(stored["payload"])


def _any(payload):  # type: ignore[no-untyped-def]  # an annotation would allow what this must refuse
    """Stands for the arguments of whatever task: they must survive the way there and back."""


_any_arguments: Final = Arguments(_any, skip_first=False)
