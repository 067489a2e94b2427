"""The one thread that owns the consumer: it polls, so that the group counts on us, and does what the loop asks for."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.errors import SourceAway, SourceError
from holdfast.ports import Clock, Progress
from holdfast.streams.kafka.assignment import Assignment
from holdfast.streams.kafka.audience import Answer, Audience
from holdfast.streams.kafka.commits import Commits, Done, offsets_of
from holdfast.streams.kafka.faults import FORBIDDEN, MISSING, fault, words
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.messages import converted, counted
from holdfast.streams.kafka.settings import KafkaSettings, Start
from holdfast.types import Place

_SLICE_S: Final = 0.02
"""A poll that waits for messages cannot be woken: so long at most does the loop wait to be heard,"""
_SHORT_SLICE_S: Final = 0.002
"""or so long when it had something to say just now."""
_JUST_NOW_S: Final = 0.1
_NAP_S: Final = 0.05
_FIRST_NAP_S: Final = 0.0001
_LONGEST_SHORT_NAP_S: Final = 0.005
_REST_AFTER_S: Final = 0.5
"""A pause throws away what librdkafka has fetched ahead, so it must not come with every short gap."""
_AGAIN_S: Final = 0.5


class ConsumerThread:
    """`begin`, `ask`, `pause`, `resume`, `commit`, `membership` and `stop` are for the event loop."""

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
        self._rebalance_s = rebalance_s
        self._loop = asyncio.get_running_loop()
        self._commands: deque[Callable[[], None]] = deque()
        self._bell = threading.Event()
        self._wanted = 0
        self._is_stopping = False
        self._is_in_callback = False
        self._gone: set[Place] = set()
        """Taken from us during the very call that brings messages."""
        self._stash: list[Any] = []
        """Came while nobody asked, with a poll for something else."""
        self._place_at = 0.0
        self._nap_s = _FIRST_NAP_S
        self._idle_since: float | None = None
        self._heard_at = 0.0
        self._last_words = ""
        callbacks = {"on_commit": self._on_commit, "error_cb": self._on_error}
        strategy = {"partition.assignment.strategy": "cooperative-sticky"}
        try:
            self._consumer = Consumer(settings.consumer(group, **strategy, **callbacks))
        except (KafkaException, TypeError, ValueError) as error:
            raise settings.refusal(error) from None
        latest = topics[0] if start == "latest" else ""  # what waits in our own topics is never passed over
        self._assignment = Assignment(self._consumer, latest, group)
        self._commits = Commits(self._consumer, self._location, clock)
        self._topics = topics
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
        self._do(lambda: self._assignment.pause(places))

    def resume(self, places: Collection[Place]) -> None:
        """Fetch these again, after the last message that was brought."""
        self._do(lambda: self._assignment.resume(places))

    def commit(self, progress: Mapping[Place, Progress], done: Done) -> None:
        """Commit what is ours of it; `done` is called on the thread."""
        self._do(lambda: self._commit(progress, done))

    def membership(self, places: Collection[Place], told: Callable[[Any], None]) -> None:
        """What proves our membership in a transaction; None where some of these are not ours. Told on the thread."""
        self._do(lambda: told(self._proof(places)))

    def stop(self) -> None:
        """Leave the group and end."""
        self._is_stopping = True
        self._bell.set()

    def _do(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._bell.set()

    # ---------------------------------------------------------------- the thread's own loop

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            self._assignment.rest(True)
            while not self._is_stopping:
                self._turn()
        except BaseException as error:  # messages may have gone with it, which only a new consumer brings again
            log.exception("%s: the consumer of group %s broke down", self._location, self._group)
            self._tell(self._audience.failed, SourceError(f"{self._location}: the consumer broke down: {error!r}"))
        finally:
            self._leave()

    def _turn(self) -> None:
        self._bell.clear()
        try:
            self._serve()
            self._commits.send()
            if self._assignment.arriving and self._clock.monotonic() >= self._place_at:
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
            self._heard_at = self._clock.monotonic()
            command = self._commands.popleft()
            try:
                command()
            except KafkaException as error:  # raised inside a callback it would take messages with it
                log.warning("%s: %s", self._location, words(error))

    def _fetch(self) -> None:
        self._idle_since = None
        self._assignment.rest(False)
        self._gone.clear()
        limit = self._wanted
        batch = self._stash[:limit]
        del self._stash[:limit]
        if len(batch) < limit:
            batch += self._consumer.consume(limit - len(batch), 0)
        if not batch:
            # Not consume: it waits for as many as it was asked for, or for the whole time.
            is_busy = self._clock.monotonic() - self._heard_at < _JUST_NOW_S
            first = self._consumer.poll(_SHORT_SLICE_S if is_busy else _SLICE_S)
            if first is None:
                return
            batch = [first, *self._consumer.consume(limit - 1, 0)] if limit > 1 else [first]
        self._hand_over(batch)

    def _hand_over(self, batch: list[Any]) -> None:
        messages, errors = converted(batch)
        if self._gone:
            messages = [message for message in messages if message.place not in self._gone]
        if self._assignment.retries:
            messages = counted(messages, self._assignment.retries)
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
        if now - self._idle_since >= _REST_AFTER_S:
            self._assignment.rest(True)
        is_answer_due = self._commits.is_waiting
        self._clock.wait(self._bell, self._nap_s if is_answer_due else _NAP_S)
        self._nap_s = min(2 * self._nap_s, _LONGEST_SHORT_NAP_S)
        if is_answer_due or self._assignment.is_resting:
            self._glance()

    def _glance(self) -> None:
        """Hear what the group and the broker have to say; a message that comes along is kept for whoever asks next."""
        self._gone.clear()
        raw = self._consumer.poll(0)
        if raw is None:
            return
        if raw.error() is not None:
            self._note(raw)
        elif (raw.topic(), raw.partition()) not in self._gone:
            self._stash.append(raw)

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

    # ---------------------------------------------------------------- commits

    def _commit(self, progress: Mapping[Place, Progress], done: Done) -> None:
        ours = {place: how for place, how in progress.items() if place in self._assignment.ours}
        if self._is_stopping:
            done(SourceAway(f"{self._location}: cannot commit: it was closed"))
        elif not ours:
            done(None)
        else:
            self._nap_s = _FIRST_NAP_S
            self._commits.add(offsets_of(ours), done)
            if self._is_in_callback:
                self._commits.now({})

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        self._commits.answered(error, partitions)

    def _proof(self, places: Collection[Place]) -> Any:
        are_ours = self._assignment.ours.issuperset(places) and not self._is_stopping
        return self._consumer.consumer_group_metadata() if are_ours else None

    # ---------------------------------------------------------------- rebalances

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Only take note: asking from where to read takes time, and may fail, which this callback must not."""
        self._assignment.arriving.update({(found.topic, found.partition): None for found in partitions})
        self._place_at = 0.0
        consumer.incremental_assign([])

    def _place(self) -> None:
        try:
            positions, other_logs, deleted = self._assignment.place()
        except KafkaException as error:
            self._place_at = self._clock.monotonic() + _AGAIN_S
            log.debug("%s: cannot ask from where to read: %s", self._location, words(error))
            self._tell(self._audience.trouble, f"cannot ask from where to read: {words(error)}")
            return
        if other_logs:
            self._tell(self._audience.lost, other_logs)
        self._tell(self._audience.assigned, positions, deleted)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """The owner has its time to finish, and what it says is committed before anybody else gets the partitions."""
        places = self._taken(partitions)
        if (known := self._assignment.ours & places) and not self._is_stopping:
            self._is_in_callback = True
            self._commits.now({})
            progress = self._ask_owner(frozenset(known))
            error = self._commits.now(offsets_of({place: progress[place] for place in known & progress.keys()}))
            if error is not None:
                log.warning("%s; what was finished may be done again by whoever has it next", error)
            self._is_in_callback = False
        self._forget(places)

    def _ask_owner(self, places: frozenset[Place]) -> Mapping[Place, Progress]:
        answer = Answer(places, self._bell.set)
        self._tell(self._audience.revoke, answer)
        until = self._clock.monotonic() + self._rebalance_s
        while answer.progress is None and not self._is_stopping:
            if (left := until - self._clock.monotonic()) <= 0:
                late = "%s: %d partitions were not given back within %g s: they are taken"
                log.warning(late, self._location, len(places), self._rebalance_s)
                self._tell(self._audience.give_up, answer)
                return {}
            self._clock.wait(self._bell, left)
            self._bell.clear()
            self._serve()
        return answer.progress or {}

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        places = self._taken(partitions)
        if (known := self._assignment.ours & places) and not self._is_stopping:
            self._tell(self._audience.lost, frozenset(known))
        self._forget(places)

    def _taken(self, partitions: list[TopicPartition]) -> set[Place]:
        places = {(found.topic, found.partition) for found in partitions}
        self._gone |= places
        self._stash = [raw for raw in self._stash if (raw.topic(), raw.partition()) not in places]
        return places

    def _forget(self, places: set[Place]) -> None:
        self._commits.drop(places)
        try:
            self._assignment.forget(places)
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
            self._assignment.set_adrift((raw.topic(), raw.partition()))
            self._place_at = 0.0
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
