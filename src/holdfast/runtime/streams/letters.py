"""A message as a record of the inbox: a payload that people can read and edit, and the very bytes again from it.

    {"origin": {"kind": "message", "group": …, "topic": …, "partition": …, "offset": …},
     "key": …, "value": …, "headers": [[name, …], …], "timestamp": …, "to": "retry"}

Bytes that are UTF-8 are a text, and others {"base64": "…"}. A value that is JSON is shown as JSON; where writing that
again would give other bytes, the very ones stand beside it, and are sent for as long as nobody edits the value. They go
under a name that nobody is shown, because what is hidden in the value is in them too.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from holdfast.errors import Invalid
from holdfast.json_values import MAX_BYTES, UNSTORABLE, refuse_lies, why
from holdfast.runtime.run import storable
from holdfast.runtime.streams.origins import Origin
from holdfast.runtime.streams.passage import Passage, retry_topic, to_retry
from holdfast.runtime.streams.texts import finite, offset_of, storable_attempt
from holdfast.types import Attempt, Change, End, Header, Message, NewJob, Outgoing, offset_text

To = Literal["retry", "topic"]

_NULL: Final = Raw(b"null")
_ENTRIES: Final = 1 << 64
"""Offsets from here on are those of Redis entries, and shown as these."""
_AFTER_TIME: Final = len("01930b2c-7d1e-")

FIXED: Final = ("origin", "timestamp", "is_gone")
"""What no edit may change: it says which message it is."""


class Letter(Struct, frozen=True):
    """What the payload of a message's record says."""

    message: Message
    group: str
    to: To = "retry"
    """Where a replay sends it: back to its group alone, or to the original topic, where every group sees it."""


# ---------------------------------------------------------------- ids


def letter_id(group: str, message: Message) -> str:
    """The id of a message's record: a UUID of version 7 with the message's timestamp, always the same for a group."""
    digest = sha256()
    for part in (group, message.topic, str(message.partition), str(message.offset)):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8) + data)
    ms = min(max(round(finite(message.timestamp) * 1000), 0), (1 << 48) - 1)
    drawn = int.from_bytes(digest.digest()[:10])
    high, low = drawn >> 62 & 0xFFF, drawn & (1 << 62) - 1
    text = f"{ms << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def settled_id(group: str, message: Message, carried_id: str) -> str:
    """The id of the record that an end of this message belongs to: the one that it was carried with from the inbox.

    That came in a header, so it is believed only where it differs from the message's own in nothing but the time.
    """
    own = letter_id(group, message)
    return carried_id if carried_id[_AFTER_TIME:] == own[_AFTER_TIME:] else own


# ---------------------------------------------------------------- there

# Numbers stay as they were written, as they do in edits of a payload.
_exact_decode: Final = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode())).decode
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_sorted_encode: Final = msgspec.json.Encoder(order="sorted").encode

_SPACE: Final = b" \t\r\n"
_JSON_STARTS: Final = tuple(b"%c" % one for one in b"{[-0123456789tf")  # a text and a null mean something else here
_BASE64: Final = "base64"
_EXACT: Final = "exact_secret"
_SHORT: Final = 64


def letter_of(
    message: Message,
    *,
    group: str,
    task: str,
    queue: str,
    attempts: Sequence[Attempt],
    reason: str,
    keep_s: float | None,
    change: Change = Change.BURY,
    carried_id: str = "",
) -> NewJob:
    """The record of a message that has ended so: in the dead letters, or completed after it was replayed from there.

    carried_id: the id of the record that it was replayed from, if it was.
    """
    return NewJob(
        id=settled_id(group, message, carried_id),
        task=task,
        payload=payload_of(message, group),
        queue=queue,
        end=End(
            change=change,
            attempts=tuple(map(storable_attempt, attempts)),
            reason=storable(reason),
            keep_s=keep_s,
        ),
    )


def payload_of(message: Message, group: str) -> bytes:
    """A message as JSON that `read_letter` makes the same message of, whatever is in it.

    It is stored whole, however large it is, since nothing else may have it for as long. One above the limit of a
    payload is shown as text, and cannot be edited.
    """
    shown: dict[str, Any] = {
        "origin": Origin(
            kind="message",
            group=group,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset if message.offset < _ENTRIES else offset_text(message.offset),
        ),
        "key": _shown(message.key),
        "value": None,
        "headers": [(_shown_name(name), _shown(value)) for name, value in message.headers],
        "timestamp": finite(message.timestamp),
        "to": "retry",
    }
    if message.is_gone:
        shown["is_gone"] = True
    if message.value is not None and (as_json := _as_json(message.value)) is not None:
        exact = {} if _encode(_decode(as_json)) == message.value else {_EXACT: b64encode(message.value).decode()}
        payload = _encode({**shown, "value": Raw(as_json), **exact})
        if len(payload) <= MAX_BYTES:
            return payload
    return _encode({**shown, "value": _shown(message.value)})


def _as_json(value: bytes) -> bytes | None:
    """How a value is shown as JSON; None where it is none, or would be read back as something else."""
    if not value.lstrip(_SPACE).startswith(_JSON_STARTS):
        return None
    try:
        found = _exact_decode(value)
        data = _encode(found)
        refuse_lies([_decode(data)], data)  # everybody else reads a number as a float, and it may be too large for one
    except UNSTORABLE:
        return None
    return None if _is_base64(found) else data


def _shown(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes as text, where they are text and stay about as short as they are."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or len(_encode(text)) > 2 * len(data) + _SHORT:
        return {_BASE64: b64encode(data).decode()}
    return text


def _shown_name(name: str) -> str | dict[str, str] | None:
    return _shown(name.encode("utf-8", "surrogatepass"))


def _is_base64(shown: object) -> bool:
    return isinstance(shown, dict) and shown.keys() == {_BASE64}


# ---------------------------------------------------------------- and back


class _Payload(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    origin: Origin
    key: Any = None
    value: Raw = _NULL
    headers: tuple[tuple[Any, Any], ...] = ()
    timestamp: float = 0.0
    to: To = "retry"
    is_gone: bool = False
    exact_secret: str | None = None


class _Fixed(Struct, frozen=True):
    origin: Origin
    timestamp: float = 0.0
    is_gone: bool = False


_payload_in: Final = msgspec.json.Decoder(_Payload).decode
_fixed_in: Final = msgspec.json.Decoder(_Fixed).decode


def refuse_moved(stored: bytes, edited: bytes) -> None:
    """Invalid where an edit changes which message it is: nobody would find its letter again."""
    try:
        before, after = _fixed_in(stored), _fixed_in(edited)
    except UNSTORABLE:
        return  # whoever reads it says why it is no letter
    for name in FIXED:
        if _plain(getattr(before, name)) != _plain(getattr(after, name)):
            raise Invalid(f"the {name} of a message cannot be edited: it says which message it is")


def _plain(fixed: Any) -> Any:
    """The same for the two ways in which an offset may be written."""
    return (fixed.group, fixed.topic, fixed.partition, str(fixed.offset)) if isinstance(fixed, Origin) else fixed


def read_letter(payload: bytes) -> Letter:
    """The message of a payload, with what was edited in it; Invalid says in one line why it is none any more."""
    try:
        found = _payload_in(payload)
        origin = found.origin
        offset = offset_of(origin.offset) if isinstance(origin.offset, str) else origin.offset
        if min(offset, origin.partition) < 0 or not origin.topic:
            raise Invalid("the letter cannot be read: its origin is no place of a message")
        value = _value(found)
        message = Message(
            origin.topic,
            origin.partition,
            offset,
            _bytes(found.key, "key"),
            value,
            tuple(_header(name, one) for name, one in found.headers),
            found.timestamp,
            is_gone=found.is_gone and value is None,
        )
    except UNSTORABLE as error:
        raise Invalid(f"the letter cannot be read: {why(error)}") from error
    return Letter(message, origin.group, found.to)


def _value(found: _Payload) -> bytes | None:
    shown = _exact_decode(found.value)
    if shown is None or isinstance(shown, str) or _is_base64(shown):
        return _bytes(shown, "value")
    if found.exact_secret is not None:
        exact = _bytes({_BASE64: found.exact_secret}, _EXACT)
        if exact is not None and _normal(exact) == _normal(found.value):
            return exact
    return _encode(shown)


def _normal(data: bytes | Raw) -> bytes:
    """The same for JSON that says the same, whatever an edit of something beside it has made of its form."""
    return _sorted_encode(_decode(data))


def _header(name: object, value: object) -> Header:
    data = _bytes(name, "name of a header")
    if data is None:
        raise Invalid("the letter cannot be read: the name of a header is missing")
    return data.decode("utf-8", "surrogatepass"), _bytes(value, "value of a header")


def _bytes(shown: object, what: str) -> bytes | None:
    match shown:
        case None:
            return None
        case str():
            return shown.encode()
        case {"base64": str(text)} if _is_base64(shown):
            try:
                return b64decode(text, validate=True)
            except ValueError as error:
                raise Invalid(f"the letter cannot be read: the {what} is not base64: {why(error)}") from error
    raise Invalid(f'the letter cannot be read: the {what} must be text, null or {{"base64": "…"}}')


# ---------------------------------------------------------------- replays


def carried(letter: Letter, letter_id: str, *, topic: str, replay: str = "", attempt: int = 1) -> Outgoing:
    """What a replay sends: key, value and headers as the letter has them, to where it says.

    topic: the stream's, beside which its retry topics are.
    attempt: the number of the next one; those before it are in the inbox, and no retry of them counts any more.
    Invalid where the server had deleted the message before anybody read it.
    """
    message = letter.message
    if message.is_gone:
        raise Invalid(f"message {message.id} was deleted before it was read: there is nothing to replay")
    if letter.to == "topic":
        return Outgoing(message.topic, message.value, message.key, message.headers)
    passage = Passage(message, attempt, letter=letter_id, replay=replay, group=letter.group)
    return to_retry(passage, retry_topic(topic, letter.group, 0))
