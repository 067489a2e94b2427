"""A message on its way through our own topics: their names, and what it carries along in headers.

Ours are written behind a message's own headers, all of them each time, and only the last one of each name is taken
off again: so a header of the user's that has one of these names comes back as it was.

Whoever may write to a topic may write these headers too: nothing that they say is believed beyond its bounds.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.redact import redacted_text
from holdfast.runtime.run import storable
from holdfast.runtime.streams.texts import (
    HISTORY_BYTES,
    bounded_text,
    finite,
    history_in,
    history_of,
    instant_of,
    instant_text,
    offset_of,
)
from holdfast.types import Attempt, Header, Message, Outgoing, offset_text

# ---------------------------------------------------------------- names

_LONGEST_TOPIC: Final = 249
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")


def retry_topic(topic: str, group: str, n: int) -> str:
    """Where a group's messages wait for their retry: n is the delay step, and 0 is for those that are due at once."""
    return f"{topic}.{group}.retry.{n}"


def dlq_topic(topic: str) -> str:
    """Where messages go that a group has given up, besides the inbox: one for all groups of a topic."""
    return f"{topic}.dlq"


def is_own_topic(name: str, topic: str, group: str) -> bool:
    """Whether messages of this topic are those of a stream: it is the stream's own, or one of its retry topics."""
    if name == topic:
        return True
    before, _, n = name.rpartition(".")
    return before == f"{topic}.{group}.retry" and n.isascii() and n.isdigit()


def own_topics(topic: str, group: str, *, steps: int) -> tuple[str, ...]:
    """All topics of ours that stand beside one: the retry topics from 0 to `steps`, then the DLQ."""
    return (*(retry_topic(topic, group, n) for n in range(steps + 1)), dlq_topic(topic))


def checked_topic(name: str) -> str:
    """A name that Kafka takes for a topic; ConfigError for any other."""
    if len(name) > _LONGEST_TOPIC:
        raise ConfigError(f"the topic {name!r} has {len(name)} characters, and Kafka takes {_LONGEST_TOPIC}")
    if not _TOPIC.fullmatch(name) or name in {".", ".."}:
        raise ConfigError(
            f"the topic {name!r}: Kafka takes letters, digits, '.', '_' and '-' alone, and not '.' or '..'"
        )
    return name


# ---------------------------------------------------------------- through a retry topic

DUE: Final = "holdfast-due"
"""When it may be tried again: seconds since 1970 on the store's clock, 0 for now."""
PASSAGE: Final = "holdfast-passage"
HISTORY: Final = "holdfast-history"

_RETRY_NAMES: Final = frozenset({DUE, PASSAGE, HISTORY})
_DAMAGED: Final = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)


class Passage(Struct, frozen=True):
    """A message with all that it brings along through a retry topic."""

    message: Message
    """The original one: its topic, partition and offset, its own headers, and its timestamp."""
    attempt: int = 1
    """The number of the next attempt."""
    elapsed_s: float = 0.0
    """Run time and computed delays since the first start."""
    due_at: float = 0.0
    """Not before this instant of the store's clock; 0 is now."""
    attempts: tuple[Attempt, ...] = ()
    """Those before, oldest first; of a long history some are left out, or without their tracebacks."""
    letter: str = ""
    """The id of its record in the inbox, if it was replayed from there."""
    replay: str = ""
    """The id of that replay."""
    group: str = ""
    """Whose it is; empty where it is no passage of ours, but a message that somebody wrote into the topic."""


MOST_ATTEMPTS: Final = 1_000_000
"""What a header may say of attempts, and of retries: far more than anybody waits for, and every store can hold it."""
_MOST_SECONDS: Final = 1e10
_FAR: Final = 1e16  # Kafka's own bound of timestamps: a whole number of milliseconds
_Count = Annotated[int, Meta(ge=0, le=MOST_ATTEMPTS)]
_Seconds = Annotated[float, Meta(ge=0, le=_MOST_SECONDS)]
_Name = Annotated[str, Meta(min_length=1, max_length=1000)]


class _Carried(Struct, frozen=True, omit_defaults=True):
    """What stands in the header of a passage."""

    group: _Name
    topic: _Name
    partition: Annotated[int, Meta(ge=0, lt=2**31)]
    offset: Annotated[str, Meta(max_length=50)]
    timestamp: Annotated[float, Meta(ge=-_FAR, le=_FAR)]
    attempt: Annotated[int, Meta(ge=1, le=MOST_ATTEMPTS)]
    retries: _Count = 0
    elapsed_s: _Seconds = 0.0
    letter: Annotated[str, Meta(pattern=r"\A([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?\Z")] = ""
    replay: Annotated[str, Meta(max_length=100)] = ""


_encode: Final = msgspec.json.Encoder().encode
_carried_in: Final = msgspec.json.Decoder(_Carried).decode
_due_in: Final = msgspec.json.Decoder(Annotated[float, Meta(ge=0)]).decode


def to_retry(passage: Passage, topic: str, *, history_bytes: int = HISTORY_BYTES) -> Outgoing:
    """The message for a retry topic: key, value and own headers as they are, and ours behind them."""
    message = passage.message
    carried = _Carried(
        group=passage.group,
        topic=message.topic,
        partition=message.partition,
        offset=offset_text(message.offset),
        timestamp=min(max(finite(message.timestamp), -_FAR), _FAR),
        attempt=min(passage.attempt, MOST_ATTEMPTS),
        retries=min(message.retries, MOST_ATTEMPTS),
        elapsed_s=min(max(0.0, finite(passage.elapsed_s)), _MOST_SECONDS),
        letter=passage.letter,
        replay=passage.replay,
    )
    ours = (
        (DUE, _encode(max(0.0, finite(passage.due_at)))),
        (PASSAGE, _encode(carried)),
        (HISTORY, history_of(passage.attempts, history_bytes)),
    )
    return Outgoing(topic, message.value, message.key, message.headers + ours)


def from_retry(message: Message) -> Passage:
    """What was sent through a retry topic; a message that was not, or whose headers are damaged, is one of itself.

    Attempts that were counted since it was written there are not in it: `message.retries` has these, and a passage says
    how it was when it was sent. A damaged history alone is left out. A number that no honest message has is damage.
    """
    found, own = _taken(message.headers, _RETRY_NAMES)
    try:
        due_at = _due_in(found[DUE] or b"")
        carried = _carried_in(found[PASSAGE] or b"")
        offset = offset_of(carried.offset)
    except (KeyError, *_DAMAGED):
        return Passage(replace(message, retries=0) if message.retries else message)
    original = Message(
        carried.topic,
        carried.partition,
        offset,
        message.key,
        message.value,
        own,
        carried.timestamp,
        carried.retries,
    )
    return Passage(
        original,
        carried.attempt,
        carried.elapsed_s,
        due_at,
        history_in(found.get(HISTORY)),
        carried.letter,
        carried.replay,
        carried.group,
    )


def _taken(headers: Sequence[Header], names: frozenset[str]) -> tuple[dict[str, bytes | None], tuple[Header, ...]]:
    """The last header of each of these names, and all the others in their order."""
    found: dict[str, bytes | None] = {}
    others: list[Header] = []
    for header in reversed(headers):
        name = header[0]
        if name in names and name not in found:
            found[name] = header[1]
        else:
            others.append(header)
    others.reverse()
    return found, tuple(others)


# ---------------------------------------------------------------- to the DLQ

LETTER: Final = "holdfast-letter"
"""The id of the message's record in the inbox."""
STACK_BYTES: Final = 16 * 1024
_TEXT_BYTES: Final = 8 * 1024
_DLQ_NAMES: Final = frozenset(
    {
        "original-topic",
        "original-partition",
        "original-offset",
        "original-timestamp",
        "consumer-group",
        "error-message",
        "error-type",
        "error-stack",
        "failure-type",
        "failed-at",
        "retry-count",
        LETTER,
    }
)


class DlqEntry(Struct, frozen=True, kw_only=True):
    """A record of a DLQ topic that we wrote."""

    message: Message
    """The original one, where it was, with its own headers alone."""
    group: str
    letter: str
    """The id of its record in the inbox."""
    error_message: str
    error_type: str
    error_stack: str
    failure_type: str
    failed_at: float
    retry_count: int


def to_dlq(message: Message, *, topic: str, group: str, attempt: Attempt, retry_count: int, letter_id: str) -> Outgoing:
    """The message for a DLQ topic: key, value and own headers as they are, and behind them why it is there.

    attempt: the last one. Its texts are written without what looks like a secret: whoever reads a topic is not always
    somebody who may read the inbox.
    """
    texts = {
        "original-topic": message.topic,
        "original-partition": str(message.partition),
        "original-offset": offset_text(message.offset),
        "original-timestamp": repr(message.timestamp),
        "consumer-group": group,
        "error-message": bounded_text(redacted_text(attempt.message), _TEXT_BYTES),
        "error-type": bounded_text(attempt.error_name, _TEXT_BYTES),
        "error-stack": bounded_text(redacted_text(attempt.traceback), STACK_BYTES),
        "failure-type": attempt.failure_type or "",
        "failed-at": instant_text(attempt.ended_at),
        "retry-count": str(retry_count),
        LETTER: letter_id,
    }
    ours = tuple((name, storable(text).encode()) for name, text in texts.items())
    return Outgoing(topic, message.value, message.key, message.headers + ours)


def from_dlq(message: Message) -> DlqEntry | None:
    """What `to_dlq` wrote; None for a record that somebody else did, and for a marker."""
    found, own = _taken(message.headers, _DLQ_NAMES)
    texts = {name: data.decode("utf-8", "replace") for name, data in found.items() if data is not None}
    try:
        original = Message(
            texts["original-topic"],
            _whole(texts["original-partition"], 2**31 - 1),
            offset_of(texts["original-offset"]),
            message.key,
            message.value,
            own,
            finite(float(texts["original-timestamp"])),
        )
        return DlqEntry(
            message=original,
            group=texts["consumer-group"],
            letter=texts[LETTER],
            error_message=texts["error-message"],
            error_type=texts["error-type"],
            error_stack=texts["error-stack"],
            failure_type=texts["failure-type"],
            failed_at=instant_of(texts["failed-at"]),
            retry_count=_whole(texts["retry-count"], 2**63 - 1),
        )
    except (KeyError, *_DAMAGED):
        return None


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or (number := int(text)) > most:
        raise ValueError(text)
    return number


# ---------------------------------------------------------------- replayed

REPLAYED: Final = "holdfast-replayed"
REPLAYED_AT: Final = "holdfast-replayed-at"


class Marker(Struct, frozen=True):
    """A record of a DLQ topic that says: this letter was replayed."""

    letter: str
    at: float


def marker(topic: str, letter_id: str, *, at: float, key: bytes | None) -> Outgoing:
    """Says in a DLQ topic that a letter was replayed; with its key, it comes behind it in the same partition.

    It has a value, since without one others would take it for a tombstone of that key.
    """
    texts = {REPLAYED: letter_id, REPLAYED_AT: instant_text(at)}
    return Outgoing(topic, _encode(texts), key, tuple((name, text.encode()) for name, text in texts.items()))


def from_marker(message: Message) -> Marker | None:
    """What `marker` wrote; None for any other record, such as a dead letter that once had such headers of its own."""
    match message.headers:
        case ((name, bytes(letter)), (at_name, bytes(at))) if name == REPLAYED and at_name == REPLAYED_AT:
            try:
                return Marker(letter.decode(), instant_of(at.decode()))
            except _DAMAGED:
                return None
    return None
