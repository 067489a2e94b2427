"""Messages as librdkafka hands them out, made into ours: the one loop that runs for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import methodcaller
from typing import Any, Final

from msgspec.structs import replace

from holdfast.streams.kafka.logs import log
from holdfast.types import Message, Place

_headers: Final[Callable[[Any], Any]] = methodcaller("headers")
"""Called so, and not as a method: that way Python always looks whether the client has left an error behind. With a
name that it cannot read, the client hands out a broken list, and the error would come up wherever the next look is."""


def converted(batch: Iterable[Any]) -> tuple[list[Message], list[Any]]:
    """The messages in their order, and apart from them what is no message but an error."""
    messages: list[Message] = []
    errors: list[Any] = []
    add = messages.append
    last = ""
    for raw in batch:
        if raw.error() is not None:
            errors.append(raw)
            continue
        topic = raw.topic()
        if topic == last:
            topic = last  # one text for all of them: its hash is computed once
        else:
            last = topic
        try:
            headers = _headers(raw)
        except (SystemError, UnicodeDecodeError):  # a name that is no UTF-8, which the client cannot hand over
            log.warning("%s/%d/%d: its headers cannot be read, and are left out", topic, raw.partition(), raw.offset())
            headers = None
        ms = raw.timestamp()[1]
        add(
            Message(
                topic,
                raw.partition(),
                raw.offset(),
                raw.key(),
                raw.value(),
                () if headers is None else tuple(headers),
                ms / 1000 if ms > 0 else 0.0,
            )
        )
    return messages, errors


def counted(messages: list[Message], retries: Mapping[Place, dict[int, int]]) -> list[Message]:
    """The same with the counted attempts of those that were tried before, each of which is asked for once."""
    for index, message in enumerate(messages):
        counts = retries.get((message.topic, message.partition))
        if counts and (count := counts.pop(message.offset, 0)):
            messages[index] = replace(message, retries=count)
    return messages
