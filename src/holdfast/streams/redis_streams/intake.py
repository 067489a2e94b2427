"""What a consumer takes in: new entries, those of the dead, and what it was given and has not handed out yet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from holdfast.ports import Clock
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.desk import Desk
from holdfast.streams.redis_streams.entries import Batch
from holdfast.streams.redis_streams.faults import AnswerLost, NoGroup
from holdfast.streams.redis_streams.layout import Layout, Stream
from holdfast.streams.redis_streams.looks import unread_gone
from holdfast.streams.redis_streams.reader import LONGEST_S, SHORT_S, Got, Reader
from holdfast.streams.redis_streams.rescue import Adopted, Rescued, adopt, rescue
from holdfast.streams.redis_streams.server import make_groups
from holdfast.types import Message

_log: Final = logging.getLogger("holdfast.streams")
_MENDINGS: Final = 3
"""So often one `receive` makes groups that are gone, or asks what a lost answer had; then it says what is wrong."""


class Intake:
    """All of it happens on the event loop, but for the calls to the server, which one thread makes one by one."""

    def __init__(
        self,
        desk: Desk,
        reader: Reader,
        layout: Layout,
        streams: Sequence[Stream],
        *,
        group: bytes,
        field: bytes,
        location: str,
        claim_after_s: float,
        clock: Clock,
        on_given_up: Callable[[], None],
    ) -> None:
        self._desk = desk
        self._reader = reader
        self._layout = layout
        self._streams = streams
        self._group = group
        self._field = field
        self._location = location
        self._claim_after_s = claim_after_s
        self._clock = clock
        self._on_given_up = on_given_up
        self.consumer = b""
        self._reading: asyncio.Future[Got] | None = None
        """A read that is under way, also after whoever waited for it has been cancelled."""
        self._mending: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._active = 1
        """How many streams had something at the last read."""
        self._turn = 0
        self._losses = 0
        self._look_at_s = 0.0
        self._is_rescue_due = True
        self._is_adoption_due = True
        self._warned: dict[Stream, int] = {}

    # ---------------------------------------------------------------- told by others

    def wake(self) -> None:
        """Something has changed: look again at what may be read."""
        self._news.set()
        if self._reading is not None:
            self._reader.wake()

    def go_on(self) -> None:
        """A stream was resumed; it may have been paused before all of it was taken over."""
        self._is_adoption_due = True
        self.wake()

    def rescue_soon(self) -> None:
        """Somebody has died."""
        self._is_rescue_due = True
        self.wake()

    def adopt_soon(self) -> None:
        """Streams are ours since now, and what is pending there comes first."""
        self._is_adoption_due = self._is_rescue_due = True
        self.wake()

    async def stop(self, within_s: float) -> None:
        """End what is under way."""
        going: list[asyncio.Future[Any]] = [one for one in (self._reading, self._mending) if one is not None]
        if not going:
            return
        self._reader.wake()
        _, late = await asyncio.wait(going, timeout=within_s)
        if late:
            self._reader.hang_up()
            await asyncio.wait(late)
        for one in going:
            one.exception()  # nobody asks for it any more

    # ---------------------------------------------------------------- receiving

    async def receive(self, limit: int, wait_s: float) -> list[Message]:
        """Up to so many messages; waits so long for the first."""
        deadline_s = self._clock.monotonic() + wait_s
        mendings = 0
        while True:
            try:
                messages = await self._look(limit, deadline_s)
            except (NoGroup, AnswerLost) as error:
                mendings += 1
                if mendings > _MENDINGS:
                    raise
                if isinstance(error, NoGroup):
                    await self._make_groups()
                continue
            if messages or self._clock.monotonic() >= deadline_s:
                return messages

    async def _look(self, limit: int, deadline_s: float) -> list[Message]:
        """One look at everything, with one wait in it at the most."""
        if self._reading is not None:  # somebody was cancelled who waited for it
            self._shelve(await self._finish(self._reading))
        if messages := self._from_backlog(limit):
            return messages
        if self._is_adoption_due or self._mending is not None:
            await self._mend(self._adopt)
        self._news.clear()
        if self._is_rescue_due or self._clock.monotonic() >= self._look_at_s or self._losses != self._reader.losses:
            await self._mend(lambda: self._rescue(limit))
        if messages := self._from_backlog(limit):
            self._is_adoption_due = True  # there is room for more of it by now
            return messages
        left_s = max(0.0, deadline_s - self._clock.monotonic())
        if self._is_adoption_due:  # it was found only now that there is something to take over
            return []
        streams = [one for one in self._streams if one.is_owned and one.cursor is None and not _is_held_up(one)]
        if not streams:
            await self._wait(left_s)
            return []
        count = max(1, limit // self._active)
        self._reader.hush()
        return self._shelve(await self._read(streams, count, min(left_s, self._longest_s)), limit)

    @property
    def _longest_s(self) -> float:
        return LONGEST_S if self._desk.connection.can_wake else SHORT_S

    async def _read(self, streams: Sequence[Stream], count: int, wait_s: float) -> Got:
        consumer = self.consumer
        self._reading = self._desk.ask(lambda _: self._reader.read(streams, consumer, count, wait_s))
        return await self._finish(self._reading)

    async def _finish(self, reading: asyncio.Future[Got]) -> Got:
        """Whoever is cancelled here leaves it to the next one: what was read must not get lost."""
        try:
            got = await asyncio.shield(reading)
        except asyncio.CancelledError:
            raise
        except AnswerLost:  # reading on would bring what comes after the entries that it may have had
            self._reading = None
            for stream in self._streams:
                if stream.is_owned:
                    stream.doubt()
            self._is_adoption_due = True
            raise
        except BaseException:
            self._reading = None
            raise
        self._reading = None
        self._active = max(1, len(got))
        return got

    def _shelve(self, got: Got, limit: int = 0) -> list[Message]:
        """Hand out as many as are asked for; the rest stays here."""
        messages: list[Message] = []
        for stream, tenure, batch in got:
            if not self._is_ours(stream, tenure):
                continue
            new = stream.keep(batch)
            room = 0 if _is_held_up(stream) else limit - len(messages)
            if room >= len(new):
                messages = messages + new if messages else new
            else:
                messages += new[:room]
                stream.backlog.extend(new[room:])
        return messages

    def _from_backlog(self, limit: int) -> list[Message]:
        messages: list[Message] = []
        self._turn += 1
        n = len(self._streams)
        for number in range(n):
            stream = self._streams[(self._turn + number) % n]
            if stream.backlog and not _is_held_up(stream):
                while stream.backlog and len(messages) < limit:
                    messages.append(stream.backlog.popleft())
        return messages

    async def _wait(self, seconds: float) -> None:
        try:
            async with self._clock.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    @staticmethod
    def _is_ours(stream: Stream, tenure: int) -> bool:
        return stream.is_owned and stream.tenure == tenure

    # ---------------------------------------------------------------- mending

    async def _mend(self, mend: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do this to its end, also when whoever waits for it is cancelled: what was taken must not get lost."""
        if self._mending is None:
            self._mending = asyncio.get_running_loop().create_task(mend())
        mending = self._mending
        await asyncio.wait([mending])
        self._mending = None
        mending.result()

    async def _adopt(self) -> None:
        """Take over what is pending in streams that are ours since now, piece by piece, before anything new."""
        consumer = self.consumer
        for stream in self._unadopted():

            def run(connection: Connection, stream: Stream = stream) -> Adopted:
                return adopt(connection, self._layout, stream, group=self._group, consumer=consumer, field=self._field)

            piece = await self._desk.ask(run)
            if not piece.is_ours:  # whoever tells us so will also say what is ours then
                self._is_adoption_due = False
                self._on_given_up()
                return
            if self._is_ours(stream, piece.tenure):
                self._put_away(stream, piece.batch)
                stream.adopted(piece.cursor)
        self._is_adoption_due = bool(self._unadopted())

    def _unadopted(self) -> list[Stream]:
        """Streams that something is still to be taken over in, and that have room for it."""
        return [
            one
            for one in self._streams
            if one.is_owned and one.cursor is not None and not one.backlog and not _is_held_up(one)
        ]

    async def _rescue(self, limit: int) -> None:
        consumer, losses = self.consumer, self._reader.losses

        def run(connection: Connection) -> tuple[bool, bool, list[Rescued], dict[Stream, int]]:
            found = rescue(
                connection,
                self._layout,
                self._streams,
                group=self._group,
                consumer=consumer,
                claim_after_s=self._claim_after_s,
                limit=limit,
                field=self._field,
            )
            return *found, unread_gone(connection, self._streams, self._group)

        is_member, is_more, rescued, unread = await self._desk.ask(run)
        self._look_at_s = self._clock.monotonic() + self._claim_after_s / 2
        if not is_member:  # whoever tells us so will also say what is ours then
            self._is_rescue_due = False
            self._on_given_up()
            return
        self._losses = losses
        self._is_rescue_due = is_more
        for one in rescued:
            if self._is_ours(one.stream, one.tenure):
                self._put_away(one.stream, one.batch)
                if one.pending > len(one.stream.held):  # an answer with entries in it was lost
                    one.stream.doubt()
                    self._is_adoption_due = True
        self._warn(unread)

    def _put_away(self, stream: Stream, batch: Batch) -> None:
        stream.backlog.extend(stream.keep(batch))

    async def _make_groups(self) -> None:
        """The server has lost them: nobody knows any more what was finished, so all that is there comes again."""
        made = await self._desk.ask(
            lambda connection: make_groups(connection, self._streams, self._group, self._location, latest=False)
        )
        for stream in made:
            _log.warning(
                "%s: the group %s of stream %s was gone and is made again; all that is in the stream comes again",
                *(self._location, self._group.decode(), stream.key.decode(errors="replace")),
            )

    def _warn(self, unread: dict[Stream, int]) -> None:
        for stream, n in unread.items():
            if n > self._warned.get(stream, 0):
                _log.warning(
                    "%s: at least %d entries of stream %s were trimmed or deleted before the group %s had read them",
                    *(self._location, n, stream.key.decode(errors="replace"), self._group.decode()),
                )
        self._warned = unread


def _is_held_up(stream: Stream) -> bool:
    return stream.is_paused or stream.is_leaving
