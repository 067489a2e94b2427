"""Messages through retry topics and into the DLQ: nothing of theirs is changed, and nothing of ours is left."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.runtime.streams.passage import (
    DUE,
    HISTORY,
    LETTER,
    PASSAGE,
    REPLAYED,
    REPLAYED_AT,
    Marker,
    Passage,
    checked_topic,
    dlq_topic,
    from_dlq,
    from_marker,
    from_retry,
    is_own_topic,
    marker,
    own_topics,
    retry_topic,
    to_dlq,
    to_retry,
)
from holdfast.types import Attempt, Change, FailureType, Header, Message, Outgoing, Severity, entry_offset

S1 = (
    "original-topic original-partition original-offset consumer-group error-message error-type error-stack "
    "failure-type failed-at retry-count"
).split()

ATTEMPT = Attempt(
    number=3,
    started_at=1_700_000_100.0,
    ended_at=1_700_000_101.5,
    outcome=Change.BURY,
    failure_type=FailureType.NETWORK,
    severity=Severity.MEDIUM,
    error_name="httpx.ConnectError",
    message="refused",
    traceback="Traceback …\nhttpx.ConnectError: refused\n",
    fingerprint="1:abc",
)

ORDER = Message(
    "orders",
    3,
    1042,
    b"customer-7",
    b'{"id": 7}',
    (("traceparent", b"00-1"), ("note", None), ("note", b"\xff")),
    1_700_000_000.123,
)
MESSAGES = [
    ORDER,
    replace(ORDER, key=None, value=None, headers=()),
    replace(ORDER, key=b"", value=b"", timestamp=0.1 + 0.2),
    replace(ORDER, topic="clicks", partition=0, offset=entry_offset("1700000000123-5")),
    # Headers of the user's own with our names.
    replace(ORDER, headers=tuple((name, b"mine") for name in (DUE, PASSAGE, HISTORY, LETTER, *S1) for _ in range(2))),
    replace(ORDER, headers=((PASSAGE, None), (REPLAYED, b"x"), (REPLAYED_AT, b"y"))),
]


def received(sent: Outgoing, *, retries: int = 0, headers: tuple[Header, ...] | None = None) -> Message:
    """What comes out of the topic that this was written into."""
    own = sent.headers if headers is None else headers
    return Message(sent.topic, 11, 5, sent.key, sent.value, own, 1_800_000_000.0, retries)


def ours(message: Message, **fields: Any) -> Passage:
    """A passage of the group whose topics these are."""
    return Passage(message, group="billing", **fields)


# ---------------------------------------------------------------- names


def test_the_topics_beside_one_are_named_after_it() -> None:
    assert retry_topic("orders", "billing", 2) == "orders.billing.retry.2"
    assert dlq_topic("orders") == "orders.dlq"
    assert own_topics("orders", "billing", steps=2) == (
        "orders.billing.retry.0",
        "orders.billing.retry.1",
        "orders.billing.retry.2",
        "orders.dlq",
    )


@pytest.mark.parametrize("name", ["a", "orders.billing_2-x.retry.0", "A" * 249, "..."])
def test_a_name_that_kafka_takes_is_fine(name: str) -> None:
    assert checked_topic(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a:b"])
def test_a_name_that_kafka_does_not_take_is_refused_with_what_it_takes(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^the topic .*: Kafka takes letters, digits, "):
        checked_topic(name)


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"has 250 characters, and Kafka takes 249$"):
        checked_topic("a" * 250)


# ---------------------------------------------------------------- through a retry topic


@pytest.mark.parametrize("message", MESSAGES)
def test_a_passage_comes_back_as_it_was_sent(message: Message) -> None:
    passage = ours(
        replace(message, retries=2),
        attempt=3,
        elapsed_s=1.75,
        due_at=1_700_000_200.125,
        attempts=(replace(ATTEMPT, number=1), replace(ATTEMPT, number=2)),
        letter="018bcfe5-687b-7354-ab67-06c4584e100c",
        replay="r1",
    )
    sent = to_retry(passage, "orders.billing.retry.1")
    assert (sent.topic, sent.key, sent.value, sent.partition) == (
        "orders.billing.retry.1",
        message.key,
        message.value,
        None,
    )
    assert from_retry(received(sent)) == passage


@pytest.mark.parametrize("message", MESSAGES)
def test_own_headers_come_first_and_ours_have_our_name(message: Message) -> None:
    sent = to_retry(ours(message), "t")
    count = len(message.headers)
    assert sent.headers[:count] == message.headers
    assert [name for name, _ in sent.headers[count:]] == [DUE, PASSAGE, HISTORY]
    assert all(name.startswith("holdfast-") for name, _ in sent.headers[count:])


def test_what_waits_in_a_retry_topic_is_read_by_later_versions() -> None:
    headers: tuple[Header, ...] = (
        ("mine", b"1"),
        ("holdfast-due", b"1700000200.125"),
        (
            "holdfast-passage",
            b'{"group":"billing","topic":"orders","partition":3,"offset":"1042","timestamp":1700000000.123,"attempt":2}',
        ),
        ("holdfast-history", b'[{"number":1,"started_at":1.0,"ended_at":2.0,"outcome":"retry"}]'),
    )
    assert from_retry(Message("orders.billing.retry.1", 0, 5, b"k", b"v", headers, 9.0)) == ours(
        Message("orders", 3, 1042, b"k", b"v", (("mine", b"1"),), 1_700_000_000.123),
        attempt=2,
        due_at=1_700_000_200.125,
        attempts=(Attempt(number=1, started_at=1.0, ended_at=2.0, outcome=Change.RETRY),),
    )


def test_a_message_may_go_through_many_topics() -> None:
    passage = ours(MESSAGES[4], due_at=5.0)
    for n in range(1, 6):
        passage = from_retry(received(to_retry(replace(passage, attempt=n), f"t{n}")))
    assert passage == ours(MESSAGES[4], attempt=5, due_at=5.0)


def test_headers_that_others_add_on_the_way_stay() -> None:
    sent = to_retry(ours(ORDER), "t")
    found = from_retry(received(sent, headers=(*sent.headers, ("traceparent", b"00-2"))))
    assert found.message.headers == (*ORDER.headers, ("traceparent", b"00-2"))
    assert found.message.offset == ORDER.offset


@pytest.mark.parametrize("counted", [0, 4])
def test_attempts_that_were_counted_in_the_retry_topic_are_not_in_a_passage(counted: int) -> None:
    passage = ours(replace(ORDER, retries=2), attempt=5)
    assert from_retry(received(to_retry(passage, "t"), retries=counted)) == passage


@pytest.mark.parametrize("counted", [0, 4])
def test_a_message_of_somebody_else_is_a_passage_of_itself(counted: int) -> None:
    message = replace(ORDER, topic="orders.billing.retry.1", retries=counted)
    assert from_retry(message) == Passage(replace(message, retries=0), attempt=1)


def damaged() -> list[tuple[Header, ...]]:
    due, passage, history = to_retry(ours(replace(ORDER, headers=())), "t").headers
    fields = msgspec.json.decode(passage[1] or b"")
    found = [
        (due, history),
        (passage, history),
        (due, (PASSAGE, None), history),
        ((DUE, None), passage, history),
        (due, (PASSAGE, b"\xff\xfe"), history),
        (due, (PASSAGE, (passage[1] or b"")[:-1]), history),
        (due, (PASSAGE, b"[" * 100_000), history),
    ]
    found += [
        ((DUE, text), passage, history) for text in (b"", b"soon", b"-1", b"1e999", b"NaN", b"null", b'"1"', b"\xff")
    ]
    wrong: list[tuple[str, object]] = [
        ("topic", 1),
        ("topic", None),
        ("partition", -1),
        ("partition", "0"),
        ("offset", 5),
        ("offset", "5-"),
        ("offset", "-5"),
        ("timestamp", "now"),
        ("attempt", 0),
        ("attempt", 1.5),
        ("retries", -1),
        ("elapsed_s", -0.5),
        ("letter", []),
        # Headers are anybody's: what no store could hold is damage, and so is what nobody could have meant.
        ("attempt", 1_000_001),
        ("attempt", 2**31),
        ("attempt", 2**63 - 1),
        ("attempt", 10**30),
        ("retries", 1_000_001),
        ("partition", 2**31),
        ("offset", "5" * 60),
        ("elapsed_s", 1e300),
        ("timestamp", 1e300),
        ("timestamp", -1e300),
        ("group", ""),
        ("group", None),
        ("group", "g" * 1_001),
        ("topic", ""),
        ("topic", "t" * 1_001),
        ("letter", "../../x"),
        ("letter", "018bcfe5-687b-7354-ab67-06c4584e100c\n"),
        ("replay", "r" * 101),
    ]
    found += [(due, (PASSAGE, msgspec.json.encode({**fields, name: value})), history) for name, value in wrong]
    return found


@pytest.mark.parametrize("headers", damaged())
def test_a_message_with_damaged_headers_is_a_passage_of_itself(headers: tuple[Header, ...]) -> None:
    message = Message("t", 0, 5, b"k", b"v", headers)
    assert from_retry(message) == Passage(message)


@pytest.mark.parametrize("data", [None, b"", b"[", b"\xff", b"{}"])
def test_a_damaged_history_alone_does_not_cost_the_origin(data: bytes | None) -> None:
    sent = to_retry(ours(ORDER, attempts=(ATTEMPT,)), "t")
    found = from_retry(received(sent, headers=(*sent.headers[:-1], (HISTORY, data))))
    assert found == ours(ORDER)


def attempt_with(**fields: object) -> bytes:
    return msgspec.json.encode([{"number": 1, "started_at": 1.0, "ended_at": 2.0, **fields}])


@pytest.mark.parametrize(
    "data",
    [
        b'[{"number":%d,"started_at":1.0,"ended_at":2.0}]' % 10**30,
        attempt_with(number=1_000_001),
        attempt_with(number=0),
        attempt_with(number=-5),
        attempt_with(started_at=1e300),
        attempt_with(ended_at=-1e300),
        attempt_with(delay_s=1e300),
        attempt_with(delay_s=-1.0),
        attempt_with(outcome="claim"),
        attempt_with(outcome="replay"),
        attempt_with(outcome="nonsense"),
        attempt_with(failure_type="nonsense"),
        attempt_with(severity=5),
        attempt_with(message="x" * 70_000),
    ],
)
def test_a_history_that_no_attempts_have_is_none(data: bytes) -> None:
    sent = to_retry(ours(ORDER, attempts=(ATTEMPT,)), "t")
    assert from_retry(received(sent, headers=(*sent.headers[:-1], (HISTORY, data)))) == ours(ORDER)


def test_the_texts_of_a_history_are_no_longer_than_any_of_ours() -> None:
    data = attempt_with(
        worker="w" * 5_000, fingerprint="f" * 5_000, breaker="b" * 5_000, error_name="e" * 5_000, failure_type="network"
    )
    sent = to_retry(ours(ORDER), "t")
    (found,) = from_retry(received(sent, headers=(*sent.headers[:-1], (HISTORY, data)))).attempts
    assert [
        len(one.encode()) <= most
        for one, most in zip(
            (found.worker, found.fingerprint, found.breaker, found.error_name), (500, 200, 200, 2_000), strict=True
        )
    ] == [True] * 4
    assert found.severity is Severity.MEDIUM


@pytest.mark.parametrize("many", [1_000_001, 10**12])
def test_what_we_write_is_never_taken_for_damaged(many: int) -> None:
    sent = to_retry(ours(replace(ORDER, retries=many, timestamp=1e300), attempt=many, elapsed_s=1e300), "t")
    found = from_retry(received(sent))
    assert (found.group, found.attempt, found.message.retries) == ("billing", 1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("orders", True),
        ("orders.billing.retry.0", True),
        ("orders.billing.retry.12", True),
        ("orders.billing.retry.", False),
        ("orders.billing.retry.x", False),
        ("orders.billing.retry.\u0663", False),
        ("orders.shipping.retry.0", False),
        ("orders.dlq", False),
        ("payments", False),
    ],
)
def test_a_streams_messages_are_of_its_topic_or_of_its_retry_topics(name: str, is_own: bool) -> None:
    assert is_own_topic(name, "orders", "billing") is is_own


def test_what_a_newer_version_adds_does_not_matter() -> None:
    sent = to_retry(ours(ORDER), "t")
    headers = tuple(
        (name, b'{"news":1,' + (data or b"")[1:]) if name == PASSAGE else (name, data) for name, data in sent.headers
    )
    assert from_retry(received(sent, headers=headers)) == ours(ORDER)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_do_not_cost_the_origin(odd: float) -> None:
    sent = to_retry(ours(replace(ORDER, timestamp=odd), elapsed_s=odd, due_at=odd), "t")
    assert from_retry(received(sent)) == ours(replace(ORDER, timestamp=0.0))


def test_times_before_the_beginning_are_none() -> None:
    assert from_retry(received(to_retry(ours(ORDER, elapsed_s=-1.0, due_at=-1.0), "t"))) == ours(ORDER)


def test_the_history_has_room_of_its_own_and_none_if_so_asked() -> None:
    attempts = tuple(replace(ATTEMPT, number=n, traceback="t" * 16_000) for n in range(1, 40))
    passage = ours(ORDER, attempts=attempts)
    large, small = (to_retry(passage, "t", **room) for room in ({}, {"history_bytes": 0}))
    assert 40_000 < len(large.headers[-1][1] or b"") <= 65_536
    assert from_retry(received(large)).attempts[-1] == attempts[-1]
    assert from_retry(received(small)) == ours(ORDER)


# ---------------------------------------------------------------- to the DLQ


def buried(message: Message, attempt: Attempt = ATTEMPT) -> Outgoing:
    return to_dlq(message, topic="orders.dlq", group="billing", attempt=attempt, retry_count=2, letter_id="letter-1")


def test_a_dead_letter_says_where_it_was_and_why_it_is_there() -> None:
    sent = buried(ORDER)
    assert (sent.topic, sent.key, sent.value) == ("orders.dlq", ORDER.key, ORDER.value)
    assert sent.headers[:3] == ORDER.headers
    assert dict(sent.headers[3:]) == {
        "original-topic": b"orders",
        "original-partition": b"3",
        "original-offset": b"1042",
        "original-timestamp": b"1700000000.123",
        "consumer-group": b"billing",
        "error-message": b"refused",
        "error-type": b"httpx.ConnectError",
        "error-stack": "Traceback …\nhttpx.ConnectError: refused\n".encode(),
        "failure-type": b"network",
        "failed-at": b"2023-11-14T22:15:01.500Z",
        "retry-count": b"2",
        "holdfast-letter": b"letter-1",
    }
    assert set(S1) <= dict(sent.headers).keys()


def test_the_offset_of_a_redis_entry_is_its_id() -> None:
    assert dict(buried(MESSAGES[3]).headers)["original-offset"] == b"1700000000123-5"


@pytest.mark.parametrize("message", MESSAGES)
def test_the_original_message_comes_back_from_the_dlq(message: Message) -> None:
    entry = from_dlq(received(buried(message)))
    assert entry is not None
    assert entry.message == message
    assert (entry.group, entry.letter, entry.retry_count) == ("billing", "letter-1", 2)
    assert (entry.error_message, entry.error_type) == ("refused", "httpx.ConnectError")
    assert (entry.error_stack, entry.failure_type) == (ATTEMPT.traceback, "network")
    assert entry.failed_at == ATTEMPT.ended_at


def test_a_dead_letter_of_a_dlq_gives_back_the_first_one_whole() -> None:
    once = received(buried(ORDER))
    twice = from_dlq(received(buried(once)))
    assert twice is not None
    assert twice.message == once
    first = from_dlq(twice.message)
    assert first is not None
    assert first.message == ORDER


def test_the_texts_of_a_failure_are_bounded_and_without_secrets() -> None:
    attempt = replace(
        ATTEMPT,
        message="login failed for postgres://me:hunter2@db/shop " + "x" * 100_000,
        traceback="password=hunter2\n" + "é" * 16_000 + "the end \ud800",
        error_name="E" * 100_000,
        failure_type=None,
    )
    headers = dict(buried(ORDER, attempt).headers)
    assert max(len(data or b"") for data in headers.values()) <= 16 * 1024
    assert all(b"hunter2" not in (data or b"") for data in headers.values())
    assert (headers["error-stack"] or b"").endswith(b"the end ?")
    assert headers["failure-type"] == b""


def without(name: str) -> Message:
    return replace(received(buried(ORDER)), headers=tuple(one for one in buried(ORDER).headers if one[0] != name))


@pytest.mark.parametrize("name", [*S1, LETTER, "original-timestamp"])
def test_a_record_without_one_of_our_headers_is_foreign(name: str) -> None:
    assert from_dlq(without(name)) is None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("original-partition", b"-1"),
        ("original-partition", b"1_0"),
        ("original-partition", "٣".encode()),
        ("original-offset", b"x"),
        ("original-timestamp", b"now"),
        ("failed-at", b"yesterday"),
        ("retry-count", b"2.0"),
        ("retry-count", b"9" * 5_000),
        (LETTER, None),
    ],
)
def test_a_record_with_a_damaged_header_is_foreign(name: str, data: bytes | None) -> None:
    message = without(name)
    assert from_dlq(replace(message, headers=(*message.headers, (name, data)))) is None


def test_a_foreign_record_is_no_entry() -> None:
    assert from_dlq(ORDER) is None


# ---------------------------------------------------------------- replayed


def test_a_marker_says_which_letter_was_replayed_and_when() -> None:
    sent = marker("orders.dlq", "letter-1", at=1_700_000_000.5, key=b"customer-7")
    assert (sent.topic, sent.key) == ("orders.dlq", b"customer-7")
    assert sent.value is not None
    assert from_marker(received(sent)) == Marker("letter-1", 1_700_000_000.5)
    assert from_dlq(received(sent)) is None


def test_a_dead_letter_is_no_marker_even_if_it_was_one() -> None:
    was = received(marker("orders.dlq", "letter-1", at=1_700_000_000.5, key=None))
    assert from_marker(received(buried(was))) is None
    assert from_marker(ORDER) is None


@pytest.mark.parametrize(
    "headers",
    [
        ((REPLAYED, b"letter-1"),),
        ((REPLAYED, b"letter-1"), ("at", b"2023-11-14T22:13:20Z")),
        (("letter", b"letter-1"), (REPLAYED_AT, b"2023-11-14T22:13:20Z")),
        ((REPLAYED_AT, b"2023-11-14T22:13:20Z"), (REPLAYED, b"letter-1")),
        ((REPLAYED, None), (REPLAYED_AT, b"2023-11-14T22:13:20Z")),
        ((REPLAYED, b"letter-1"), (REPLAYED_AT, b"later")),
        ((REPLAYED, b"\xff"), (REPLAYED_AT, b"2023-11-14T22:13:20Z")),
    ],
)
def test_a_damaged_marker_is_none(headers: tuple[Header, ...]) -> None:
    assert from_marker(Message("orders.dlq", 0, 1, None, b"{}", headers)) is None


def test_no_name_of_ours_is_used_twice() -> None:
    names = sorted([DUE, PASSAGE, HISTORY, LETTER, REPLAYED, REPLAYED_AT, "original-timestamp", *S1])
    assert all(one != other for one, other in pairwise(names))
