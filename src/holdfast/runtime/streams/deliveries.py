"""Messages as deliveries: one by one, in batches, and as parts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.runtime.streams.passage import Passage
from holdfast.runtime.streams.spec import MessageDelivery
from holdfast.types import Message, Place


def delivery_of(name: str, place: Place, message: Message, passage: Passage | None, now: float) -> MessageDelivery:
    """One message; of a retry topic, with what it brought along."""
    if passage is None:
        return MessageDelivery(
            id=message.id,
            task=name,
            queue="",
            payload=b"",
            token=b"",
            attempt=message.retries + 1,
            retries=message.retries,
            created_at=message.timestamp,
            due_at=message.timestamp,
            claimed_at=now,
            messages=(message,),
            place=place,
            offsets=(message.offset,),
        )
    original = passage.message
    retries = original.retries + message.retries  # those in its retry topic too, where a worker had it and died
    return MessageDelivery(
        id=message.id,
        task=name,
        queue="",
        payload=b"",
        token=b"",
        attempt=passage.attempt + message.retries,
        retries=retries,
        elapsed_s=passage.elapsed_s,
        created_at=original.timestamp,
        due_at=passage.due_at or message.timestamp,
        claimed_at=now,
        messages=(with_retries(original, retries) if message.retries else original,),
        place=place,
        offsets=(message.offset,),
        history=passage.attempts,
        letter=passage.letter,
    )


def batch_of(name: str, place: Place, messages: list[Message], now: float) -> MessageDelivery:
    """A stretch of a partition."""
    first = messages[0]
    retries = max([one.retries for one in messages])
    return MessageDelivery(
        id=_range_id(messages),
        task=name,
        queue="",
        payload=b"",
        token=b"",
        attempt=retries + 1,
        retries=retries,
        created_at=first.timestamp,
        due_at=first.timestamp,
        claimed_at=now,
        messages=messages,
        place=place,
        offsets=[one.offset for one in messages],
    )


def part_of(whole: MessageDelivery, places: Sequence[int], values: Sequence[Any] | None) -> MessageDelivery:
    """Some messages of a batch, with what has been decoded of them."""
    messages = [whole.messages[place] for place in places]
    return MessageDelivery(
        id=_range_id(messages),
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


def with_retries(message: Message, retries: int) -> Message:
    """The same message, with so many counted attempts before the next."""
    return Message(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.value,
        message.headers,
        message.timestamp,
        retries,
        message.is_gone,
        message.deaths,
    )


def _range_id(messages: Sequence[Message]) -> str:
    first, last = messages[0], messages[-1]
    return first.id if first is last else f"{first.id}..{last.id.rpartition('/')[2]}"
