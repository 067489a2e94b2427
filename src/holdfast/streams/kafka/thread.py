"""The one thread that owns the consumer: it polls, so that the group counts on us, and does what the loop asks for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.errors import SourceError
from holdfast.ports import Clock, Progress
from holdfast.streams.kafka.commits import Commits, Done, offsets_of
from holdfast.streams.kafka.faults import FORBIDDEN, MISSING, fault, words
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.messages import converted, counted
from holdfast.streams.kafka.points import starting_points
from holdfast.streams.kafka.settings import KafkaSettings, Start
from holdfast.types import Message, Place

_SLICE_S: Final = 0.02
"""A poll that waits for messages cannot be woken: so long at most does the loop wait to be heard."""
_NAP_S: Final = 0.1
_SHORT_NAP_S: Final = 0.001
_REST_AFTER_S: Final = 0.5
"""A pause throws away what librdkafka has fetched ahead, so it must not come with every short gap."""
_AGAIN_S: Final = 0.5


class Answer:
    """What the owner says of partitions that it has to give back; given on the loop, awaited by the thread."""

    def __init__(self, places: frozenset[Place], ring: Callable[[], None]) -> None:
        self.places = places
        self.progress: Mapping[Place, Progress] | None = None
        """None until it is given."""
        self.is_over = False
        """Nobody waits for it any more."""
        self._ring = ring

    def give(self, progress: Mapping[Place, Progress]) -> None:
        """Here it is."""
        self.progress = progress
        self._ring()


class Audience(Protocol):
    """Who hears of what happens on the thread; all of it is called on the event loop, in its order."""

    def deliver(self, messages: list[Message]) -> None:
        """These have come."""

    def assigned(self, positions: Mapping[Place, int], deleted: int) -> None:
        """These partitions are ours, if any; so many messages were deleted before we came to read them."""

    def revoke(self, answer: Answer) -> None:
        """These partitions go to somebody else once the answer is given."""

    def give_up(self, answer: Answer) -> None:
        """The answer took too long."""

    def lost(self, places: Collection[Place]) -> None:
        """These partitions are somebody else's already."""

    def trouble(self, why: str) -> None:
        """It may be that the broker is away."""

    def failed(self, error: SourceError) -> None:
        """It cannot work as it is; the thread ends."""

    def ended(self) -> None:
        """The thread has left the group and ended."""


class ConsumerThread:
    """Its public methods are called on the event loop; everything else runs on the thread."""

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        topics: list[str],
        audience: Audience,
        clock: Clock,
        *,
        start: Start,
        rebalance_s: float,
    ) -> None:
        self._location = repr(settings)
        self._group = group
        self._audience = audience
        self._clock = clock
        self._start = start
        self._rebalance_s = rebalance_s
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Callable[[], None]] = deque()
        self._bell = threading.Event()
        self._wanted = 0
        self._is_stopping = False
        self._is_in_callback = False

        self._ours: set[Place] = set()
        self._arriving: dict[Place, int | None] = {}
        """Given to us by the group; read from once we know from where. With an offset: ours already, but adrift."""
        self._arrive_at = 0.0
        self._gone: set[Place] = set()
        """Taken from us during the call that brings messages."""
        self._retries: dict[Place, dict[int, int]] = {}
        self._paused: set[Place] = set()
        self._stopped: set[Place] = set()
        """Paused in the client, whoever wanted it."""
        self._idle_since: float | None = None
        self._is_resting = False
        self._last_words = ""

        try:
            self._consumer = Consumer(
                settings.consumer(
                    group,
                    **{
                        "partition.assignment.strategy": "cooperative-sticky",
                        "on_commit": self._on_commit,
                        "error_cb": self._on_error,
                    },
                )
            )
        except (KafkaException, TypeError, ValueError) as error:
            raise settings.refusal(error) from None
        self._commits = Commits(self._consumer, self._location)
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)
        self._thread = threading.Thread(target=self._run, name=f"holdfast-kafka-{group}", daemon=True)

    # ---------------------------------------------------------------- on the event loop

    def begin(self) -> None:
        """Join the group."""
        self._thread.start()

    def ask(self, limit: int) -> None:
        """Bring up to so many messages, once."""
        self._wanted = limit
        self._bell.set()

    def pause(self, places: Collection[Place]) -> None:
        """Fetch no more of these."""
        self._do(lambda: self._set_paused(self._paused.union(places)))

    def resume(self, places: Collection[Place]) -> None:
        """Fetch these again, after the last message that was brought."""
        self._do(lambda: self._set_paused(self._paused.difference(places)))

    def commit(self, progress: Mapping[Place, Progress], done: Done) -> None:
        """Commit what is ours of it; `done` is called on the thread."""
        self._do(lambda: self._commit(progress, done))

    def membership(self, places: Collection[Place], told: Callable[[Any], None]) -> None:
        """What proves our membership in a transaction; None where some of these are not ours. Told on the thread."""
        self._do(lambda: told(self._consumer.consumer_group_metadata() if self._ours.issuperset(places) else None))

    def stop(self) -> None:
        """Leave the group and end."""
        self._is_stopping = True
        self._bell.set()

    def _do(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._bell.set()

    # ---------------------------------------------------------------- the loop of the thread

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._turn()
        except BaseException as error:  # what was consumed in that moment is lost to this consumer: begin anew
            log.exception("%s: the consumer of group %s broke down", self._location, self._group)
            self._tell(self._audience.failed, SourceError(f"{self._location}: the consumer broke down: {error!r}"))
        finally:
            self._leave()

    def _turn(self) -> None:
        self._bell.clear()
        try:
            self._serve()
            if self._arriving and self._clock.monotonic() >= self._arrive_at:
                self._place()
            if self._wanted:
                self._fetch()
            else:
                self._idle()
        except KafkaException as error:
            log.warning("%s: %s", self._location, words(error))
            self._tell(self._audience.trouble, words(error))
            self._clock.wait(self._bell, _NAP_S)

    def _serve(self) -> None:
        while self._commands:
            command = self._commands.popleft()
            try:
                command()
            except KafkaException as error:  # raised inside a callback it would take messages with it
                log.warning("%s: %s", self._location, words(error))

    def _fetch(self) -> None:
        self._idle_since = None
        if self._is_resting:
            self._is_resting = False
            self._apply_pauses()
        limit = self._wanted
        self._gone.clear()
        batch = self._consumer.consume(limit, 0)
        if not batch:
            first = self._consumer.poll(_SLICE_S)
            if first is None:
                return
            batch = [first, *self._consumer.consume(limit - 1, 0)] if limit > 1 else [first]
        self._hand_over(batch)

    def _hand_over(self, batch: list[Any]) -> None:
        messages, errors = converted(batch)
        if self._gone:
            messages = [message for message in messages if message.place not in self._gone]
        if self._retries:
            messages = counted(messages, self._retries)
        if messages:
            self._wanted = 0
            self._tell(self._audience.deliver, messages)
        for raw in errors:
            self._note(raw)

    def _idle(self) -> None:
        """Nobody asks: after a while everything is paused, and polled for the sake of the group alone."""
        now = self._clock.monotonic()
        if self._idle_since is None:
            self._idle_since = now
        if not self._is_resting and now - self._idle_since >= _REST_AFTER_S:
            self._is_resting = True
            self._apply_pauses()
        self._clock.wait(self._bell, _SHORT_NAP_S if self._commits.is_waiting else _NAP_S)
        if self._is_resting or self._commits.is_waiting:
            self._gone.clear()
            if (raw := self._consumer.poll(0)) is not None:
                self._hand_over([raw])

    def _leave(self) -> None:
        self._is_stopping = True
        try:
            self._serve()
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.warning("%s: could not leave group %s in good order: %s", self._location, self._group, error)
        self._commits.close()
        self._tell(self._audience.ended)

    def _tell(self, heard: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(heard, *args)
        except RuntimeError:  # the loop is closed: nobody is left to work for
            self._is_stopping = True

    # ---------------------------------------------------------------- pauses and commits

    def _set_paused(self, places: set[Place]) -> None:
        self._paused = places & self._ours
        self._apply_pauses()

    def _apply_pauses(self) -> None:
        stop = set(self._ours) if self._is_resting else set(self._paused)
        if more := stop - self._stopped:
            self._consumer.pause([TopicPartition(*place) for place in more])
        if fewer := self._stopped - stop:
            self._consumer.resume([TopicPartition(*place) for place in fewer])
        self._stopped = stop

    def _commit(self, progress: Mapping[Place, Progress], done: Done) -> None:
        offsets = offsets_of({place: how for place, how in progress.items() if place in self._ours})
        if self._is_stopping:
            done(SourceError(f"{self._location}: cannot commit: it is closed"))
        elif not offsets:
            done(None)
        else:
            self._commits.add(offsets, done)
            if self._is_in_callback:
                self._commits.now({})

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._commits.answered(error, partitions)

    # ---------------------------------------------------------------- what is ours

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Only take note: asking from where to read takes time, and may fail, which this callback must not."""
        self._arriving.update({(partition.topic, partition.partition): None for partition in partitions})
        self._arrive_at = 0.0
        consumer.incremental_assign([])

    def _place(self) -> None:
        """Read from the partitions that have come, once the broker has said from where."""
        try:
            points = starting_points(self._consumer, self._arriving, self._start, self._group)
        except KafkaException as error:
            self._arrive_at = self._clock.monotonic() + _AGAIN_S
            log.debug("%s: cannot ask from where to read: %s", self._location, words(error))
            self._tell(self._audience.trouble, f"cannot ask from where to read: {words(error)}")
            return
        arrived: dict[Place, int] = {}
        for place, position, retries, _ in points:
            here = self._arriving.pop(place)
            if retries:
                self._retries[place] = retries
            if here is None or here > position:
                arrived[place] = position
            if here is not None and here > position:  # another log: what the owner knows of it is void
                self._tell(self._audience.lost, frozenset({place}))
        self._ours.update(arrived)
        self._tell(self._audience.assigned, arrived, sum(point.deleted for point in points))
        self._consumer.incremental_assign([TopicPartition(*point.place, point.position) for point in points])
        self._apply_pauses()

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The owner has its time to finish, and what it says is committed before anybody else gets the partitions."""
        places = self._taken(partitions)
        if places and not self._is_stopping:
            self._is_in_callback = True
            self._commits.now({})
            progress = self._ask_owner(places)
            offsets = offsets_of({place: how for place, how in progress.items() if place in places})
            if (error := self._commits.now(offsets)) is not None:
                log.warning("%s; what was finished may be done again by whoever has it next", error)
            self._is_in_callback = False
        self._forget(consumer, places)

    def _ask_owner(self, places: frozenset[Place]) -> Mapping[Place, Progress]:
        answer = Answer(places, self._bell.set)
        self._tell(self._audience.revoke, answer)
        until = self._clock.monotonic() + self._rebalance_s
        while answer.progress is None and not self._is_stopping:
            left = until - self._clock.monotonic()
            if left <= 0:
                log.warning("%s: %d partitions were not given back within %g s", self._location, len(places), left)
                self._tell(self._audience.give_up, answer)
                return {}
            self._clock.wait(self._bell, left)
            self._bell.clear()
            self._serve()
        return answer.progress or {}

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = self._taken(partitions)
        if places and not self._is_stopping:
            self._tell(self._audience.lost, places)
        self._forget(consumer, places)

    def _taken(self, partitions: list[TopicPartition]) -> frozenset[Place]:
        places = frozenset((partition.topic, partition.partition) for partition in partitions)
        for place in places:
            self._arriving.pop(place, None)
        self._gone |= places
        return places & self._ours

    def _forget(self, consumer: Consumer, places: frozenset[Place]) -> None:
        self._commits.drop(places)
        self._ours -= places
        self._paused -= places
        self._stopped -= places
        for place in places:
            self._retries.pop(place, None)
        read = places - self._arriving.keys()
        try:
            consumer.incremental_unassign([TopicPartition(*place) for place in read])
        except KafkaException as error:  # raised from here it would take messages with it
            log.warning("%s: cannot let go of %d partitions: %s", self._location, len(places), words(error))

    # ---------------------------------------------------------------- what goes wrong

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._fail(error)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._tell(self._audience.trouble, self._last_words or words(error))
        else:
            self._last_words = words(error)
            log.debug("%s: %s", self._location, self._last_words)
            if error.code() == KafkaError._AUTHENTICATION:
                self._tell(self._audience.trouble, self._last_words)

    def _note(self, raw: Any) -> None:
        """An error that came in the place of a message."""
        error: KafkaError = raw.error()
        code = error.code()
        if code == KafkaError._AUTO_OFFSET_RESET:
            self._go_on((raw.topic(), raw.partition()))
        elif error.fatal() or code in FORBIDDEN:
            self._fail(error)
        elif code in MISSING:
            self._tell(self._audience.trouble, f"topic {raw.topic()} does not exist")
        else:
            log.warning("%s: %s", self._location, words(error))
            self._tell(self._audience.trouble, words(error))

    def _fail(self, error: KafkaError) -> None:
        self._is_stopping = True
        self._tell(self._audience.failed, fault(f"{self._location}: cannot read as group {self._group}", error))

    def _go_on(self, place: Place) -> None:
        """The next offset is not in the log any more: find out where to go on."""
        if place not in self._ours:
            return
        here = [TopicPartition(*place)]
        self._arriving[place] = self._consumer.position(here)[0].offset
        self._arrive_at = 0.0
        self._stopped.discard(place)
        self._consumer.incremental_unassign(here)
