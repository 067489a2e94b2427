"""Which streams there are for a topic, and the keys beside them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from holdfast.errors import NotSent
from holdfast.streams.redis_streams.entries import Batch, shard_of
from holdfast.types import Message, Place

SHARED: Final = -1
"""Instead of a shard's number: the stream is shared by all consumers of the group."""


class Stream:
    """One stream of the server, and what this consumer holds of it."""

    def __init__(self, place: Place, key: str, group: bytes, shard: int, *, deletes: bool) -> None:
        self.place = place
        self.topic, self.partition = place
        self.key = key.encode()
        beside = keys_of(key, group)
        self.retries = beside + b"retries"
        self.gone = beside + b"gone"
        self.shard = shard
        self.deletes = deletes
        """Whether what is finished is deleted: so with topics of the group's own, which nobody else reads."""
        self.is_owned = False
        self.is_paused = False
        self.is_leaving = False
        """Whether it is about to go to somebody else: nothing more is read, and what is finished is still committed."""
        self.tenure = 0
        """Rises when it is gained or lost: what was read in another tenure is somebody else's by now."""
        self.cursor: bytes | None = b"-"
        """From where on pending entries are still to be taken over; None when all are."""
        self.held: dict[int, bytes] = {}
        """Entries that were handed out, or are about to be, and are not finished: offset and id."""
        self.backlog: deque[Message] = deque()
        """Those that nobody was handed yet: they were too many, or came while it was paused."""
        self._finished: set[int] = set()
        """Committed while pending entries were taken over: an answer that is under way may still have them."""

    @property
    def shard_word(self) -> bytes:
        """The shard as scripts are told it."""
        return b"" if self.shard == SHARED else b"%d" % self.shard

    @property
    def keys(self) -> tuple[bytes, bytes, bytes]:
        """The stream, and our own two beside it."""
        return self.key, self.retries, self.gone

    def begin(self) -> None:
        """It is ours from now on."""
        self.end()
        self.is_owned = True

    def end(self) -> None:
        """It is not ours any more, and nothing that we hold of it."""
        self.is_owned = self.is_paused = self.is_leaving = False
        self.tenure += 1
        self.cursor = b"-"
        self.held.clear()
        self.backlog.clear()
        self._finished.clear()

    def keep(self, batch: Batch) -> list[Message]:
        """Hold what has come, without what we hold already: a server that lost its latest writes sends it again."""
        messages = batch.messages
        if self._finished:
            messages = [message for message in messages if message.offset not in self._finished]
        if not self.held.keys().isdisjoint(batch.ids.keys()):
            messages = [message for message in messages if message.offset not in self.held]
        self.held.update(
            batch.ids if messages is batch.messages else {one.offset: batch.ids[one.offset] for one in messages}
        )
        return messages

    def doubt(self) -> None:
        """An answer was lost that may have had entries in it: all that is pending with us comes before anything new."""
        self.cursor = b"-"

    def adopted(self, cursor: bytes | None) -> None:
        """What is pending was taken over up to here; None is to the end."""
        self.cursor = cursor
        if cursor is None:
            self._finished.clear()

    def let_go(self, offsets: Iterable[int]) -> None:
        """These are finished."""
        for offset in offsets:
            self.held.pop(offset, None)
        if self.cursor is not None:
            self._finished.update(offsets)


def keys_of(stream: str, group: bytes) -> bytes:
    """Where the keys of a group begin. No stream that is read has a slash in its name, and no group, so that those of
    `orders` and `eu.billing` are not those of `orders.eu` and `billing`.
    """
    return stream.encode() + b"/" + group + b"/"


def stream_key(topic: str, shard: int) -> str:
    """The stream of a shard."""
    return f"{topic}.{shard}"


class Layout:
    """The streams of a source: those of its topic and of the group's own are sharded, where there are shards.

    `shards_all`: so is any other topic, for a producer, which has no group.
    """

    def __init__(self, topic: str, group: bytes, shards: int, *, shards_all: bool = False) -> None:
        self.topic = topic
        self._group = group
        self.shards = shards
        self._shards_all = shards_all
        self._own_prefix = f"{topic}.{group.decode()}."
        self._sharded: set[str] = {topic}
        self.base = keys_of(topic, group)
        """Where the keys of the group begin."""

    def add(self, topics: Iterable[str]) -> None:
        """Topics of our own, which are sharded as the topic is."""
        self._sharded.update(topics)

    def streams(self, topic: str) -> list[Stream]:
        """New records of the streams of a topic, in the order of their partitions."""
        deletes = topic != self.topic
        if not self._is_sharded(topic):
            return [Stream((topic, 0), topic, self._group, SHARED, deletes=deletes)]
        return [
            Stream((topic, shard), stream_key(topic, shard), self._group, shard, deletes=deletes)
            for shard in range(self.shards)
        ]

    def key_of(self, topic: str, partition: int) -> bytes:
        """The stream of a partition."""
        return (stream_key(topic, partition) if self._is_sharded(topic) else topic).encode()

    def partition_of(self, topic: str, key: bytes | None, partition: int | None, number: int) -> int:
        """The number of the stream that a message goes to, among those of its topic; without a key it goes by its own.

        NotSent where there is no such partition.
        """
        n = self.shards if self._is_sharded(topic) else 1
        if partition is None:
            partition = number % n if key is None else shard_of(key, n)
        if not 0 <= partition < n:
            raise NotSent(f"topic {topic!r} has no partition {partition}: there are {n}")
        return partition

    def _is_sharded(self, topic: str) -> bool:
        return self.shards > 1 and (self._shards_all or topic in self._sharded or topic.startswith(self._own_prefix))
