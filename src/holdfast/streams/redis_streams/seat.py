"""A consumer's seat in its group: what is its own, what it has finished, and what it gives up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from holdfast.errors import SourceAway, SourceError
from holdfast.ports import Clock, Owner, Progress
from holdfast.streams.redis_streams.address import Address
from holdfast.streams.redis_streams.connection import Connection
from holdfast.streams.redis_streams.desk import Desk
from holdfast.streams.redis_streams.heart import Beat, Heart
from holdfast.streams.redis_streams.intake import Intake
from holdfast.streams.redis_streams.layout import Layout, Stream
from holdfast.streams.redis_streams.reader import Reader
from holdfast.streams.redis_streams.scripts import COMMIT, LEAVE, Word
from holdfast.streams.redis_streams.server import look_at_server, make_groups
from holdfast.streams.redis_streams.shards import look_at_shards
from holdfast.types import Message, Place, entry_id

_log: Final = logging.getLogger("holdfast.streams")
_BEAT_WITHIN_S: Final = 2.0
_STOP_WITHIN_S: Final = 1.0
_PAUSE_S: Final = 1.0
"""How long a `receive` waits with its error while the server is away, so that nobody asks it over and over."""


class Seat:
    """Opened once and left once. All of it is called on the event loop."""

    def __init__(
        self,
        address: Address,
        layout: Layout,
        streams: Sequence[Stream],
        owner: Owner,
        clock: Clock,
        *,
        group: bytes,
        field: bytes,
        name: str,
        latest: bool,
        claim_after_s: float,
        handover_s: float,
        answer_within_s: float,
    ) -> None:
        self._location = address.location
        self._layout = layout
        self._streams = streams
        self._by_place = {stream.place: stream for stream in streams}
        self._owner = owner
        self._clock = clock
        self._group = group
        self._latest = latest
        self._handover_s = handover_s
        self._has_joined = False
        self._is_left = False
        self._is_away = False
        self._handing: asyncio.Task[None] | None = None
        self._commits = Desk("commits", self._location, Connection(address, answer_within_s))
        reads = Connection(address, answer_within_s, takes=True)
        self._reads = Desk("reads", self._location, reads)
        beat_within_s = min(_BEAT_WITHIN_S, answer_within_s)
        self._reader = Reader(reads, Connection(address, beat_within_s), group, layout.base, field)
        self._intake = Intake(
            self._reads,
            self._reader,
            layout,
            streams,
            group=group,
            field=field,
            location=self._location,
            claim_after_s=claim_after_s,
            clock=clock,
            on_given_up=self._doubt,
        )
        self._heart = Heart(
            Connection(address, beat_within_s),
            layout,
            streams,
            group=group,
            name=name,
            alive_s=claim_after_s,
            clock=clock,
            on_beat=self._heard,
            on_lost=self._lost,
            on_error=self._failed,
        )

    async def take(self) -> tuple[str, ...]:
        """Join the group; what people should know of the server."""

        def join(connection: Connection) -> tuple[tuple[str, ...], Beat]:
            warnings = look_at_server(connection, self._location, self._streams[0].topic)
            topics = list(dict.fromkeys(stream.topic for stream in self._streams))
            warnings += look_at_shards(connection, self._layout, topics, self._group, self._location)
            make_groups(connection, self._streams, self._group, self._location, latest=self._latest)
            return warnings, self._heart.join()

        try:
            warnings, beat = await self._commits.ask(join)
        except BaseException:
            await self.leave()
            raise
        self._has_joined = True
        self._heard(beat)
        self._heart.start()
        return warnings

    async def leave(self) -> None:
        """Give everything back. What is pending with us can be claimed at once by others."""
        self._is_left = True
        if self._handing is not None:
            self._handing.cancel()
        await asyncio.to_thread(self._heart.stop)
        await self._intake.stop(_STOP_WITHIN_S)
        keys = [self._layout.base, *(stream.key for stream in self._streams)]
        command = LEAVE.call(keys, self._group, self._heart.consumer, self._layout.shards)
        if self._has_joined:
            with suppress(SourceError):  # then the others find out by themselves that we are gone
                await self._commits.ask(lambda connection: connection.ask(command))
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._commits.close()
        self._reads.close()
        self._reader.close()

    # ---------------------------------------------------------------- receiving and committing

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Up to so many messages."""
        if limit < 1:
            return []
        try:
            messages = await self._intake.receive(limit, wait_s)
        except SourceAway as error:
            self._failed(error)
            if wait_s > 0:
                await self._clock.asleep(min(wait_s, _PAUSE_S))
            raise
        if self._is_away:
            self._worked()
        return messages

    def pause(self, places: Collection[Place]) -> None:
        """Bring no more of these."""
        for place in places:
            if (stream := self._by_place.get(place)) is not None:
                stream.is_paused = True

    def resume(self, places: Collection[Place]) -> None:
        """Go on with these."""
        for place in places:
            if (stream := self._by_place.get(place)) is not None:
                stream.is_paused = False
        self._intake.go_on()

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        """Finish entries, all in one round trip."""
        keys = [self._layout.base]
        words: list[Word] = []
        parts: list[tuple[Stream, int, Sequence[int]]] = []
        for place, reached in progress.items():
            stream = self._by_place.get(place)
            if stream is None or not stream.is_owned or not (reached.finished or reached.retries):
                continue
            held = stream.held
            ids = [held.get(offset) or entry_id(offset).encode() for offset in reached.finished]
            keys += stream.keys
            words += (stream.shard_word, int(stream.deletes), len(ids), *ids, 2 * len(reached.retries))
            for offset, retries in reached.retries.items():
                words += (entry_id(offset), retries)
            parts.append((stream, stream.tenure, reached.finished))
        if not parts:
            return
        command = COMMIT.call(keys, self._group, self._intake.consumer, *words)
        (answers,) = await self._commits.ask(lambda connection: connection.ask(command))
        for (stream, tenure, finished), is_done in zip(parts, answers, strict=True):
            if not is_done:
                self._doubt()
            elif stream.tenure == tenure:
                stream.let_go(finished)

    # ---------------------------------------------------------------- what is ours

    def _heard(self, beat: Beat) -> None:
        if self._is_left:
            return
        self._worked()
        self._intake.consumer = beat.consumer
        gone = [one for one in self._streams if one.is_owned and max(0, one.shard) not in beat.mine]
        self._drop([stream for stream in gone if not stream.is_leaving])  # a failover has lost what was written last
        if beat.new:
            again = [self._by_place[place] for place in beat.new if self._by_place[place].is_owned]
            self._drop([stream for stream in again if not stream.is_leaving])
            for place in beat.new:
                self._by_place[place].begin()
            self._owner.assigned(beat.new)
            self._intake.adopt_soon()
        if beat.dead:
            self._intake.rescue_soon()
        if beat.surplus and self._handing is None:
            self._handing = asyncio.get_running_loop().create_task(self._hand_over(beat.surplus))

    def _lost(self) -> None:
        if not self._is_left:
            _log.warning("%s: this consumer was silent for too long, and has lost what it had", self._location)
            self._drop([stream for stream in self._streams if stream.is_owned and not stream.is_leaving])
            for stream in self._streams:
                stream.end()
            self._intake.wake()

    def _drop(self, streams: Sequence[Stream]) -> None:
        for stream in streams:
            stream.end()
        if streams:
            self._owner.lost([stream.place for stream in streams])

    def _doubt(self) -> None:
        """The server says that something is not ours: ask it at once what is."""
        self._heart.release()

    async def _hand_over(self, n: int) -> None:
        """Let the owner finish with so many shards, commit that, and give them back."""
        shards = sorted({stream.shard for stream in self._streams if stream.is_owned})[-n:]
        streams = [stream for stream in self._streams if stream.is_owned and stream.shard in shards]
        for stream in streams:
            stream.is_leaving = True
        tenures = [stream.tenure for stream in streams]
        places = [stream.place for stream in streams]
        try:
            progress = await self._ask_back(places)
            with suppress(SourceAway):  # then it comes again to whoever is next
                await self.commit({place: progress[place] for place in places if place in progress})
        finally:
            self._handing = None
            still = [one for one, tenure in zip(streams, tenures, strict=True) if one.tenure == tenure]
            for stream in still:  # not those that were lost meanwhile, and perhaps gained again
                stream.end()
            self._heart.release({stream.shard for stream in still})

    async def _ask_back(self, places: Sequence[Place]) -> Mapping[Place, Progress]:
        try:
            async with self._clock.timeout(self._handover_s):
                return await self._owner.revoked(places)
        except TimeoutError:
            _log.warning("%s: shards were not given up within %g s; others take them", self._location, self._handover_s)
        except Exception:  # its fault must not keep the shards from others
            _log.exception("%s: an owner failed while its shards were revoked", self._location)
        self._owner.lost(places)
        return {}

    # ---------------------------------------------------------------- how the server is

    def _failed(self, error: SourceError) -> None:
        if not self._is_left and not self._is_away:
            self._is_away = True
            self._owner.away(str(error))

    def _worked(self) -> None:
        if self._is_away:
            self._is_away = False
            self._owner.away("")
