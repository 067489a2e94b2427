"""The pump of one stream: receives messages, has them run and judged, and finishes them in order.

    receive ─▶ parts: buffer ─▶ key free, due, room? ─▶ runner ─▶ settlement ─▶ finished ─▶ commit
                                     ▲                               │
                                     ├── hold (retry in place, park) ┤
                                     └──────────── errand ◀──────────┘  inbox, DLQ, retry topic, outputs

Each of the loops gathers while it waits: what came meanwhile goes together. A message is finished when nothing is left
to be done for it anywhere, and only what is finished is ever committed.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from holdfast.errors import HoldfastError, SourceAway, SourceError, StoreError
from holdfast.fingerprint import in_a_line
from holdfast.policy.backoff import Backoff
from holdfast.policy.judge import Bury
from holdfast.policy.steps import step_for
from holdfast.ports import Clock, PartitionReport, Progress, Settlement, Source, Store, StreamReport
from holdfast.runtime.run import settlement_of
from holdfast.runtime.runner import Runner
from holdfast.runtime.shared.guards import SharedGuards
from holdfast.runtime.streams.errands import Errand, Errands
from holdfast.runtime.streams.letters import letter_of
from holdfast.runtime.streams.part import Part, Range, by_place
from holdfast.runtime.streams.passage import Passage, dlq_topic, from_retry, retry_topic, to_dlq, to_retry
from holdfast.runtime.streams.spec import MessageDelivery, StreamSpec, Values
from holdfast.types import Attempt, Change, GiveUp, Message, NewJob, Outgoing, Place, Rng

_logger = logging.getLogger("holdfast.worker")

_RECEIVE: Final = 500
"""Messages asked for at a time, at least."""
_WAIT_S: Final = 0.5
"""How long a receive waits for the first message."""
_COMMIT_S: Final = 0.1
"""Between two commits: what a crash in that time does again."""
_LAG_S: Final = 5.0
_REPORT_S: Final = 1.0
_RELEASED_S: Final = 0.2
"""After so long a message is tried again that could not be begun."""
_LOW: Final = 0.8
"""Of the greatest gap: below it a partition that was paused for it goes on."""
_CLEAN_UP_S: Final = 5.0
_AGAIN: Final = Backoff(initial_delay=0.1, multiplier=2.0, max_delay=5.0, min_delay=0.05)
_NO_ERROR: Final = ("", 0.0)

NewRunner = Callable[[StreamSpec, Callable[[], None]], Runner]


class StreamPump:
    """Runs one stream in one worker, on its event loop. It is the owner of its source's partitions.

    `on_news` is called when something has moved: guards that the worker should share, or a stream that has become idle.
    """

    def __init__(
        self,
        spec: StreamSpec,
        source: Source,
        *,
        store: Store,
        guards: SharedGuards,
        new_runner: NewRunner,
        clock: Clock,
        rng: Rng,
        on_news: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.runner = new_runner(spec, self._on_settled)
        self._source = source
        self._guards = guards
        self._clock = clock
        self._rng = rng
        self._on_news = on_news
        self._values = spec.task.given
        self._ours = [retry_topic(spec.topic, spec.group, n) for n in range(len(spec.steps) + 1)]
        self._has_positions = source.capabilities.has_positions
        self._parts: dict[Place, Part] = {}
        self._held: dict[str, MessageDelivery] = {}
        """Everything begun and not finished, by id."""
        self._turn_of = 0
        self._in_flight = 0
        """Messages begun and not finished."""
        self._ready: deque[MessageDelivery] = deque()
        """To be begun next: their turn has come, and their place in flight is counted."""
        self._holds: list[tuple[float, int, MessageDelivery]] = []
        """To be begun again, by when."""
        self._numbers = 0
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._is_stopping = False
        self._is_open = False
        self._progressed = asyncio.Event()
        self._to_commit = asyncio.Event()
        self._last_error: tuple[str, float] = _NO_ERROR
        self._away = ""
        self._empty_receives = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.report: StreamReport = self._reported()
        """How it is doing, as of the last second; from any thread."""
        self._errands = Errands(
            store,
            source,
            clock=clock,
            rng=rng,
            on_done=self._errand_done,
            on_refused=self._errand_refused,
            on_lost=self._errand_lost,
            on_trouble=self._note_error,
        )

    # ---- from outside

    def start(self) -> None:
        """Open the source, as soon as it can be, and begin."""
        loops: tuple[Coroutine[Any, Any, None], ...] = (self._work(), self._errands.run())
        self._tasks = [asyncio.create_task(one) for one in loops]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A loop that ends by an error is a mistake of ours: another process begins anew."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.critical("stream %s has failed in a way that nobody thought of", self.spec.name, exc_info=error)
            self._note_error(f"{type(error).__name__}: {error}")
            self.runner.must_be_replaced = True
            self._on_news()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and the source has nothing more to bring for now."""
        return (
            self._is_open
            and self._empty_receives > 0
            and not (self._in_flight or self._ready or self._errands.is_busy)
            and not any(part.buffer or part.is_dirty for part in self._parts.values())
        )

    @property
    def next_due_s(self) -> float | None:
        """Seconds until something that waits may go on, where all that there is waits."""
        if self._errands.is_busy or self._ready or self.runner.runs or not self._is_open or not self._empty_receives:
            return None
        now = self.runner.now()
        dues = [part.due_at for part in self._parts.values() if part.buffer and part.due_at > now]
        dues += [self._holds[0][0]] if self._holds else []
        return max(0.0, min(dues) - now) if dues else None

    def wake(self) -> None:
        """Look again at what is due."""
        self._wake.set()

    async def drain(self, grace_s: float) -> bool:
        """Stop taking, finish what is in flight within the grace time, commit and leave; whether all was finished."""
        self._is_stopping = True
        self.runner.release_waiting(older_than_s=-60.0)
        self._drop(self._parts.values())
        deadline_s = self._clock.monotonic() + grace_s
        is_done = await self._settle_until(deadline_s, lambda: not self.runner.runs and not self._errands.is_busy)
        if not is_done:
            self.runner.stop(None, "shutdown")
            end_s = self._clock.monotonic() + _CLEAN_UP_S
            await self._settle_until(end_s, lambda: not self.runner.runs and not self._errands.is_busy)
        await self.close()
        return is_done

    async def close(self) -> None:
        """Commit what is finished and leave the group."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._is_open and not self.spec.is_transactional:
            with suppress(SourceError):  # it is run again by whoever comes next
                await self._commit_now()
        for part in self._parts.values():
            part.held.clear()  # nobody is left to finish these
        try:
            await self._source.close()
        except SourceError as error:
            _logger.warning("stream %s: could not take leave: %s", self.spec.name, error)
        await self.runner.close()

    async def _settle_until(self, deadline_s: float, is_done: Callable[[], bool]) -> bool:
        while not is_done():
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0.0:
                return False
            self._progressed.clear()
            with suppress(TimeoutError):
                async with self._clock.timeout(min(left_s, 0.5)):
                    await self._progressed.wait()
        return True

    # ---- the loops

    async def _work(self) -> None:
        await self._open()
        loops = (self._receive(), self._run(), self._commit(), self._look())
        tasks = [asyncio.create_task(one) for one in loops]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self) -> None:
        spec = self.spec
        tries = 0
        while True:
            try:
                await self._source.open(spec.topic, self._ours, self)
                if spec.task.has_dead_letters:
                    await self._source.ensure([dlq_topic(spec.topic)], spec.topic)
            except SourceError as error:
                tries += 1
                self._note_error(str(error))
                if tries == 1 or not isinstance(error, SourceAway):
                    _logger.error("stream %s cannot be opened, and is tried until it can: %s", spec.name, error)
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))
            else:
                break
        self._is_open = True
        for warning in self._source.capabilities.warnings:
            _logger.warning("stream %s: %s", spec.name, warning)
        _logger.info("stream %s reads %s as group %s", spec.name, spec.location, spec.group)

    async def _receive(self) -> None:
        """Keep enough in the buffers for what could be begun; the source waits while nobody asks."""
        enough = max(self.spec.in_flight, self.spec.batch)
        limit = max(_RECEIVE, 2 * enough)
        tries = 0
        while not self._is_stopping:
            if self._startable() >= enough:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            try:
                messages = await self._source.receive(limit, _WAIT_S)
            except SourceError as error:
                tries += 1
                self._note_error(str(error))
                if not isinstance(error, SourceAway):
                    _logger.error("stream %s cannot be read: %s", self.spec.name, error)
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))
                continue
            tries = 0
            if messages:
                self._empty_receives = 0
                self._take_in(messages)
                self._wake.set()
            else:
                self._empty_receives += 1
                if self._empty_receives == 1:
                    self._on_news()

    def _startable(self) -> int:
        now = self.runner.now()
        return sum(len(part.buffer) for part in self._parts.values() if part.due_at <= now)

    def _take_in(self, messages: Sequence[Message]) -> None:
        now = self.runner.now()
        for place, some in by_place(messages).items():
            part = self._parts.get(place)
            if part is None or part.is_revoked:
                continue  # it went to somebody else meanwhile
            part.receive(some, now)
            if part.offsets.open >= self.spec.max_gap and self._has_positions and not part.pausing:
                self._pause(part, f"{part.offsets.open} messages behind one that is not finished")

    async def _run(self) -> None:
        """Settle and begin, over and over."""
        while True:
            self._wake.clear()
            await self._turn()
            if not self._wake.is_set():
                await self._pause_until(self._next_due())

    def _next_due(self) -> float | None:
        dues = [part.due_at for part in self._parts.values() if part.buffer and part.due_at]
        dues += [self._holds[0][0]] if self._holds else []
        return min(dues, default=None)

    async def _pause_until(self, due_at: float | None) -> None:
        if due_at is None:
            await self._wake.wait()
            return
        wait_s = max(0.001, due_at - self.runner.now())
        with suppress(TimeoutError):
            async with self._clock.timeout(wait_s):
                await self._wake.wait()

    async def _turn(self) -> None:
        settlements, self.runner.settlements = self.runner.settlements, []
        for one in settlements:
            self._settle(one)
        deliveries = [] if self._is_stopping else self._next(self.spec.in_flight - self._in_flight)
        if deliveries:
            try:
                await self.runner.start(deliveries)
            except StoreError as error:  # those not begun are given back, and tried again
                self._note_error(str(error))
        self._progressed.set()
        if not self._has_room.is_set():
            self._has_room.set()
        if self._guards.is_urgent or self.is_idle:
            self._on_news()

    def _on_settled(self) -> None:
        self._wake.set()

    # ---- from messages to deliveries

    def _next(self, room: int) -> list[MessageDelivery]:
        """What is begun now."""
        now = self.runner.now()
        found: list[MessageDelivery] = []
        while self._holds and self._holds[0][0] <= now:
            _, _, delivery = heapq.heappop(self._holds)
            found.append(delivery)
        while self._ready:
            found.append(self._ready.popleft())
        parts = list(self._parts.values())
        if not parts:
            return found
        self._turn_of += 1  # another one begins each time, so that none is served last always
        first = self._turn_of % len(parts)
        take = self._take_batch if self.spec.batch else self._take
        for part in parts[first:] + parts[:first]:
            if room <= 0:
                break
            if part.buffer and not part.is_revoked:
                room -= take(part, room, now, found)
        return found

    def _take(self, part: Part, room: int, now: float, found: list[MessageDelivery]) -> int:
        """Begin messages of this partition, one by one; how many."""
        buffer, busy, is_ordered = part.buffer, part.busy, self.spec.is_ordered
        began = 0
        while buffer and began < room:
            message = buffer[0]
            passage = None
            if part.is_retry:
                passage = from_retry(message)
                if self._must_wait(part, passage, now):
                    break
            buffer.popleft()
            key = message.key
            if is_ordered and key is not None:
                if key in busy:
                    part.queued.setdefault(key, deque()).append(message)
                    continue
                busy.add(key)
            began += 1
            found.append(self._begun(part, message, passage, now))
        self._in_flight += began
        return began

    def _must_wait(self, part: Part, passage: Passage, now: float) -> bool:
        """Whether the first message of a retry topic is not due; then no more is received of it."""
        if passage.due_at <= now or self._is_stopping:
            if part.due_at:
                part.due_at = 0.0
                self._resume(part)
            return False
        if part.due_at != passage.due_at:
            part.due_at = passage.due_at
            if not part.pausing:
                self._pause(part, "the first one is not due yet")
        return True

    def _begun(self, part: Part, message: Message, passage: Passage | None, now: float) -> MessageDelivery:
        offset = message.offset
        if passage is None:
            delivery = MessageDelivery(
                id=message.id,
                task=self.spec.name,
                queue="",
                payload=b"",
                token=b"",
                attempt=message.retries + 1,
                retries=message.retries,
                created_at=message.timestamp,
                due_at=message.timestamp,
                claimed_at=now,
                messages=(message,),
                place=part.place,
                offsets=(offset,),
            )
        else:
            delivery = MessageDelivery(
                id=message.id,
                task=self.spec.name,
                queue="",
                payload=b"",
                token=b"",
                attempt=passage.attempt,
                retries=passage.message.retries,
                elapsed_s=passage.elapsed_s,
                created_at=message.timestamp,
                due_at=passage.due_at or message.timestamp,
                claimed_at=now,
                messages=(passage.message,),
                place=part.place,
                offsets=(offset,),
                history=passage.attempts,
                letter=passage.letter,
            )
        if self.runner.tracer is not None and (trace := message.header("traceparent")):
            delivery.trace = trace.decode("ascii", "replace")
        self._hold_place(part, delivery)
        return delivery

    def _hold_place(self, part: Part, delivery: MessageDelivery) -> None:
        while delivery.id in self.runner.runs:  # a thread still runs it from when the partition was here before
            delivery.id += "'"
        delivery.part = part
        part.held[delivery.id] = self._held[delivery.id] = delivery

    # ---- batches

    def _take_batch(self, part: Part, room: int, now: float, found: list[MessageDelivery]) -> int:
        """Begin one batch of this partition, if none is under way; how many messages."""
        if part.range is not None or (room < self.spec.batch and self._in_flight):
            return 0
        buffer = part.buffer
        size = min(self.spec.batch, room)
        if part.is_retry:  # each by itself: it has a history of its own
            passage = from_retry(buffer[0])
            if self._must_wait(part, passage, now):
                return 0
            whole = self._begun(part, buffer.popleft(), passage, now)
            self._let_go(part, whole)
        else:
            if len(buffer) <= size:
                messages = list(buffer)
                buffer.clear()
            else:
                messages = [buffer.popleft() for _ in range(size)]
            whole = self._batch_of(part, messages, now)
        self._in_flight += len(whole.offsets)
        part.range = Range(whole)
        self._begin_range(part, whole, found)
        return len(whole.offsets)

    def _batch_of(self, part: Part, messages: list[Message], now: float) -> MessageDelivery:
        first, last = messages[0], messages[-1]
        retries = max([one.retries for one in messages])
        return MessageDelivery(
            id=first.id if len(messages) == 1 else f"{first.id}-{last.offset}",
            task=self.spec.name,
            queue="",
            payload=b"",
            token=b"",
            attempt=retries + 1,
            retries=retries,
            created_at=first.timestamp,
            due_at=first.timestamp,
            claimed_at=now,
            messages=messages,
            place=part.place,
            offsets=[one.offset for one in messages],
        )

    def _begin_range(self, part: Part, whole: MessageDelivery, found: list[MessageDelivery]) -> None:
        """Decode a batch and begin it; those that cannot be decoded go their own way."""
        values = self._given.decode_many(whole.messages)
        if values is not None:
            whole.values = values
            self._hold_place(part, whole)
            found.append(whole)
            return
        good: list[int] = []
        decoded: list[Any] = []
        for place, message in enumerate(whole.messages):
            try:
                decoded.append(self._given.decode(message))
                good.append(place)
            except HoldfastError as error:
                one = _part_of(whole, [place], None)
                self._hold_place(part, one)
                self._fail(one, error)
        if good:
            rest = _part_of(whole, good, decoded)
            self._hold_place(part, rest)
            found.append(rest)

    @property
    def _given(self) -> Values:
        assert isinstance(self._values, Values)  # noqa: S101 - a stream's task has no other
        return self._values

    def _fail(self, delivery: MessageDelivery, error: BaseException) -> None:
        """Given up without a run."""
        task, now = self.spec.task, self.runner.now()
        failure = task.classify(error, task.context)
        verdict = Bury(GiveUp.NOT_RETRIABLE.value)
        settlement = settlement_of(
            delivery, task, verdict, worker=self.runner.worker, began_at=None, ended_at=now, failure=failure
        )
        self.runner.counts.ended_as(now, delivery, "failed", f"failed:{failure.type.value}", "dead", has_run=False)
        self._settle(settlement)

    # ---- from settlements to what is finished

    def _settle(self, settlement: Settlement) -> None:
        delivery = self._held.get(settlement.id)
        if delivery is None:
            return  # its partition is somebody else's by now
        part: Part = delivery.part
        attempt = settlement.attempt
        if attempt is not None and attempt.failure_type is not None:
            self._last_error = (f"{attempt.error_name}: {in_a_line(attempt.message)}", attempt.ended_at)
        match settlement.change:
            case Change.COMPLETE | Change.DISCARD:
                self._completed(part, delivery, settlement)
            case Change.RETRY if self.spec.is_blocking:
                self._again(part, delivery, settlement)
            case Change.RETRY:
                self._retry_later(part, delivery, settlement)
            case Change.BURY:
                self._bury(part, delivery, settlement)
            case Change.FAIL:
                self._finish(part, delivery)
            case _:  # parked, or released unrun
                delivery.due_at = self.runner.now()
                delay_s = settlement.delay_s if settlement.change is Change.PARK else _RELEASED_S
                self._hold(part, delivery, delay_s)

    def _completed(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        sends = delivery.outputs.messages if delivery.outputs is not None else []
        letters: list[NewJob] = []
        if delivery.letter:
            letters = [self._letter(delivery, 0, (), settlement.change, settlement.reason)]
        self.runner.counts.add(self.runner.now(), self.spec.name, "processed", len(delivery.offsets))
        self._write(part, delivery, letters, sends)

    def _write(
        self, part: Part, delivery: MessageDelivery, letters: Sequence[NewJob], sends: Sequence[Outgoing]
    ) -> None:
        """Write what must be written before it is finished."""
        if self.spec.is_transactional and part.range is not None:
            part.range.letters.extend(letters)
            part.range.sends.extend(sends)
            self._finish(part, delivery)
        elif letters or sends:
            self._errands.add(Errand(delivery=delivery, letters=letters, sends=sends))
        else:
            self._finish(part, delivery)

    def _again(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        """Another attempt in place, after its delay."""
        delivery.attempt += 1
        delivery.retries += 1
        delivery.elapsed_s = settlement.elapsed_s
        delivery.outputs = None
        delivery.messages = [_with_retries(one, delivery.retries) for one in delivery.messages]
        if settlement.attempt is not None:
            delivery.history = (*delivery.history, settlement.attempt)
        for offset in delivery.offsets:
            part.retries[offset] = delivery.retries
        part.is_dirty = True
        self._to_commit.set()
        delivery.due_at = self.runner.now() + settlement.delay_s
        self._hold(part, delivery, settlement.delay_s)

    def _hold(self, part: Part, delivery: MessageDelivery, delay_s: float) -> None:
        if self._is_stopping or part.is_revoked:
            self._forget(part, delivery)
            return
        self._numbers += 1
        delivery.claimed_at = self.runner.now()
        heapq.heappush(self._holds, (self.runner.now() + delay_s, self._numbers, delivery))

    def _retry_later(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        """Through a retry topic: those behind it go on."""
        spec, now = self.spec, self.runner.now()
        step = step_for(spec.steps, settlement.delay_s)
        topic = retry_topic(spec.topic, spec.group, step)
        history = delivery.history if settlement.attempt is None else (*delivery.history, settlement.attempt)
        sends = [
            to_retry(
                Passage(
                    message=_with_retries(message, delivery.retries + 1),
                    attempt=delivery.attempt + 1,
                    elapsed_s=settlement.elapsed_s,
                    due_at=now + settlement.delay_s,
                    attempts=history,
                    letter=delivery.letter,
                ),
                topic,
            )
            for message in delivery.messages
        ]
        self._errands.add(Errand(delivery=delivery, sends=sends))

    def _bury(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        if len(delivery.offsets) > 1 and self.spec.is_bisected:
            self._bisect(part, delivery, settlement)
            return
        attempt = settlement.attempt
        history = delivery.history if attempt is None else (*delivery.history, attempt)
        letters, sends = [], []
        for place, message in enumerate(delivery.messages):
            letter = self._letter(delivery, place, history, Change.BURY, settlement.reason)
            letters.append(letter)
            sends.append(
                to_dlq(
                    message,
                    topic=dlq_topic(self.spec.topic),
                    group=self.spec.group,
                    attempt=attempt or _unknown(delivery, self.runner.now()),
                    retry_count=delivery.retries,
                    letter_id=letter.id,
                )
            )
        self.runner.counts.add(self.runner.now(), self.spec.name, "buried", len(letters))
        self._write(part, delivery, letters, sends)

    def _letter(
        self, delivery: MessageDelivery, place: int, history: tuple[Attempt, ...], change: Change, reason: str
    ) -> NewJob:
        message, task = delivery.messages[place], self.spec.task
        return letter_of(
            message,
            group=self.spec.group,
            task=self.spec.name,
            queue=task.queue,
            attempts=history,
            reason=reason,
            keep_s=task.dead_letter_keep_s if change is Change.BURY else task.result_keep_s,
            change=change,
        )

    def _bisect(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        """Each half by itself, the first one first, until those are found that fail alone."""
        history = delivery.history if settlement.attempt is None else (*delivery.history, settlement.attempt)
        self._let_go(part, delivery)
        middle = len(delivery.offsets) // 2
        halves = []
        for places in (range(middle), range(middle, len(delivery.offsets))):
            values = None if delivery.values is None else [delivery.values[place] for place in places]
            half = _part_of(delivery, places, values)
            half.attempt += 1
            half.elapsed_s = settlement.elapsed_s
            half.history = history
            halves.append(half)
        assert part.range is not None  # noqa: S101 - a batch is a range
        part.range.waiting.extendleft(reversed(halves))
        self._go_on(part)

    def _go_on(self, part: Part) -> None:
        """Begin the next piece of a batch."""
        if part.range is not None and part.range.waiting and not self._is_stopping and not part.is_revoked:
            delivery = part.range.waiting.popleft()
            self._hold_place(part, delivery)
            self._ready.append(delivery)
            self._wake.set()

    def _finish(self, part: Part, delivery: MessageDelivery) -> None:
        """Nothing is left to be done for these messages."""
        now = self.runner.now()
        self._let_go(part, delivery)
        if part.range is not None:
            part.range.left -= len(delivery.offsets)
            if part.range.left:
                if not self.spec.is_transactional:
                    self._pass(part, delivery.offsets, now)
                self._go_on(part)
                return
            done, part.range = part.range, None
            if self.spec.is_transactional:
                self._transact(part, done)
                return
        elif self.spec.is_ordered:
            following = part.next_of(delivery.messages[0].key)
            if following is not None:
                self._follow(part, following, now)
        self._pass(part, delivery.offsets, now)

    def _follow(self, part: Part, message: Message, now: float) -> None:
        """Its turn has come: the one of the same key before it is finished."""
        passage = from_retry(message) if part.is_retry else None
        delivery = self._begun(part, message, passage, now)
        self._in_flight += 1
        if passage is not None and passage.due_at > now:
            self._hold(part, delivery, passage.due_at - now)
        else:
            self._ready.append(delivery)
            self._wake.set()

    def _pass(self, part: Part, offsets: Sequence[int], now: float) -> None:
        self._in_flight -= len(offsets)
        part.finish(offsets, now)
        self._to_commit.set()
        if part.pausing and not part.due_at and part.offsets.open <= self.spec.max_gap * _LOW:
            self._resume(part)

    def _transact(self, part: Part, done: Range) -> None:
        whole = done.whole
        self._hold_place(part, whole)
        progress = Progress(position=whole.offsets[-1] + 1)
        self._errands.add(
            Errand(delivery=whole, letters=done.letters, sends=done.sends, commits=(part.place, progress))
        )

    # ---- what the errands say

    def _errand_done(self, errand: Errand) -> None:
        delivery = errand.delivery
        part: Part = delivery.part
        if delivery.id in part.held:
            if errand.commits is not None:
                self._let_go(part, delivery)
                self._pass(part, delivery.offsets, self.runner.now())
                part.is_dirty = False
                self._wake.set()
            else:
                self._finish(part, delivery)
        self._progressed.set()

    def _errand_refused(self, errand: Errand, error: SourceError) -> None:
        """The server will never take what was to be sent."""
        delivery = errand.delivery
        part: Part = delivery.part
        self._note_error(str(error))
        if delivery.id not in part.held:
            return
        is_buried = any(one.end is not None and one.end.change is Change.BURY for one in errand.letters)
        if is_buried and errand.commits is None:
            _logger.error("stream %s: %s is in the inbox alone: %s", self.spec.name, delivery.id, error)
            self._finish(part, delivery)
            return
        _logger.error("stream %s: what %s has to send is refused: %s", self.spec.name, delivery.id, error)
        if errand.commits is not None:
            part.range = Range(delivery)
        delivery.outputs = None
        self._fail(delivery, error)

    def _errand_lost(self, errand: Errand) -> None:
        self.lost([errand.delivery.place])

    # ---- partitions that come and go

    def assigned(self, positions: Mapping[Place, int]) -> None:
        """These are ours from now on."""
        now = self.runner.now()
        for place, position in positions.items():
            is_retry = place[0] != self.spec.topic and place[0].startswith(
                f"{self.spec.topic}.{self.spec.group}.retry."
            )
            self._parts[place] = Part(place, position, is_retry=is_retry, has_positions=self._has_positions, now=now)
        _logger.info("stream %s has %d partitions, %d of them new", self.spec.name, len(self._parts), len(positions))
        self._wake.set()

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        """Finish what is running, or stop it, and say how far each came."""
        parts = [part for place in places if (part := self._parts.get(place)) is not None]
        for part in parts:
            part.is_revoked = True
        self._drop(parts)
        try:
            while any(part.held for part in parts):
                self._progressed.clear()
                await self._progressed.wait()
        except asyncio.CancelledError:  # the source does not wait any longer: what is left is given back
            self.runner.stop([one for part in parts for one in part.held], "shutdown")
            raise
        finally:
            for part in parts:
                self._give_up(part)
                self._parts.pop(part.place, None)
            self._wake.set()
        return {part.place: part.take_progress() for part in parts}

    def lost(self, places: Collection[Place]) -> None:
        """Stop what is running of these: it is somebody else's."""
        parts = [part for place in places if (part := self._parts.pop(place, None)) is not None]
        self._drop(parts)
        for part in parts:
            self.runner.stop(list(part.held), "cancelled")
            self._give_up(part)
        if parts:
            _logger.warning("stream %s has lost %d partitions: what ran may run again", self.spec.name, len(parts))
        self._wake.set()

    def away(self, why: str) -> None:
        """The server cannot be reached; or, with nothing, it can be again."""
        if why and not self._away:
            _logger.error("stream %s: %s", self.spec.name, why)
        elif self._away and not why:
            _logger.warning("stream %s: its server answers again", self.spec.name)
        self._away = why

    def _drop(self, parts: Collection[Part]) -> None:
        """Forget what was not begun, and what waits to be begun again."""
        for part in parts:
            part.clear()
        mine = {part.place for part in parts}
        waiting = [one for _, _, one in self._holds if one.place in mine] + [
            one for one in self._ready if one.place in mine
        ]
        self._holds = [one for one in self._holds if one[2].place not in mine]
        heapq.heapify(self._holds)
        self._ready = deque(one for one in self._ready if one.place not in mine)
        for delivery in waiting:
            self._forget(delivery.part, delivery)

    def _forget(self, part: Part, delivery: MessageDelivery) -> None:
        """It is not finished, and not ours to finish."""
        if self._let_go(part, delivery):
            self._in_flight -= len(delivery.offsets)

    def _let_go(self, part: Part, delivery: MessageDelivery) -> bool:
        self._held.pop(delivery.id, None)
        return part.held.pop(delivery.id, None) is not None

    def _give_up(self, part: Part) -> None:
        """Whatever still comes of this partition, it is not ours any more."""
        for delivery in list(part.held.values()):
            self._forget(part, delivery)
        if part.range is not None:  # pieces that had not begun
            self._in_flight -= sum(len(one.offsets) for one in part.range.waiting)
            part.range = None

    def _pause(self, part: Part, why: str) -> None:
        part.pausing = why
        self._source.pause([part.place])

    def _resume(self, part: Part) -> None:
        part.pausing = ""
        self._source.resume([part.place])
        self._wake.set()

    # ---- progress

    async def _commit(self) -> None:
        tries = 0
        while True:
            await self._to_commit.wait()
            self._to_commit.clear()
            if self.spec.is_transactional:
                continue
            try:
                await self._commit_now()
                tries = 0
                await self._clock.asleep(_COMMIT_S)
            except SourceError as error:
                tries += 1
                self._note_error(str(error))
                self._to_commit.set()
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))

    async def _commit_now(self) -> None:
        dirty = [part for part in self._parts.values() if part.is_dirty and not part.is_revoked]
        if not dirty:
            return
        progress = {part.place: part.take_progress() for part in dirty}
        try:
            await self._source.commit(progress)
        except BaseException:
            for part in dirty:
                part.give_back(progress[part.place])
            raise
        if self.is_idle:
            self._on_news()

    async def _look(self) -> None:
        """Ask how far behind we are, and say how we are doing."""
        looked_s = float("-inf")
        while True:
            if self._clock.monotonic() - looked_s >= _LAG_S:
                looked_s = self._clock.monotonic()
                await self._look_at_lags()
            self.report = self._reported()
            await self._clock.asleep(_REPORT_S)

    async def _look_at_lags(self) -> None:
        topics = sorted({place[0] for place in self._parts})
        if not topics:
            return
        try:
            lags = {(one.topic, one.partition): one.lag for one in await self._source.lags(topics)}
        except SourceError as error:
            self._note_error(str(error))
            return
        for place, part in self._parts.items():
            part.lag = lags.get(place, part.lag)

    def _reported(self) -> StreamReport:
        spec, now = self.spec, self.runner.now()
        parts: tuple[PartitionReport, ...] = tuple(part.report(now) for part in self._parts.values())
        error, at = self._last_error
        return StreamReport(
            name=spec.name,
            group=spec.group,
            location=spec.location,
            topic=spec.topic,
            partitions=parts,
            in_flight=self._in_flight,
            last_error=error,
            last_error_at=at,
            away=self._away,
        )

    def _note_error(self, why: str) -> None:
        self._last_error = (in_a_line(why), self.runner.now())


def _part_of(whole: MessageDelivery, places: Sequence[int], values: Sequence[Any] | None) -> MessageDelivery:
    """Some messages of a batch, as a delivery of their own."""
    messages = [whole.messages[place] for place in places]
    first, last = messages[0], messages[-1]
    return MessageDelivery(
        id=first.id if len(messages) == 1 else f"{first.id}-{last.offset}",
        task=whole.task,
        queue="",
        payload=b"",
        token=b"",
        attempt=whole.attempt,
        retries=whole.retries,
        elapsed_s=whole.elapsed_s,
        created_at=whole.created_at,
        due_at=whole.due_at,
        claimed_at=whole.claimed_at,
        messages=messages,
        place=whole.place,
        offsets=[whole.offsets[place] for place in places],
        values=values,
        history=whole.history,
        letter=whole.letter,
    )


def _with_retries(message: Message, retries: int) -> Message:
    return Message(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        message.headers,
        message.timestamp,
        retries,
    )


def _unknown(delivery: MessageDelivery, now: float) -> Attempt:
    return Attempt(number=delivery.attempt, started_at=now, ended_at=now, outcome=Change.BURY)
