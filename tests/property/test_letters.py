"""Any message comes back from its record in the inbox, from a retry topic and from the DLQ."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Invalid
from holdfast.ops.api.hiding import hidden, unhidden
from holdfast.runtime.payload import merged
from holdfast.runtime.streams.letters import payload_of, read_letter
from holdfast.runtime.streams.passage import (
    DUE,
    HISTORY,
    LETTER,
    PASSAGE,
    Passage,
    from_dlq,
    from_retry,
    to_dlq,
    to_retry,
)
from holdfast.types import Attempt, Header, Message, Outgoing

NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.just(10**400))
NAMES = st.sampled_from(["a", "b", "1", "base64", "password", "value", "é"]) | st.text(max_size=5)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """JSON in some programmer's form, sometimes damaged."""
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:")]))
    data = json.dumps(draw(JSON), ensure_ascii=draw(st.booleans()), separators=separators).encode()
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.sampled_from([b"", b"\xff", b"1e5", b'"', b"]", b"-0", b"\\ud800"])) + data[at:]
    return data


DATA = st.none() | st.binary(max_size=20) | written()
OUR_NAMES = [DUE, PASSAGE, HISTORY, LETTER, "original-offset", "error-type"]
HEADERS: st.SearchStrategy[tuple[Header, ...]] = st.lists(
    st.tuples(st.sampled_from(OUR_NAMES) | st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=5
).map(tuple)
MESSAGES = st.builds(
    Message,
    topic=st.text("abc.", min_size=1, max_size=5),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1) | st.integers(2**64, 2**128 - 1),
    key=DATA,
    value=DATA,
    headers=HEADERS,
    timestamp=st.floats(0, 1e11),
)


def received(sent: Outgoing) -> Message:
    return Message(sent.topic, 1, 2, sent.key, sent.value, sent.headers, 3.0)


@given(MESSAGES)
def test_every_message_comes_back_from_its_payload(message: Message) -> None:
    letter = read_letter(payload_of(message, "group"))
    assert letter.message == message
    assert (letter.group, letter.to) == ("group", "retry")


@given(MESSAGES)
def test_an_edit_of_something_else_changes_no_byte_of_a_message(message: Message) -> None:
    letter = read_letter(merged(payload_of(message, "group"), b'{"to":"topic"}'))
    assert (letter.message, letter.to) == (message, "topic")


@given(MESSAGES)
def test_what_the_api_shows_and_gets_back_changes_no_byte_of_a_message(message: Message) -> None:
    stored = payload_of(message, "group")
    form = hidden(stored).value
    assert isinstance(form, dict)
    try:
        sent_back = unhidden({**form, "to": "topic"}, stored)
    except Invalid:
        return  # it does not know which of several hidden things is meant, and says so
    letter = read_letter(msgspec.json.encode(sent_back))
    assert (letter.message, letter.to) == (message, "topic")


@given(JSON, JSON)
def test_an_edited_value_is_what_the_editor_wrote(before: Any, after: Any) -> None:
    payload = msgspec.json.decode(payload_of(Message("t", 0, 0, value=json.dumps(before).encode()), "group"))
    is_json = isinstance(after, list | int | float) or (isinstance(after, dict) and after.keys() != {"base64"})
    try:
        value = read_letter(msgspec.json.encode({**payload, "value": after})).message.value
    except Invalid:
        assert not is_json or "10" in str(after)  # or a number that is too large
    else:
        if is_json:
            assert msgspec.json.decode(value or b"") == after
        elif isinstance(after, str):
            assert value == after.encode()


@given(st.binary() | JSON.map(msgspec.json.encode))
def test_no_payload_makes_it_raise_anything_but_invalid_in_one_line(payload: bytes) -> None:
    with pytest.raises(Invalid, match=r"\Athe letter cannot be read: [^\n]+\Z"):
        read_letter(payload)


@given(MESSAGES, st.integers(1, 100), st.floats(0, 1e10), st.floats(0, 1e10))
def test_every_message_comes_back_from_a_retry_topic(
    message: Message, attempt: int, elapsed_s: float, due_at: float
) -> None:
    passage = Passage(message, attempt, elapsed_s, due_at, group="billing")
    assert from_retry(received(to_retry(passage, "t"))) == passage


@given(MESSAGES, st.text(max_size=50), st.text(max_size=50))
def test_every_message_comes_back_from_the_dlq(message: Message, said: str, stack: str) -> None:
    attempt = Attempt(number=1, started_at=1.0, ended_at=2.0, message=said, traceback=stack)
    entry = from_dlq(
        received(to_dlq(message, topic="t.dlq", group="g", attempt=attempt, retry_count=0, letter_id="id"))
    )
    assert entry is not None
    assert entry.message == message


@given(st.lists(st.tuples(st.sampled_from(OUR_NAMES), st.none() | st.binary(max_size=30) | written()), max_size=6))
def test_no_headers_make_them_raise(headers: list[Header]) -> None:
    message = Message("t", 0, 0, headers=tuple(headers))
    assert from_retry(message).message.value is None
    from_dlq(message)
