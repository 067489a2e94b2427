"""Messages in the inbox: people can read and edit them, and the very bytes come back."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import Invalid
from holdfast.json_values import MAX_BYTES
from holdfast.ops.api.hiding import hidden, unhidden
from holdfast.redact import HIDDEN, redacted
from holdfast.runtime.payload import merged
from holdfast.runtime.streams.letters import (
    Letter,
    carried,
    letter_id,
    letter_of,
    payload_of,
    read_letter,
    refuse_moved,
    settled_id,
)
from holdfast.runtime.streams.passage import Passage, from_retry
from holdfast.types import Attempt, Change, FailureType, Message, entry_offset

ORDER = Message(
    "orders", 3, 1042, b"customer-7", b'{"id":7,"paid":true}', (("trace", b"00-1"), ("raw", b"\xff")), 1_700_000_000.123
)


LETTER = "018bcfe5-687b-7354-ab67-06c4584e100c"


def shown(value: bytes | None) -> Any:
    """What people see of a value."""
    return msgspec.json.decode(payload_of(replace(ORDER, value=value), "billing"))


def back(value: bytes | None) -> bytes | None:
    return read_letter(payload_of(replace(ORDER, value=value), "billing")).message.value


def edited(message: Message, **changes: Any) -> Letter:
    """The letter after a merge patch, as the API and the command line make it."""
    return read_letter(merged(payload_of(message, "billing"), msgspec.json.encode(changes)))


# ---------------------------------------------------------------- ids


def test_an_id_is_the_same_for_a_message_and_a_group_and_has_its_time() -> None:
    found = letter_id("billing", ORDER)
    again = replace(ORDER, value=b"other", headers=(), retries=3)
    assert found == letter_id("billing", again) == "018bcfe5-687b-7354-ab67-06c4584e100c"
    parsed = uuid.UUID(found)
    assert (parsed.version, parsed.variant, parsed.int >> 80) == (7, uuid.RFC_4122, 1_700_000_000_123)


def test_ids_differ_in_every_part_of_the_place() -> None:
    places = [
        ("billing", ORDER),
        ("billing2", ORDER),
        ("billing", replace(ORDER, topic="orders2")),
        ("billing", replace(ORDER, partition=4)),
        ("billing", replace(ORDER, offset=1043)),
        # The same characters in a row, parted otherwise.
        ("billingorders", replace(ORDER, topic="")),
        ("", replace(ORDER, topic="billingorders")),
        ("billing", replace(ORDER, partition=31, offset=42)),
        ("billing", replace(ORDER, partition=310, offset=42)),
        ("billing", replace(ORDER, topic="orders3", partition=1, offset=42)),
    ]
    ids = {letter_id(group, message) for group, message in places}
    assert len(ids) == len(places)


@pytest.mark.parametrize("timestamp", [-1.0, 0.0, 1e12, 1e300, float("nan"), float("inf")])
def test_whatever_the_timestamp_is_the_id_is_a_uuid_of_version_7(timestamp: float) -> None:
    found = letter_id("billing", replace(ORDER, timestamp=timestamp))
    parsed = uuid.UUID(found)
    assert (str(parsed), parsed.version, parsed.variant) == (found, 7, uuid.RFC_4122)


# ---------------------------------------------------------------- what people see


def test_the_payload_says_where_the_message_comes_from_and_what_is_in_it() -> None:
    assert msgspec.json.decode(payload_of(ORDER, "billing")) == {
        "origin": {"kind": "message", "group": "billing", "topic": "orders", "partition": 3, "offset": 1042},
        "key": "customer-7",
        "value": {"id": 7, "paid": True},
        "headers": [["trace", "00-1"], ["raw", {"base64": "/w=="}]],
        "timestamp": 1_700_000_000.123,
        "to": "retry",
    }


@pytest.mark.parametrize("entry", ["1-0", "1700000000123-5"])
def test_the_offset_of_a_redis_entry_is_its_id(entry: str) -> None:
    message = replace(ORDER, partition=0, offset=entry_offset(entry))
    payload = payload_of(message, "billing")
    assert msgspec.json.decode(payload)["origin"]["offset"] == entry
    assert read_letter(payload).message == message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (b"", ""),
        (b"plain text", "plain text"),
        ("äöü €".encode(), "äöü €"),
        (b"\x80abc", {"base64": "gGFiYw=="}),
        (b'{"a":[1,2.5]}', {"a": [1, 2.5]}),
        (b"[]", []),
        (b"12", 12),
        (b"true", True),
        # What would be read back as something else is shown as the text that it is.
        (b"null", "null"),
        (b'"text"', '"text"'),
        (b'{"base64":"AAAA"}', '{"base64":"AAAA"}'),
        (b'{"base64": 1}', '{"base64": 1}'),
        (b'{"base64":"AAAA","a":1}', {"base64": "AAAA", "a": 1}),
        (b"[1e999]", "[1e999]"),
        (b"NaN", "NaN"),
        (b'["\\ud800"]', '["\\ud800"]'),
        (b"[" * 250 + b"]" * 250, "[" * 250 + "]" * 250),
    ],
)
def test_a_value_is_shown_as_what_it_is_and_comes_back_byte_for_byte(value: bytes | None, expected: Any) -> None:
    found = shown(value)
    assert found["value"] == expected
    assert "exact_secret" not in found
    assert back(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b" [1,\n 2] ", [1, 2]),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b'{"name":"\\u00e9"}', {"name": "é"}),
        (b"[1e-99999999999999999999999,1.5e1,1.10]", [0.0, 15.0, 1.1]),
        (b"[1e5,-0]", [100_000.0, 0]),
        (b'[{"\\/":1.0E+2}]', [{"/": 100.0}]),
    ],
)
def test_a_value_that_would_be_written_otherwise_keeps_its_bytes_beside_it(value: bytes, expected: Any) -> None:
    found = shown(value)
    assert found["value"] == expected
    assert "exact_secret" in found
    assert back(value) == value


@pytest.mark.parametrize("value", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b"9" * 10_000, b"\x00" * 1_000])
def test_values_that_are_hard_to_read_come_back(value: bytes) -> None:
    assert back(value) == value


def test_digits_that_no_float_has_are_kept_when_something_else_is_edited() -> None:
    message = replace(ORDER, value=b'{"amount":12345678901234567.89,"id":12345678901234567890,"qty":1}')
    letter = edited(message, value={"qty": 2})
    assert letter.message.value == b'{"amount":12345678901234567.89,"id":12345678901234567890,"qty":2}'


def test_the_exact_bytes_are_hidden_because_they_hold_what_is_hidden_in_the_value() -> None:
    found = redacted(shown(b'{ "password": "hunter2" }'))
    assert found["value"] == {"password": HIDDEN}
    assert found["exact_secret"] == HIDDEN


@pytest.mark.parametrize(
    ("value", "is_parsed"),
    [
        (b'{"a": "' + b"x" * 400_000 + b'"}', True),  # with its bytes beside it within the limit
        (b'{"a": "' + b"x" * 900_000 + b'"}', False),
        (b'{"a":"' + b"x" * 900_000 + b'"}', True),
        (b'{"a":"' + b"x" * 3 * MAX_BYTES + b'"}', False),
        (b"\xff" * 3 * MAX_BYTES, False),
        (b"\x01" * 3 * MAX_BYTES, False),
    ],
)
def test_a_message_is_stored_whole_however_large_it_is(value: bytes, is_parsed: bool) -> None:
    payload = payload_of(replace(ORDER, value=value), "billing")
    assert read_letter(payload).message.value == value
    assert b'"value":{"a"' in payload if is_parsed else b'"value":{"a"' not in payload
    assert len(payload) < max(MAX_BYTES, 1.4 * len(value))


def test_header_names_that_are_no_text_come_back() -> None:
    message = replace(ORDER, headers=(("caf\ud800", b"x"), ("", None), ("a", b""), ("a", b'{"base64":"AA=="}')))
    assert read_letter(payload_of(message, "billing")).message == message


# ---------------------------------------------------------------- edits


FORMATTED = replace(ORDER, value=b'{ "id": 7, "rate": 1e5, "name": "\\u00e9", "token": "s3cret" }')


def test_an_edited_value_is_sent_as_it_was_edited() -> None:
    assert (
        edited(FORMATTED, value={"id": 8}).message.value == '{"id":8,"rate":1e5,"name":"é","token":"s3cret"}'.encode()
    )


def test_an_edit_of_something_else_leaves_the_bytes_of_the_value() -> None:
    letter = edited(FORMATTED, to="topic", headers=[["new", "1"]])
    assert letter.message == replace(FORMATTED, headers=(("new", b"1"),))
    assert letter.to == "topic"


def test_an_edit_over_the_api_leaves_the_bytes_of_the_value_though_it_was_never_shown() -> None:
    stored = payload_of(FORMATTED, "billing")
    form = hidden(stored).value
    assert "s3cret" not in str(form)
    form["key"] = "customer-8"
    letter = read_letter(msgspec.json.encode(unhidden(form, stored)))
    assert letter.message == replace(FORMATTED, key=b"customer-8")


@pytest.mark.parametrize(
    ("value", "edit", "expected"),
    [
        (b"old", "new", b"new"),
        (b"old", {"a": 1}, b'{"a":1}'),
        (b'{ "a": 1 }', "text", b"text"),
        (b'{ "a": 1.0 }', {"a": 1}, b'{"a":1}'),
        (b"[ 1 ]", [1, 2], b"[1,2]"),
        (b"[ 1 ]", None, None),
        (b"\xff", {"base64": "/v8="}, b"\xfe\xff"),
    ],
)
def test_every_kind_of_value_may_become_another(value: bytes, edit: Any, expected: bytes | None) -> None:
    assert edited(replace(ORDER, value=value), value=edit).message.value == expected


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"value": {"base64": "no!"}}, "the value is not base64: "),
        ({"value": {"base64": 5}}, "the value must be text, null or "),
        ({"key": 5}, "the key must be text, null or "),
        ({"headers": [["a"]]}, r"Expected array of length 2.* - at \$\.headers\[0\]"),
        ({"headers": [["a", 1]]}, "the value of a header must be text"),
        ({"headers": [[None, "a"]]}, "the name of a header is missing"),
        ({"headers": {}}, "Expected array"),
        ({"timestamp": "now"}, "Expected float"),
        ({"to": "nowhere"}, "Invalid enum value 'nowhere'"),
        ({"vaule": 1}, "Object contains unknown field vaule"),
        ({"origin": None}, "Object missing required field origin"),
        ({"origin": {"kind": "job"}}, "Invalid enum value 'job'"),
        ({"origin": {"topic": ""}}, "its origin is no place of a message"),
        ({"origin": {"partition": -1}}, "its origin is no place of a message"),
        ({"origin": {"offset": -1}}, "its origin is no place of a message"),
        ({"origin": {"offset": "1-x"}}, "'1-x' is no offset"),
        ({"exact_secret": HIDDEN}, "the exact_secret is not base64: "),
    ],
)
def test_an_edit_that_broke_it_is_told_in_one_line(changes: dict[str, Any], why: str) -> None:
    message = replace(ORDER, value=b"\xff" if "base64" in str(changes) else b"[ 1 ]")
    with pytest.raises(Invalid, match=f"^the letter cannot be read: {why}") as caught:
        edited(message, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"order_id":5}'])
def test_what_is_no_letter_is_refused(payload: bytes) -> None:
    with pytest.raises(Invalid, match=r"^the letter cannot be read: "):
        read_letter(payload)


# ---------------------------------------------------------------- records


def test_a_letter_is_a_record_that_has_ended_with_its_history() -> None:
    attempts = [
        Attempt(number=1, started_at=1.0, ended_at=2.0, failure_type=FailureType.NETWORK, message="bad \ud800"),
        Attempt(number=2, started_at=3.0, ended_at=4.0, failure_type=FailureType.NETWORK),
    ]
    letter = letter_of(
        ORDER,
        group="billing",
        task="bill",
        queue="stream:bill",
        attempts=attempts,
        reason="retries used up \udfff",
        keep_s=60.0,
    )
    assert (letter.id, letter.task, letter.queue) == (letter_id("billing", ORDER), "bill", "stream:bill")
    assert read_letter(letter.payload) == Letter(ORDER, "billing", "retry")
    assert letter.end is not None
    assert (letter.end.change, letter.end.keep_s) == (Change.BURY, 60.0)
    assert letter.end.reason == "retries used up ?"
    assert letter.end.attempts == (replace(attempts[0], message="bad ?"), attempts[1])


def test_a_replayed_message_that_succeeds_ends_the_same_record() -> None:
    def ended(message: Message, change: Change) -> tuple[str, Change | None]:
        letter = letter_of(message, group="g", task="t", queue="q", attempts=(), reason="", keep_s=None, change=change)
        return letter.id, letter.end.change if letter.end else None

    sent = carried(Letter(ORDER, "g"), letter_id("g", ORDER), topic="orders")
    through = from_retry(Message(sent.topic, 0, 9, sent.key, sent.value, sent.headers, 1_800_000_000.0))
    assert ended(ORDER, Change.BURY) == (letter_id("g", ORDER), Change.BURY)
    assert ended(through.message, Change.COMPLETE) == (letter_id("g", ORDER), Change.COMPLETE)


# ---------------------------------------------------------------- replays


def test_a_replay_goes_to_the_groups_own_retry_topic_due_now() -> None:
    sent = carried(Letter(ORDER, "billing"), LETTER, topic="orders", replay="r1", attempt=4)
    assert (sent.topic, sent.key, sent.value) == ("orders.billing.retry.0", ORDER.key, ORDER.value)
    through = from_retry(Message(sent.topic, 0, 9, sent.key, sent.value, sent.headers))
    assert through == Passage(ORDER, attempt=4, letter=LETTER, replay="r1", group="billing")
    assert (through.due_at, through.message.retries) == (0.0, 0)


def test_a_replay_to_the_topic_carries_nothing_of_ours() -> None:
    sent = carried(Letter(ORDER, "billing", "topic"), LETTER, topic="orders", replay="r1")
    assert (sent.topic, sent.key, sent.value, sent.headers) == ("orders", ORDER.key, ORDER.value, ORDER.headers)


def test_a_message_that_was_gone_before_it_was_read_cannot_be_replayed_until_it_has_a_value() -> None:
    gone = Message("orders", 0, 5, timestamp=1.0, is_gone=True)
    letter = read_letter(payload_of(gone, "billing"))
    assert letter.message == gone
    with pytest.raises(Invalid, match=r"^message orders/0/5 was deleted before it was read"):
        carried(letter, LETTER, topic="orders")
    assert carried(edited(gone, value="x"), LETTER, topic="orders").value == b"x"


def test_an_end_belongs_to_the_record_that_the_message_was_carried_from_whatever_became_of_its_time() -> None:
    other = replace(ORDER, timestamp=5.0)
    assert settled_id("g", other, letter_id("g", ORDER)) == letter_id("g", ORDER)
    assert settled_id("g", other, "") == letter_id("g", other)


@pytest.mark.parametrize("named", [LETTER, "", "x", letter_id("another", ORDER)])
def test_a_header_that_names_the_record_of_something_else_is_not_believed(named: str) -> None:
    assert settled_id("g", ORDER, named) == letter_id("g", ORDER)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timestamp", 0.0),
        ("is_gone", True),
        ("origin", {"kind": "message", "group": "billing", "topic": "payments", "partition": 3, "offset": 1042}),
        ("origin", {"kind": "message", "group": "other", "topic": "orders", "partition": 3, "offset": 1042}),
        ("origin", {"kind": "message", "group": "billing", "topic": "orders", "partition": 3, "offset": 1043}),
    ],
)
def test_an_edit_of_which_message_it_is_is_refused_in_one_line(name: str, value: Any) -> None:
    stored = payload_of(ORDER, "billing")
    payload = msgspec.json.decode(stored)
    refuse_moved(stored, msgspec.json.encode(payload | {"value": 8, "key": "other", "headers": [], "to": "topic"}))
    with pytest.raises(Invalid, match=rf"\Athe {name} of a message cannot be edited: [^\n]+\Z"):
        refuse_moved(stored, msgspec.json.encode(payload | {name: value}))


def test_leaving_out_the_time_of_a_message_is_an_edit_of_it() -> None:
    stored = payload_of(ORDER, "billing")
    payload = msgspec.json.decode(stored)
    del payload["timestamp"]
    with pytest.raises(Invalid, match="the timestamp of a message cannot be edited"):
        refuse_moved(stored, msgspec.json.encode(payload))
