"""One partition in this worker's hands: what was received of it, what is under way, and how far it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence

from holdfast.policy.offsets import Offsets
from holdfast.ports import PartitionReport, Progress
from holdfast.runtime.streams.marks import SUSPICIOUS
from holdfast.runtime.streams.spec import MessageDelivery
from holdfast.types import Message, NewJob, Outgoing, Place, offset_text


class Part:
    """A partition that belongs to this worker. All instants are the pump's, on the store's clock."""

    __slots__ = (
        "acks",
        "buffer",
        "busy",
        "careful_until",
        "committed",
        "due_at",
        "has_positions",
        "held",
        "is_dirty",
        "is_retry",
        "is_revoked",
        "is_waiting",
        "lag",
        "moved_at",
        "offsets",
        "pausing",
        "place",
        "queued",
        "range",
        "rest_s",
        "retries",
        "suspects",
    )

    def __init__(self, place: Place, position: int, *, is_retry: bool, has_positions: bool, now: float) -> None:
        self.place = place
        self.has_positions = has_positions
        self.is_retry = is_retry
        """Whether its messages have been through here before, and may have to wait until they are due."""
        self.offsets: Offsets | Entries = Offsets(position) if has_positions else Entries(position)
        self.buffer: deque[Message] = deque()
        """Received and not looked at."""
        self.busy: set[bytes] = set()
        """The message keys that are under way."""
        self.queued: dict[bytes, deque[Message]] = {}
        """Received, behind another one of the same key."""
        self.held: dict[str, MessageDelivery] = {}
        """Begun and not finished, by id: running, waiting for another attempt, or on an errand."""
        self.range: Range | None = None
        """The batch that is under way, where a handler takes batches."""
        self.acks: list[int] = []
        """Finished since the last commit, in no order."""
        self.retries: dict[int, int] = {}
        """Counted attempts of what is not finished, by offset; also those that others have counted."""
        self.due_at = 0.0
        """When the first message of the buffer may be run."""
        self.rest_s = 0.0
        """For so long it may wait for that, and nobody is told that it is stuck."""
        self.pausing = ""
        """Why no more is received."""
        self.is_dirty = False
        """Whether there is progress that is not committed."""
        self.is_revoked = False
        """Whether nothing more of it is begun."""
        self.is_waiting = False
        """Whether nothing is begun yet, as it is not known whether it has suspects."""
        self.suspects = range(0)
        """Offsets of messages that may have killed those who had them, and are run in processes of their own."""
        self.careful_until = 0
        """Until its position is there, only messages near the position are begun."""
        self.committed = position
        """The position that whoever has it next would begin at."""
        self.moved_at = now
        """When its position moved, or when nothing was unfinished last."""
        self.lag: int | None = None

    def receive(self, messages: Sequence[Message], now: float) -> None:
        """These came, in this order; one that came before is passed over."""
        if not self.offsets.unfinished:
            self.moved_at = now
        known = self.offsets
        if isinstance(known, Entries):
            messages = [one for one in messages if one.offset not in known]
        elif messages[0].offset < known.end:
            messages = [one for one in messages if one.offset >= known.end]
        known.add_many([one.offset for one in messages])
        self.buffer.extend(messages)
        self.retries.update({one.offset: one.retries for one in messages if one.retries})

    def finish(self, offsets: Sequence[int], now: float) -> None:
        """These are done with."""
        before = self.offsets.position
        self.offsets.finish_many(offsets)
        if not self.has_positions:
            self.acks.extend(offsets)
        if self.retries:
            for offset in offsets:
                self.retries.pop(offset, None)
        if self.offsets.position != before:
            self.moved_at = now
        self.is_dirty = True

    def is_suspect(self, message: Message) -> bool:
        """Whether it may have killed those who had it, and is to be run in a process of its own."""
        return message.deaths >= SUSPICIOUS or message.offset in self.suspects

    def set_aside(self, span: int) -> deque[Message]:
        """Where care is needed: take what is further than this from the position out of the buffer, to be put back."""
        far: deque[Message] = deque()
        if self.committed >= self.careful_until:
            self.careful_until = 0
            return far
        while self.buffer and self.buffer[-1].offset >= self.committed + span:
            far.appendleft(self.buffer.pop())
        return far

    def next_of(self, key: bytes | None) -> Message | None:
        """The message of this key that comes next, now that one is finished; without one the key is free again."""
        if key is None:
            return None
        waiting = self.queued.get(key)
        if waiting is None:
            self.busy.discard(key)
            return None
        message = waiting.popleft()
        if not waiting:
            del self.queued[key]
        return message

    def leave(self, waiting: Container[str], before: float) -> set[str]:
        """Forget what is queued, and say which of those that wait for their turn or a place are left to others.

        But not what a later one has overtaken that runs or has ended: that would be done again. What is not before the
        given offset counts for nothing: it is done again in any case.
        """
        reached = self._reached(waiting, before)
        overtaken = {key: deque(one for one in some if one.offset < reached) for key, some in self.queued.items()}
        self.queued = {key: some for key, some in overtaken.items() if some}
        return {id_ for id_, one in self.held.items() if id_ in waiting and one.offsets[0] >= reached}

    def _reached(self, waiting: Container[str], before: float) -> int:
        """The last one before that offset that runs or has ended."""
        if isinstance(self.offsets, Entries):
            return -1  # each is finished by itself, so that none is overtaken
        ends = [one.offsets[-1] for id_, one in self.held.items() if id_ not in waiting]
        finished = self.offsets.last_finished(before)
        return max([one for one in ends if one < before] + [-1 if finished is None else finished])

    def take_progress(self) -> Progress:
        """What is to be committed now."""
        progress = Progress(position=self.offsets.position, finished=tuple(self.acks), retries=dict(self.retries))
        self.acks = []
        self.is_dirty = False
        return progress

    def give_back(self, progress: Progress) -> None:
        """It could not be committed."""
        self.acks.extend(progress.finished)
        self.is_dirty = True

    def report(self, now: float) -> PartitionReport:
        """How it is doing."""
        first = self.offsets.first
        return PartitionReport(
            topic=self.place[0],
            partition=self.place[1],
            position=self.offsets.position,
            lag=None if self.lag is None else max(self.lag, self.offsets.unfinished),
            in_flight=sum(len(one.offsets) for one in self.held.values()),
            buffered=len(self.buffer) + sum(map(len, self.queued.values())),
            paused=self.pausing,
            rest_s=self.rest_s,
            stuck_id="" if first is None else self._id_of(first),
            stuck_key="" if first is None else shown_key(self._key_of(first)),
            stuck_s=0.0 if first is None else max(0.0, now - self.moved_at),
        )

    def _id_of(self, offset: int) -> str:
        topic, number = self.place
        return f"{topic}/{number}/{offset_text(offset)}"

    def _key_of(self, offset: int) -> bytes | None:
        for delivery in self.held.values():
            for message, there in zip(delivery.messages, delivery.offsets, strict=True):
                if there == offset:
                    return message.key
        return None


class Entries:
    """The messages of a partition whose progress is by each message: those received and not finished, in any order."""

    __slots__ = ("_open", "end")

    def __init__(self, position: int) -> None:
        self._open: dict[int, None] = {}
        self.end = position

    def __contains__(self, offset: int) -> bool:
        return offset in self._open

    @property
    def position(self) -> int:
        """The one that was received first of those not finished, or what comes after the newest."""
        return next(iter(self._open), self.end)

    @property
    def first(self) -> int | None:
        """The one that was received first of those not finished."""
        return next(iter(self._open), None)

    @property
    def open(self) -> int:
        """How many are not finished."""
        return len(self._open)

    @property
    def unfinished(self) -> int:
        """The same: none is kept longer."""
        return len(self._open)

    def add_many(self, offsets: Sequence[int]) -> None:
        """These came."""
        self._open.update(dict.fromkeys(offsets))
        self.end = max(self.end, max(offsets, default=0) + 1)

    def finish_many(self, offsets: Sequence[int]) -> None:
        """These are done with; one that is not open is passed over."""
        for offset in offsets:
            self._open.pop(offset, None)


class Range:
    """A batch under way: one stretch of a partition, with what has come of it so far."""

    __slots__ = ("copies", "is_apart", "kept", "left", "letters", "sends", "waiting", "whole")

    def __init__(self, whole: MessageDelivery) -> None:
        self.whole = whole
        self.left = len(whole.offsets)
        """Messages of it that are not settled."""
        self.kept = self.left
        """Messages of it that are in flight: with a transaction all of them, until it is committed."""
        self.waiting: deque[MessageDelivery] = deque()
        """Parts of it that run after the one that is under way."""
        self.sends: list[Outgoing] = []
        self.copies: list[Outgoing] = []
        self.letters: list[NewJob] = []
        """What is written together with the end of it, where it ends by one transaction."""
        self.is_apart = False
        """Whether each part of it has a transaction of its own, as the server has refused that of all."""


def shown_key(key: bytes | None) -> str:
    """A message key for people."""
    if key is None:
        return ""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key[:32].hex()}"
    return text[:100] if text.isprintable() else repr(text)[1:-1][:100]


def by_place(messages: Iterable[Message]) -> dict[Place, list[Message]]:
    """The messages of each partition, in order."""
    found: dict[Place, list[Message]] = {}
    last: list[Message] = []
    topic, number = "", -1
    for one in messages:
        if one.partition != number or one.topic != topic:
            topic, number = one.topic, one.partition
            last = found.setdefault((topic, number), [])
        last.append(one)
    return found
