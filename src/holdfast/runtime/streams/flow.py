"""The flow of a stream's messages, without any waiting: from what was received to what is begun, and to what is done.

    receive ─▶ parts: buffer ─▶ key free, due, room? ─▶ (run) ─▶ settle ─▶ finished
                                     ▲                              │
                                     ├── hold: retry in place, park ┤
                                     └─────────── errand ◀──────────┘  inbox, DLQ, retry topic, outputs

A message is finished when nothing is left to be done for it anywhere. Used from one event loop.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.policy.judge import Bury
from holdfast.policy.retry_after import LONGEST_S
from holdfast.ports import Progress, Settlement, Source
from holdfast.runtime.run import settlement_of
from holdfast.runtime.runner import Runner
from holdfast.runtime.streams.deliveries import batch_of, delivery_of, part_of, with_retries
from holdfast.runtime.streams.ends import buried, history_of, marked, retried
from holdfast.runtime.streams.errands import Errand
from holdfast.runtime.streams.part import Part, Range, by_place
from holdfast.runtime.streams.passage import Passage, from_retry, is_own_topic, retry_topic
from holdfast.runtime.streams.spec import MessageDelivery, StreamSpec, Values
from holdfast.types import Change, GiveUp, Message, NewJob, Outgoing, Place

_logger = logging.getLogger("holdfast.worker")

_RELEASED_S: Final = 0.2
"""After so long a message is tried again that could not be begun."""
_COMPLETE: Final = Change.COMPLETE
_FULL: Final = 4_000
_FULL_BATCHES: Final = 4
"""So many messages, or so many batches, of one partition are kept waiting here, while others are received."""
_LOW: Final = 0.8
"""Of the greatest gap: below it a partition that was paused for it goes on."""


class Flow:
    """What one pump has in its hands. `on_errand` takes what must be written before a message is finished;
    `on_ready` is told when something may be begun, and `on_done` when there is progress to be committed.
    """

    def __init__(
        self,
        spec: StreamSpec,
        runner: Runner,
        source: Source,
        *,
        on_errand: Callable[[Errand], None],
        on_ready: Callable[[], None],
        on_done: Callable[[], None],
    ) -> None:
        self._spec = spec
        self._runner = runner
        self._source = source
        self._has_positions = source.capabilities.has_positions
        self._on_errand = on_errand
        self._on_ready = on_ready
        self._on_done = on_done
        self.parts: dict[Place, Part] = {}
        self.in_flight = 0
        """Messages begun and not finished: running, held, or on an errand."""
        self.is_stopping = False
        """Whether nothing more is begun."""
        self._held: dict[str, MessageDelivery] = {}
        """Everything begun and not finished, by id."""
        self._ready: deque[MessageDelivery] = deque()
        """To be begun next, as what they waited for is finished."""
        self._holds: list[tuple[float, int, MessageDelivery]] = []
        """To be begun again, by when."""
        self._full = max(_FULL, _FULL_BATCHES * spec.batch)
        self._numbers = 0
        self._turn = 0
        self._rest_s = 2.0 * max(spec.steps, default=0.0)
        self._longest_wait_s = max(self._rest_s, LONGEST_S)

    @property
    def has_ready(self) -> bool:
        """Whether something waits for nothing but its turn."""
        return bool(self._ready)

    @property
    def startable(self) -> int:
        """Messages received and not looked at that may be begun as soon as there is room."""
        now = self._runner.now()
        return sum(len(part.buffer) for part in self.parts.values() if part.due_at <= now and part.range is None)

    @property
    def next_due_at(self) -> float | None:
        """When the next one may be begun that waits for an instant, and not for room too."""
        room = self._spec.in_flight - self.in_flight
        dues = [part.due_at for part in self.parts.values() if part.due_at and part.buffer and self._fits(part, room)]
        dues += [self._holds[0][0]] if self._holds else []
        return min(dues, default=None)

    # ---- partitions that come and go

    def add(self, positions: Mapping[Place, int], ours: Collection[str]) -> None:
        """These partitions are in our hands, from these offsets on; those of `ours` are retry topics."""
        now = self._runner.now()
        for place, position in positions.items():
            self.parts[place] = part = Part(
                place, position, is_retry=place[0] in ours, has_positions=self._has_positions, now=now
            )
            if part.is_retry and place[0] != retry_topic(self._spec.topic, self._spec.group, 0):
                part.rest_s = self._rest_s
            if self._spec.start == "latest":  # or whoever comes next begins at an end that has moved
                part.is_dirty = True
                self._on_done()

    def let_run_out(self, places: Collection[Place]) -> list[Part]:
        """Begin nothing more of these but what was overtaken: their parts, of which some may still be under way."""
        parts = [part for place in places if (part := self.parts.get(place)) is not None]
        for part in parts:
            part.is_revoked = True
            part.buffer.clear()
        mine = {part.place for part in parts}
        unfinished = [one for _, _, one in self._holds if one.place in mine]
        self._holds = [one for one in self._holds if one[2].place not in mine]
        heapq.heapify(self._holds)
        before = dict.fromkeys(parts, math.inf)
        for delivery in unfinished:
            part = delivery.part
            before[part] = min(before[part], delivery.offsets[0])
            self._forget(part, delivery)
        self._leave(before)
        return parts

    def leave_overtaken(self, parts: Collection[Part]) -> None:
        """Begin nothing more of these at all."""
        self._leave(dict.fromkeys(parts, -math.inf))

    def _leave(self, before: Mapping[Part, float]) -> None:
        """Leave to others what of these partitions does not run yet, but for what was overtaken before an offset."""

        def kept(waiting: set[str]) -> set[str]:
            ready = {one.id for one in self._ready}
            left = {id_ for part, offset in before.items() for id_ in part.leave(waiting | ready, offset)}
            for delivery in [one for one in self._ready if one.id in left]:
                self._ready.remove(delivery)
                self._forget(delivery.part, delivery)
            return waiting - left

        self._runner.release_waiting(but=kept)

    def remove(self, parts: Collection[Part]) -> None:
        """Whatever still comes of these, it is not ours any more."""
        self._ready = deque(one for one in self._ready if one.part not in parts)
        for part in parts:
            for delivery in list(part.held.values()):
                self._forget(part, delivery)
            if part.range is not None:  # pieces that had not begun, or were done with too early
                self.in_flight -= part.range.kept
                part.range = None
            if self.parts.get(part.place) is part:
                del self.parts[part.place]

    # ---- from messages to deliveries

    def receive(self, messages: Sequence[Message]) -> None:
        """These came; of a partition with too much behind an unfinished message no more is received."""
        now = self._runner.now()
        for place, some in by_place(messages).items():
            part = self.parts.get(place)
            if part is None or part.is_revoked:
                continue  # it went to somebody else meanwhile
            part.receive(some, now)
            if part.pausing:
                continue
            if part.offsets.open >= self._spec.max_gap:
                self._pause(part, f"{part.offsets.open} messages wait behind one that is not finished")
            elif len(part.buffer) >= self._full:
                self._pause(part, f"{len(part.buffer)} messages wait for the batch before them")

    def next(self) -> list[MessageDelivery]:
        """What is begun now."""
        now = self._runner.now()
        found: list[MessageDelivery] = []
        while self._holds and self._holds[0][0] <= now:
            found.append(heapq.heappop(self._holds)[2])
        found.extend(self._ready)
        self._ready.clear()
        parts = list(self.parts.values())
        if not parts or self.is_stopping:
            return found
        self._turn += 1  # another one begins each time, so that none is served last always
        first = self._turn % len(parts)
        take = self._take_batch if self._spec.batch else self._take
        room = self._spec.in_flight - self.in_flight
        for part in parts[first:] + parts[:first]:
            if room <= 0:
                break
            if part.buffer and not part.is_revoked and not part.is_waiting:
                if not part.careful_until:
                    room -= take(part, room, now, found)
                    continue
                far = part.set_aside(self._spec.careful_span)
                if part.buffer:
                    room -= take(part, room, now, found)
                elif far and not part.held and part.offsets.position > part.committed:
                    part.is_dirty = True  # nothing is there up to here: once that is committed, what comes next is near
                    self._on_done()
                part.buffer.extend(far)
        return found

    def _take(self, part: Part, room: int, now: float, found: list[MessageDelivery]) -> int:
        """Begin messages of this partition, one by one; how many."""
        buffer, busy, is_ordered = part.buffer, part.busy, self._spec.is_ordered
        began = 0
        while buffer and began < room:
            message = buffer[0]
            passage = None
            if part.is_retry:
                passage = self._passage_of(part, message, now)
                if self._is_foreign(passage):
                    buffer.popleft()
                    self.in_flight += 1
                    self._pass(part, [message.offset], now)
                    continue
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
        self.in_flight += began
        return began

    def _passage_of(self, part: Part, message: Message, now: float) -> Passage:
        """What a message of a retry topic brings along; it is due no later than any retry of ours would be."""
        passage = from_retry(message)
        latest = now + self._longest_wait_s if part.rest_s else now
        return replace(passage, due_at=latest) if passage.due_at > latest else passage

    def _is_foreign(self, passage: Passage) -> bool:
        """Whether it came here from another stream, whose retry topics have the same names; or says that it did."""
        spec, topic = self._spec, passage.message.topic
        if not passage.group or (passage.group == spec.group and is_own_topic(topic, spec.topic, spec.group)):
            return False
        _logger.warning(
            "stream %s: a retry of %s, of group %s, is none of ours and is passed over",
            spec.name,
            passage.message.id,
            passage.group,
        )
        return True

    def _must_wait(self, part: Part, passage: Passage, now: float) -> bool:
        """Whether the first message of a retry topic is not due; then no more is received of it."""
        due_at = min(passage.due_at, part.due_at or passage.due_at)  # no later than when it was looked at first
        if due_at <= now:
            if part.due_at:
                part.due_at = 0.0
                part.moved_at = now  # it has waited for its time, and for nobody
                self._resume(part)
            return False
        part.due_at = due_at
        if not part.pausing:
            self._pause(part, "its first message is not due yet")
        return True

    def _begun(self, part: Part, message: Message, passage: Passage | None, now: float) -> MessageDelivery:
        delivery = delivery_of(self._spec.name, part.place, message, passage, now)
        if part.is_suspect(message):
            delivery.is_suspect = True
        if self._runner.tracer is not None and (trace := message.header("traceparent")):
            delivery.trace = trace.decode("ascii", "replace")
        self._keep(part, delivery)
        return delivery

    def _keep(self, part: Part, delivery: MessageDelivery) -> None:
        # A thread may still run it from when the partition was here before.
        while delivery.id in self._runner.runs or delivery.id in self._held:
            delivery.id += "'"
        delivery.part = part
        part.held[delivery.id] = self._held[delivery.id] = delivery

    # ---- batches

    def _fits(self, part: Part, room: int) -> bool:
        """Whether one of this partition may be begun: of batches one at a time, when there is room for all of it."""
        return room > 0 and part.range is None and (room >= self._spec.batch or not self.in_flight)

    def _take_batch(self, part: Part, room: int, now: float, found: list[MessageDelivery]) -> int:
        """Begin one batch of this partition, if none is under way; how many messages."""
        if not self._fits(part, room):
            return 0
        buffer = part.buffer
        is_suspect = part.is_suspect(buffer[0])
        if part.is_retry:  # each by itself: it has a history of its own
            passage = self._passage_of(part, buffer[0], now)
            is_foreign = self._is_foreign(passage)
            if not is_foreign and self._must_wait(part, passage, now):
                return 0
            whole = delivery_of(self._spec.name, part.place, buffer.popleft(), passage, now)
            if is_foreign:
                self._pass_range(part, whole)
                return 1
        else:
            size = 1 if is_suspect else min(self._spec.batch, len(buffer))
            if size == len(buffer):
                messages = list(buffer)
                buffer.clear()
            else:
                messages = [buffer.popleft() for _ in range(size)]
            whole = batch_of(self._spec.name, part.place, messages, now)
        whole.part, whole.is_suspect = part, is_suspect
        self.in_flight += len(whole.offsets)
        part.range = Range(whole)
        self._begin_range(part, whole, found)
        return len(whole.offsets)

    def _pass_range(self, part: Part, whole: MessageDelivery) -> None:
        """A message that nobody here is to run, in its place among the batches."""
        whole.part = part
        self.in_flight += len(whole.offsets)
        part.range = Range(whole)
        self._keep(part, whole)
        self.finish(whole)

    def _begin_range(self, part: Part, whole: MessageDelivery, found: list[MessageDelivery]) -> None:
        """Decode a batch and begin it; those that cannot be decoded are given up, each by itself."""
        if whole.is_suspect:  # to be decoded where it runs
            self._keep(part, whole)
            found.append(whole)
            return
        given = self._spec.task.given
        assert isinstance(given, Values)  # noqa: S101 - a stream's task has no other
        values = given.decode_many(whole.messages)
        if values is not None:
            whole.values = values
            self._keep(part, whole)
            found.append(whole)
            return
        good: list[int] = []
        decoded: list[Any] = []
        bad: list[tuple[MessageDelivery, HoldfastError]] = []
        for place, message in enumerate(whole.messages):
            try:
                decoded.append(given.decode(message))
                good.append(place)
            except HoldfastError as error:
                bad.append((part_of(whole, [place], None), error))
        if good:
            rest = part_of(whole, good, decoded)
            self._keep(part, rest)
            found.append(rest)
        for one, mistake in bad:
            self._keep(part, one)
            self.fail(one, mistake)

    def fail(self, delivery: MessageDelivery, error: BaseException) -> None:
        """Given up without a run."""
        task, now = self._spec.task, self._runner.now()
        failure = task.classify(error, task.context)
        verdict = Bury(GiveUp.NOT_RETRIABLE.value)
        settlement = settlement_of(
            delivery, task, verdict, worker=self._runner.worker, began_at=None, ended_at=now, failure=failure
        )
        self._runner.counts.ended_as(now, delivery, "failed", f"failed:{failure.type.value}", "dead", has_run=False)
        self.settle(settlement)

    # ---- from settlements to what is finished

    def settle_many(self, settlements: Sequence[Settlement]) -> None:
        """What has become of these; those that simply ended well are passed together, each partition at once."""
        held, is_ordered = self._held, self._spec.is_ordered
        passed: dict[Part, list[int]] = {}
        followed: list[tuple[Part, Message]] = []
        count = 0
        for one in settlements:
            delivery = held.get(one.id)
            if delivery is None:
                continue  # its partition is somebody else's by now
            part: Part = delivery.part
            is_plain = one.change is _COMPLETE and delivery.outputs is None and part.range is None
            if not is_plain or delivery.letter or delivery.is_suspect:
                self.settle(one)
                continue
            del held[one.id]
            if part.held.pop(one.id, None) is None:
                continue
            count += 1
            if part in passed:
                passed[part].append(delivery.offsets[0])
            else:
                passed[part] = [delivery.offsets[0]]
            if is_ordered and (following := part.next_of(delivery.messages[0].key)) is not None:
                followed.append((part, following))
        if not count:
            return
        now = self._runner.now()
        self._runner.counts.add(now, self._spec.name, "processed", count)
        for part, offsets in passed.items():
            self._pass(part, offsets, now)
        for part, following in followed:
            self._follow(part, following, now)

    def settle(self, settlement: Settlement) -> None:
        """What has become of a delivery."""
        delivery = self._held.get(settlement.id)
        if delivery is None:
            return  # its partition is somebody else's by now
        part: Part = delivery.part
        match settlement.change:
            case Change.COMPLETE | Change.DISCARD:
                self._runner.counts.add(self._runner.now(), self._spec.name, "processed", len(delivery.offsets))
                sends = delivery.outputs.messages if delivery.outputs is not None else []
                self._write(part, delivery, marked(self._spec, delivery, settlement), sends=sends)
            case Change.RETRY if (
                self._spec.is_blocking or settlement.is_suspect
            ):  # or it would kill whoever has it next
                self._again(part, delivery, settlement)
            case Change.RETRY:
                sends = retried(self._spec, delivery, settlement, self._runner.now())
                self._on_errand(Errand(delivery=delivery, sends=sends, retry=settlement))
            case Change.BURY | Change.FAIL if len(delivery.offsets) > 1 and self._spec.is_bisected:
                self._bisect(part, delivery, settlement)
            case Change.BURY:
                letters, copies = buried(self._spec, delivery, settlement, self._runner.now())
                self._runner.counts.add(self._runner.now(), self._spec.name, "buried", len(letters))
                self._write(part, delivery, letters, copies=copies)
            case Change.FAIL:  # one that was replayed stays in the inbox that it came from
                letters, _ = (
                    buried(self._spec, delivery, settlement, self._runner.now()) if delivery.letter else ([], [])
                )
                self._write(part, delivery, letters)
            case Change.PARK:
                self._hold(part, delivery, settlement.delay_s)
            case _:  # released unrun
                self._hold(part, delivery, _RELEASED_S)

    def _write(
        self,
        part: Part,
        delivery: MessageDelivery,
        letters: Sequence[NewJob],
        *,
        sends: Sequence[Outgoing] = (),
        copies: Sequence[Outgoing] = (),
    ) -> None:
        """Write what must be written before it is finished; in a transaction, with all of its batch."""
        if self._spec.is_transactional and part.range is not None:
            part.range.letters.extend(letters)
            part.range.sends.extend(sends)
            part.range.copies.extend(copies)
            self.finish(delivery)
        elif letters or sends:
            self._on_errand(Errand(delivery=delivery, letters=letters, sends=sends, copies=copies))
        else:
            self.finish(delivery)

    def _again(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        """Another attempt in place, after its delay."""
        delivery.attempt += 1
        delivery.retries += 1
        delivery.elapsed_s = settlement.elapsed_s
        delivery.outputs = None
        delivery.messages = [with_retries(one, delivery.retries) for one in delivery.messages]
        delivery.history = history_of(delivery, settlement)
        for offset in delivery.offsets:
            part.retries[offset] = part.retries.get(offset, 0) + 1
        part.is_dirty = True
        self._on_done()
        self._hold(part, delivery, settlement.delay_s)

    def _hold(self, part: Part, delivery: MessageDelivery, delay_s: float) -> None:
        if self.is_stopping or part.is_revoked:
            self._forget(part, delivery)
            return
        self._numbers += 1
        delivery.due_at = delivery.claimed_at = self._runner.now() + delay_s
        heapq.heappush(self._holds, (delivery.due_at, self._numbers, delivery))
        self._on_ready()

    def _bisect(self, part: Part, delivery: MessageDelivery, settlement: Settlement) -> None:
        """Each half by itself, the first one first, until those are found that fail alone."""
        self._let_go(part, delivery)
        middle = len(delivery.offsets) // 2
        halves = []
        for places in (range(middle), range(middle, len(delivery.offsets))):
            half = part_of(delivery, places, delivery.values and [delivery.values[place] for place in places])
            half.attempt += 1
            half.elapsed_s = settlement.elapsed_s
            half.history = history_of(delivery, settlement)
            halves.append(half)
        assert part.range is not None  # noqa: S101 - a batch is a range
        part.range.waiting.extendleft(reversed(halves))
        self._go_on(part)

    def _go_on(self, part: Part) -> None:
        """Begin the next piece of a batch, when none of it runs."""
        if part.range is not None and part.range.waiting and not part.held and not part.is_revoked:
            delivery = part.range.waiting.popleft()
            self._keep(part, delivery)
            self._ready.append(delivery)
            self._on_ready()

    def finish(self, delivery: MessageDelivery) -> None:
        """Nothing is left to be done for these messages."""
        part: Part = delivery.part
        now = self._runner.now()
        if not self._let_go(part, delivery):
            return  # not ours any more
        done = part.range
        if done is not None:
            done.left -= len(delivery.offsets)
            if self._spec.is_transactional:
                if done.is_apart:
                    self._transact(part, done, delivery)
                elif not done.left:
                    self._transact(part, done, done.whole)
                else:
                    self._go_on(part)
                return
            done.kept -= len(delivery.offsets)
            self._pass(part, delivery.offsets, now)
            if done.left:
                self._go_on(part)
            else:
                part.range = None
                self._on_ready()
            return
        self._pass(part, delivery.offsets, now)
        if self._spec.is_ordered and (following := part.next_of(delivery.messages[0].key)) is not None:
            self._follow(part, following, now)

    def _follow(self, part: Part, message: Message, now: float) -> None:
        """Its turn has come: the one of the same key before it is finished."""
        passage = self._passage_of(part, message, now) if part.is_retry else None
        delivery = self._begun(part, message, passage, now)
        self.in_flight += 1
        if passage is not None and passage.due_at > now:
            self._hold(part, delivery, passage.due_at - now)
        else:
            self._ready.append(delivery)
            self._on_ready()

    def _pass(self, part: Part, offsets: Sequence[int], now: float) -> None:
        self.in_flight -= len(offsets)
        part.finish(offsets, now)
        self._on_done()
        if part.pausing and not part.due_at:
            has_room = len(part.buffer) <= self._full // 2
            if has_room and part.offsets.open <= self._spec.max_gap * _LOW:
                self._resume(part)

    # ---- transactions

    def _transact(self, part: Part, done: Range, settled: MessageDelivery) -> None:
        """All of these messages are settled: what they send and their offsets go by one transaction."""
        self._keep(part, settled)
        progress = Progress(position=settled.offsets[-1] + 1)
        self._on_errand(
            Errand(
                delivery=settled,
                letters=done.letters,
                sends=done.sends,
                copies=done.copies,
                commits=(part.place, progress),
            )
        )
        done.letters, done.sends, done.copies = [], [], []

    def transacted(self, delivery: MessageDelivery) -> None:
        """Its transaction is committed."""
        part: Part = delivery.part
        done = part.range
        if done is None or not self._let_go(part, delivery):
            return  # not ours any more
        done.kept -= len(delivery.offsets)
        self._pass(part, delivery.offsets, self._runner.now())
        part.committed = part.offsets.position
        if done.left:
            self._go_on(part)
        else:
            part.range = None
            part.is_dirty = False
            self._on_ready()

    def refuse_retry(self, errand: Errand) -> None:
        """Its retry topic will never take it: without its history it may, and else it is retried in place."""
        delivery, settlement = errand.delivery, errand.retry
        part: Part = delivery.part
        if settlement is None or delivery.id not in part.held:
            return  # not ours any more
        if errand.is_light:
            self._again(part, delivery, settlement)
            return
        sends = retried(self._spec, delivery, settlement, self._runner.now(), history_bytes=0)
        self._on_errand(Errand(delivery=delivery, sends=sends, retry=settlement, is_light=True))

    def refuse(self, delivery: MessageDelivery, error: BaseException) -> None:
        """What it has to send is refused for good: then it has failed.

        A transaction that is refused says nothing of which message is to blame: from now on each part has its own.
        """
        part: Part = delivery.part
        if delivery.id not in part.held:
            return  # not ours any more
        if self._spec.is_transactional and part.range is not None:
            part.range.is_apart = True
            part.range.left += len(delivery.offsets)
        delivery.outputs = None
        self.fail(delivery, error)

    # ---- letting go

    def _forget(self, part: Part, delivery: MessageDelivery) -> None:
        """It is not finished, and not ours to finish."""
        if self._let_go(part, delivery) and part.range is None:
            self.in_flight -= len(delivery.offsets)

    def _let_go(self, part: Part, delivery: MessageDelivery) -> bool:
        if self._held.get(delivery.id) is delivery:
            del self._held[delivery.id]
        return part.held.pop(delivery.id, None) is not None

    def _pause(self, part: Part, why: str) -> None:
        part.pausing = why
        self._source.pause([part.place])

    def _resume(self, part: Part) -> None:
        part.pausing = ""
        self._source.resume([part.place])
        self._on_ready()
