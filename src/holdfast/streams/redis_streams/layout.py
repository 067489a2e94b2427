"""Which streams there are for a topic, and the keys beside them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from holdfast.errors import SourceError
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
        self.retries = self.key + b"." + group + b".retries"
        self.gone = self.key + b"." + group + b".gone"
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

    def keep(self, batch: Batch) -> list[Message]:
        """Hold what has come, without what we hold already: a server that lost its latest writes sends it again."""
        messages = batch.messages
        if not self.held.keys().isdisjoint(batch.ids.keys()):
            messages = [message for message in messages if message.offset not in self.held]
        self.held.update(batch.ids)
        return messages


class Layout:
    """The streams of a source: those of its topic and of the group's own are sharded, where there are shards."""

    def __init__(self, topic: str, group: bytes, shards: int) -> None:
        self._topic = topic
        self._group = group
        self.shards = shards
        self._own_prefix = f"{topic}.{group.decode()}."
        self._sharded: set[str] = {topic}
        self.base = topic.encode() + b"." + group
        """Where the keys of the group begin."""

    def add(self, topics: Iterable[str]) -> None:
        """Topics of our own, which are sharded as the topic is."""
        self._sharded.update(topics)

    def streams(self, topic: str) -> list[Stream]:
        """New records of the streams of a topic, in the order of their partitions."""
        deletes = topic != self._topic
        if not self._is_sharded(topic):
            return [Stream((topic, 0), topic, self._group, SHARED, deletes=deletes)]
        return [
            Stream((topic, shard), f"{topic}.{shard}", self._group, shard, deletes=deletes)
            for shard in range(self.shards)
        ]

    def key_of(self, topic: str, key: bytes | None, partition: int | None, number: int) -> bytes:
        """The stream that a message goes to; one without a key goes by its number."""
        found = self.partition_of(topic, key, partition, number)
        return (f"{topic}.{found}" if self._is_sharded(topic) else topic).encode()

    def partition_of(self, topic: str, key: bytes | None, partition: int | None, number: int) -> int:
        """The number of that stream among those of the topic."""
        n = self.shards if self._is_sharded(topic) else 1
        if partition is None:
            partition = number % n if key is None else shard_of(key, n)
        if not 0 <= partition < n:
            raise SourceError(f"topic {topic!r} has no partition {partition}: there are {n}")
        return partition

    def _is_sharded(self, topic: str) -> bool:
        return self.shards > 1 and (topic in self._sharded or topic.startswith(self._own_prefix))
