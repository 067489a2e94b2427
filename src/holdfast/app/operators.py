"""What people who run an app do with it: dead letters, jobs, breakers, queues, schedules.

Every method has an a… twin for async code; the plain one blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from msgspec import Struct

from holdfast.app.job import Job
from holdfast.app.messages import check_arguments, check_replay, replay_dlq, to_original_topic
from holdfast.errors import ConfigError, HoldfastError, NotFound
from holdfast.ports import Changed, Exchange, Operation, Page, Query, Value, ValueChange
from holdfast.runtime.export import Imported, export_letters, import_letters
from holdfast.runtime.inbox import Filters, Inbox, LetterStats, encoded_arguments, instant_of
from holdfast.runtime.replay import Replay
from holdfast.runtime.replays import Preview
from holdfast.runtime.schedules import Schedules, ScheduleStatus
from holdfast.runtime.shared.by_hand import BreakerView, breaker_views, disable, force_open, pause, reset, resume
from holdfast.runtime.shared.guards import is_paused
from holdfast.runtime.shared.names import QUEUE, breaker_gate, queue_gate
from holdfast.runtime.streams.dlq_replay import TopicReplay
from holdfast.types import BreakerMode, Change, FailureType, Group, JobRecord, JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.app.app import App
    from holdfast.policy.limiter import Rate
    from holdfast.runtime.inbox import When

_ATTEMPTS = 20


class _Desk:
    def __init__(self, app: App) -> None:
        self._app = app

    async def _values(self) -> tuple[dict[str, Value], float]:
        reply = await self._app.store.exchange(Exchange())
        return {value.key: value for value in reply.values if value.data is not None}, reply.now

    async def _set(self, key: str, change: Callable[[Value | None], ValueChange | None]) -> None:
        """Compare and set until it is done; nothing to change is done too."""
        for _ in range(_ATTEMPTS):
            values, _now = await self._values()
            wanted = change(values.get(key))
            if wanted is None:
                return
            reply = await self._app.store.exchange(Exchange(changes=[wanted], seen=wanted.expected))
            if reply.changed[0]:
                return
        raise HoldfastError(f"{key} is being changed by somebody else all the time")


class DeadLetterDesk(_Desk):
    """The inbox: work that was given up, with its history."""

    @property
    def _inbox(self) -> Inbox:
        return Inbox(self._app.store)

    def list(self, *, limit: int = 50, cursor: str = "", **filters: Unpack[Filters]) -> Page:
        """A page of letters, newest first: by failure_type, task, tenant, group, since, until, text."""
        return self._app.bridge.run(self.alist(limit=limit, cursor=cursor, **filters))

    async def alist(self, *, limit: int = 50, cursor: str = "", **filters: Unpack[Filters]) -> Page:
        """The same for async code."""
        return await self._inbox.list(limit=limit, cursor=cursor, **filters)

    def get(self, id: str) -> JobRecord:  # noqa: A002
        """One letter with every attempt; NotFound when there is none of this id."""
        return self._app.bridge.run(self.aget(id))

    async def aget(self, id: str) -> JobRecord:  # noqa: A002
        """The same for async code."""
        return await self._inbox.get(id)

    def retry(
        self,
        id: str,  # noqa: A002
        payload: Mapping[str, Any] | None = None,
        *,
        to_topic: bool = False,
    ) -> Changed:
        """Back to the queue with new attempts; with `payload`, other arguments (the original ones are kept).

        to_topic: a message goes to its original topic, where every group sees it, and not to its own group alone.
        """
        return self._app.bridge.run(self.aretry(id, payload, to_topic=to_topic))

    async def aretry(
        self,
        id: str,  # noqa: A002
        payload: Mapping[str, Any] | None = None,
        *,
        to_topic: bool = False,
    ) -> Changed:
        """The same for async code."""
        if payload is None and not to_topic:
            return await self._inbox.retry(id)
        letter = await self._inbox.get(id)
        data = letter.payload if payload is None else encoded_arguments(payload)
        check_arguments(self._app, letter, data)
        if to_topic:
            data = to_original_topic(letter, data)
        (changed,) = await self._app.store.change(Operation(change=Change.REPLAY, ids=(id,), payload=data))
        return changed

    def remove(self, id: str) -> Changed:  # noqa: A002
        """Delete one."""
        return self._app.bridge.run(self.aremove(id))

    async def aremove(self, id: str) -> Changed:  # noqa: A002
        """The same for async code."""
        return await self._inbox.remove(id)

    def purge(self, older_than: timedelta | float, **filters: Unpack[Filters]) -> int:
        """Delete those given up longer ago than that, in seconds or a timedelta; say how many."""
        return self._app.bridge.run(self.apurge(older_than, **filters))

    async def apurge(self, older_than: timedelta | float, **filters: Unpack[Filters]) -> int:
        """The same for async code."""
        return await self._inbox.purge(older_than, **filters)

    def stats(self) -> LetterStats:
        """How many there are, by failure type and by task, and the oldest and newest."""
        return self._app.bridge.run(self.astats())

    async def astats(self) -> LetterStats:
        """The same for async code."""
        return await self._inbox.stats()

    def groups(self, **filters: Unpack[Filters]) -> Sequence[Group]:
        """The letters by cause, the largest group first."""
        return self._app.bridge.run(self.agroups(**filters))

    async def agroups(self, **filters: Unpack[Filters]) -> Sequence[Group]:
        """The same for async code."""
        return await self._inbox.groups(**filters)

    def replay(
        self,
        *,
        edit: Mapping[str, Any] | None = None,
        canary: int = 0,
        rate: float | str | Rate | None = None,
        dry_run: bool = False,
        to_topic: bool = False,
        **filters: Unpack[Filters],
    ) -> Replay | Preview:
        """Send a whole group, or whatever the filters say, back to the queue; durable, done by the workers.

        edit: a JSON merge patch for the arguments. canary: so many first; the others once these have completed; it
        stops by itself when one of them fails with the cause it had. rate: letters a second, or "100/minute".
        dry_run: only count, and show a sample. to_topic: messages go to their original topic, where every group sees
        them, and not to their own group alone; ConfigError where a job is among the letters, and with canaries, as
        nobody is told what becomes of a message there. Invalid for an edit of a message's origin, timestamp or is_gone.
        """
        return self._app.bridge.run(
            self.areplay(edit=edit, canary=canary, rate=rate, dry_run=dry_run, to_topic=to_topic, **filters)
        )

    async def areplay(
        self,
        *,
        edit: Mapping[str, Any] | None = None,
        canary: int = 0,
        rate: float | str | Rate | None = None,
        dry_run: bool = False,
        to_topic: bool = False,
        **filters: Unpack[Filters],
    ) -> Replay | Preview:
        """The same for async code."""
        await check_replay(self._app, filters, edit, canary=canary, to_topic=to_topic)
        if to_topic:
            edit = {**(edit or {}), "to": "topic"}
        return await self._inbox.replay(edit=edit, canary=canary, rate=rate, dry_run=dry_run, **filters)

    def replay_topic(
        self,
        topic: str,
        *,
        failure_type: FailureType | str | None = None,
        limit: int | None = None,
        rate: float | str | Rate | None = None,
        to_topic: bool = False,
        dry_run: bool = False,
    ) -> TopicReplay:
        """Replay the letters of a DLQ topic that were not replayed yet; those that the inbox has go from there.

        topic: such as "orders.dlq", of any stream of the app; or the name of a stream, for its group's letters alone.
        failure_type: only those. limit: at most so many [all]. rate: letters a second, or "100/minute" [as fast as it
        goes]. to_topic: to the original topic, where every group sees them. dry_run: only count. It is done here, and
        not by the workers: when it is stopped, the next one goes on with the rest. A letter that was removed from the
        inbox is still in the topic, and goes too.
        """
        return self._app.bridge.run(
            self.areplay_topic(
                topic, failure_type=failure_type, limit=limit, rate=rate, to_topic=to_topic, dry_run=dry_run
            )
        )

    async def areplay_topic(
        self,
        topic: str,
        *,
        failure_type: FailureType | str | None = None,
        limit: int | None = None,
        rate: float | str | Rate | None = None,
        to_topic: bool = False,
        dry_run: bool = False,
    ) -> TopicReplay:
        """The same for async code."""
        kind = (await self._inbox.query(failure_type=failure_type)).failure_type
        return await replay_dlq(
            self._app, topic, failure_type=kind, limit=limit, rate=rate, to_topic=to_topic, dry_run=dry_run
        )

    def replays(self) -> Sequence[Replay]:
        """Every replay, newest first."""
        return self._app.bridge.run(self.areplays())

    async def areplays(self) -> Sequence[Replay]:
        """The same for async code."""
        return await self._inbox.replays.list()

    def pause_replay(self, id: str) -> Replay:  # noqa: A002
        """Send nothing more until it is resumed."""
        return self._app.bridge.run(self.apause_replay(id))

    async def apause_replay(self, id: str) -> Replay:  # noqa: A002
        """The same for async code."""
        return await self._inbox.replays.pause(id)

    def resume_replay(self, id: str) -> Replay:  # noqa: A002
        """Go on where it was paused."""
        return self._app.bridge.run(self.aresume_replay(id))

    async def aresume_replay(self, id: str) -> Replay:  # noqa: A002
        """The same for async code."""
        return await self._inbox.replays.resume(id)

    def stop_replay(self, id: str) -> Replay:  # noqa: A002
        """End it; what was sent stays sent."""
        return self._app.bridge.run(self.astop_replay(id))

    async def astop_replay(self, id: str) -> Replay:  # noqa: A002
        """The same for async code."""
        return await self._inbox.replays.stop(id)

    def export(self, **filters: Unpack[Filters]) -> Sequence[str]:
        """The letters as lines of JSON, with every attempt."""
        return self._app.bridge.run(self.aexport(**filters))

    async def aexport(self, **filters: Unpack[Filters]) -> Sequence[str]:
        """The same for async code."""
        query = await self._inbox.query(**filters)
        return [line async for line in export_letters(self._app.store, query)]

    def import_(self, lines: Iterable[str | bytes]) -> Imported:
        """Enqueue the jobs of exported lines again, under their ids; with a bad line none of them."""
        return self._app.bridge.run(self.aimport(lines))

    async def aimport(self, lines: Iterable[str | bytes]) -> Imported:
        """The same for async code."""
        return await import_letters(self._app.store, lines, gates=self._app.gates_of)


class JobDesk(_Desk):
    """Every job in the store."""

    def list(
        self,
        *,
        states: Sequence[JobState | str] = (),
        task: str = "",
        queue: str = "",
        tenant: str | None = None,
        user: str = "",
        project: str = "",
        since: When | None = None,
        until: When | None = None,
        text: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page:
        """A page of jobs, newest first."""
        return self._app.bridge.run(
            self.alist(
                states=states,
                task=task,
                queue=queue,
                tenant=tenant,
                user=user,
                project=project,
                since=since,
                until=until,
                text=text,
                limit=limit,
                cursor=cursor,
            )
        )

    async def alist(
        self,
        *,
        states: Sequence[JobState | str] = (),
        task: str = "",
        queue: str = "",
        tenant: str | None = None,
        user: str = "",
        project: str = "",
        since: When | None = None,
        until: When | None = None,
        text: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page:
        """The same for async code."""
        _, now = await self._values()
        query = Query(
            states=tuple(_state(state) for state in states),
            task=task,
            queue=queue,
            tenant=tenant,
            user=user,
            project=project,
            since=instant_of("since", since, now),
            until=instant_of("until", until, now),
            text=text,
            limit=limit,
            cursor=cursor,
        )
        return await self._app.store.find(query)

    def get(self, id: str) -> Job[Any]:  # noqa: A002
        """One job with every attempt; NotFound when there is none of this id."""
        return self._app.bridge.run(self.aget(id))

    async def aget(self, id: str) -> Job[Any]:  # noqa: A002
        """The same for async code."""
        (record,) = await self._app.store.get([id])
        if record is None:
            raise NotFound(f"there is no job {id}")
        return Job(self._app, record, record.id, is_new=False)

    def cancel(self, ids: str | Iterable[str]) -> Sequence[Changed]:
        """Cancel those that have not ended, by one id or several; each says what became of it."""
        return self._app.bridge.run(self.acancel(ids))

    async def acancel(self, ids: str | Iterable[str]) -> Sequence[Changed]:
        """The same for async code."""
        wanted = [ids] if isinstance(ids, str) else list(ids)
        return await self._app.store.change(
            Operation(change=Change.CANCEL, ids=wanted, reason="cancelled by hand", keep_s=self._app.keep_s)
        )


def _state(state: JobState | str) -> JobState:
    try:
        return JobState(state)
    except ValueError:
        raise ConfigError(f"states={state!r}: must be one of {', '.join(JobState)}") from None


class BreakerDesk(_Desk):
    """The breakers that all workers share."""

    def list(self) -> Sequence[BreakerView]:
        """Every breaker of the app, and those that have counted a failure or were changed by hand, by key."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[BreakerView]:
        """The same for async code."""
        values, now = await self._values()
        by_key = {view.key: view for view in breaker_views(values.values(), now)}
        for spec in (*self._app.specs.values(), *(one.task for one in self._app.stream_specs.values())):
            if spec.breaker is not None and spec.breaker not in by_key:
                by_key[spec.breaker] = _unused(spec.breaker)
        return [by_key[key] for key in sorted(by_key)]

    def reset(self, key: str) -> None:
        """Close it by hand."""
        self._app.bridge.run(self.areset(key))

    async def areset(self, key: str) -> None:
        """The same for async code."""
        await self._set(breaker_gate(key), lambda value: reset(value, key))

    def force_open(self, key: str) -> None:
        """Hold it open until it is reset."""
        self._app.bridge.run(self.aforce_open(key))

    async def aforce_open(self, key: str) -> None:
        """The same for async code."""
        await self._set(breaker_gate(key), lambda value: force_open(value, key))

    def disable(self, key: str) -> None:
        """Let everything through until it is reset."""
        self._app.bridge.run(self.adisable(key))

    async def adisable(self, key: str) -> None:
        """The same for async code."""
        await self._set(breaker_gate(key), lambda value: disable(value, key))


def _unused(key: str) -> BreakerView:
    return BreakerView(
        key=key,
        mode=BreakerMode.CLOSED,
        failures=0,
        until=None,
        retry_after=None,
        cause=None,
        period=1,
        trips=0,
    )


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue, counted."""

    name: str
    is_paused: bool
    states: Mapping[str, int]
    oldest_ready_at: float | None
    """Since when its oldest job that could run has been due."""

    @property
    def depth(self) -> int:
        """Jobs that have not ended."""
        return sum(n for state, n in self.states.items() if not JobState(state).is_terminal)


class QueueDesk(_Desk):
    """The queues that there are jobs in, or that are paused."""

    def list(self) -> Sequence[QueueView]:
        """Every queue, by name."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[QueueView]:
        """The same for async code."""
        values, _ = await self._values()
        paused = {key[len(QUEUE) :] for key, value in values.items() if key.startswith(QUEUE) and is_paused(value.data)}
        stats = await self._app.store.stats()
        states: dict[str, dict[str, int]] = {name: {} for name in paused}
        for tally in stats.tallies:
            counts = states.setdefault(tally.queue, {})
            counts[tally.state.value] = counts.get(tally.state.value, 0) + tally.n
        return [
            QueueView(
                name=name,
                is_paused=name in paused,
                states=states[name],
                oldest_ready_at=stats.oldest_ready_at.get(name),
            )
            for name in sorted(states)
        ]

    def pause(self, name: str) -> None:
        """Start none of its jobs until it is resumed; what runs goes on."""
        self._app.bridge.run(self.apause(name))

    async def apause(self, name: str) -> None:
        """The same for async code."""
        await self._set(queue_gate(name), lambda value: pause(value, name))

    def resume(self, name: str) -> None:
        """Start its jobs again."""
        self._app.bridge.run(self.aresume(name))

    async def aresume(self, name: str) -> None:
        """The same for async code."""
        await self._set(queue_gate(name), lambda value: resume(value, name))


class ScheduleDesk(_Desk):
    """The schedules of this app."""

    def list(self) -> Sequence[ScheduleStatus]:
        """Every schedule, with its last and next tick."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[ScheduleStatus]:
        """The same for async code."""
        return await self._schedules.list(self._app.clock.now())

    def pause(self, name: str) -> None:
        """Fire none of its ticks until it is resumed."""
        self._app.bridge.run(self.apause(name))

    async def apause(self, name: str) -> None:
        """The same for async code."""
        await self._schedules.pause(name, self._app.clock.now())

    def resume(self, name: str) -> None:
        """Fire its ticks again, from the next one on."""
        self._app.bridge.run(self.aresume(name))

    async def aresume(self, name: str) -> None:
        """The same for async code."""
        await self._schedules.resume(name, self._app.clock.now())

    @property
    def _schedules(self) -> Schedules:
        return Schedules(self._app.store, self._app.scheduled.values())
