"""What is asked of the brokers beside reading and writing: topics, their ends, and how far a group is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public, unlisted

from holdfast.errors import SourceError
from holdfast.ports import Clock, Lag
from holdfast.streams.kafka.faults import FORBIDDEN, fault, kafka_error, words
from holdfast.streams.kafka.positions import Positions
from holdfast.streams.kafka.settings import KafkaSettings, Start
from holdfast.streams.kafka.topics import Topics
from holdfast.types import Place

R = TypeVar("R")

_MOVING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
_SETTLED_WITHIN_S: Final = 1.0
_LOOK_AGAIN_S: Final = 0.02
WITHIN_S: Final = 10.0
"""How long an answer may take."""


class Admin:
    """Made with its first use, and used from one event loop."""

    def __init__(self, settings: KafkaSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._location = repr(settings)
        self._topics = Topics(settings, clock)
        self._positions = Positions(settings, clock, self._note)
        self._made: AdminClient | None = None
        self._last_words = ""

    async def partitions(self, topics: Collection[str], within_s: float = WITHIN_S) -> dict[str, int]:
        """How many partitions each of these has; those that do not exist are left out, and not made."""
        return await self._topics.partitions(topics, within_s)

    async def create(self, topics: Collection[str], partitions: int) -> None:
        """Make these topics, with the broker's own settings for all else; one that is there by now is fine."""
        new = [NewTopic(topic, num_partitions=partitions) for topic in sorted(topics)]
        asked = self._client.create_topics(new, request_timeout=WITHIN_S, operation_timeout=WITHIN_S)
        for topic, answer in asked.items():
            try:
                await _awaited(answer)
            except KafkaException as error:
                code = kafka_error(error).code()
                if code == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if code in FORBIDDEN:
                    all_of_them = ", ".join(sorted(topics))
                    each = "one partition" if partitions == 1 else f"{partitions} partitions"
                    todo = f"create {all_of_them}, with {each} each, or let this user do so"
                    raise SourceError(f"{self._location}: may not create topics: {words(error)}; {todo}") from error
                raise self._fault(f"cannot create topic {topic}", error) from error

    async def lags(self, group: str, topics: Sequence[str], start: Start) -> list[Lag]:
        """How far the group is behind in each partition of these, whoever is in it."""
        counts = await self.partitions(topics)
        places = [(topic, number) for topic in topics if topic in counts for number in range(counts[topic])]
        return await self._patiently(lambda: self._lags(group, places, start)) if places else []

    async def _lags(self, group: str, places: Sequence[Place], start: Start) -> list[Lag]:
        # Asked for one after the other, the ends last: nobody is ahead of them.
        committed = await self._positions.committed(group, places, WITHIN_S, is_stable=False)
        begins = await self._positions.begins(places, WITHIN_S)
        ends = await self._positions.ends(places, WITHIN_S, is_stable=not self._settings.reads_uncommitted)
        lags = []
        for place in places:
            position, begin, end = committed.get(place), begins[place], ends[place]
            # What waits in our own topics is never passed over.
            is_passed_over = start == "latest" and place[0] == self._settings.place.topic
            seen = max(position, begin) if position is not None else end if is_passed_over else begin
            lag = max(end - seen, 0)
            lags.append(Lag(topic=place[0], partition=place[1], lag=lag, position=position, end=end))
        return lags

    async def extent(self, topic: str, partitions: int) -> dict[Place, tuple[int, int]]:
        """From where to where each partition of a topic goes.

        What was committed a moment ago is waited for: the broker says so before readers can see it. Behind a
        transaction that stays open nothing can be seen by those who read what is committed.
        """
        places = [(topic, number) for number in range(partitions)]
        until = self._clock.monotonic() + _SETTLED_WITHIN_S
        while True:
            begins, ends, seen = await self._patiently(lambda: self._extent(places))
            if seen == ends or self._clock.monotonic() >= until:
                return {place: (begins[place], seen[place]) for place in places}
            await self._clock.asleep(_LOOK_AGAIN_S)

    async def _extent(self, places: Sequence[Place]) -> tuple[dict[Place, int], dict[Place, int], dict[Place, int]]:
        begins = await self._positions.begins(places, WITHIN_S)
        ends = await self._positions.ends(places, WITHIN_S, is_stable=False)
        if self._settings.reads_uncommitted:
            return begins, ends, ends
        return begins, ends, await self._positions.ends(places, WITHIN_S, is_stable=True)

    async def committed(self, group: str, places: Collection[Place]) -> dict[Place, int]:
        """The positions of a group, where it has any; waits for transactions that are about to end."""
        return await self._patiently(lambda: self._positions.committed(group, places, WITHIN_S, is_stable=True))

    async def close(self, within_s: float) -> None:
        """Let go of the connections."""
        await asyncio.gather(self._topics.close(within_s), self._positions.close(within_s))
        self._made = None

    # ---------------------------------------------------------------- single questions

    @property
    def _client(self) -> AdminClient:
        if self._made is None:
            try:
                self._made = AdminClient(self._settings.client(error_cb=self._note))
            except (KafkaException, TypeError, ValueError) as error:
                raise self._settings.refusal(error) from None
        self._made.poll(0)  # what it has to say would gather otherwise
        return self._made

    def _note(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._last_words = words(error)

    async def _patiently(self, ask: Callable[[], Awaitable[R]]) -> R:
        """Ask until brokers that have just been given a partition or a group know of it; the client does not."""
        until = self._clock.monotonic() + _SETTLED_WITHIN_S
        while True:
            try:
                return await ask()
            except KafkaException as error:
                if kafka_error(error).code() not in _MOVING or self._clock.monotonic() >= until:
                    raise self._fault("cannot ask how far topics and groups are", error) from error
            await self._clock.asleep(_LOOK_AGAIN_S)

    def _fault(self, what: str, error: KafkaException | KafkaError) -> SourceError:
        """With the reason: by itself a client says of everything that it had no answer in time."""
        if self._made is not None:
            self._made.poll(0)
        code = kafka_error(error).code()
        why = self._last_words if code in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT} else ""
        return fault(f"{self._location}: {what}", error, why)


async def _awaited(answer: Future[R]) -> R:
    return await asyncio.shield(asyncio.wrap_future(answer))  # the client would stumble over one that was cancelled
