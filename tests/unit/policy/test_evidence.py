"""Corners of what an error says about itself; found by mutation testing, beside the tables of test_classify.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import ConfigError, Transient
from holdfast.policy.classify import Classifier, Rule, classify
from holdfast.policy.retry_after import retry_after, tells_limit
from holdfast.policy.retry_info import retry_delay_in
from holdfast.types import FailureType, Severity


class Resp(dict[str, str]):
    """A response of httplib2: its headers, and a status."""

    status = 503


def client_error(module: str = "somebody", **attributes: Any) -> Exception:
    """An error of a client's class, known by its qualified name alone."""
    error: Exception = type("OperationalError", (Exception,), {"__module__": module})(attributes.pop("words", "no"))
    vars(error).update(attributes)
    return error


# ---- where the wait is


@pytest.mark.parametrize(
    "attributes",
    [
        {"headers": {"retry-after": "7"}, "response": SimpleNamespace(status_code=503, headers={})},
        {"headers": {}, "response": SimpleNamespace(status_code=503, headers={"retry-after": "7"})},
        {"status": 503, "response": SimpleNamespace(trailing_metadata=lambda: (("grpc-retry-pushback-ms", "7000"),))},
        {"status": 503, "trailing_metadata": lambda: (("grpc-retry-pushback-ms", "7000"),)},
        {"resp": Resp({"retry-after": "7"})},
    ],
)
def test_the_wait_is_found_on_the_error_and_on_its_response(attributes: dict[str, Any]) -> None:
    assert classify(client_error(**attributes)).retry_after == 7.0


@pytest.mark.parametrize(
    ("durations", "expected"),
    [
        ([(3, 500_000_000)], 3.5),
        ([(3, None), (4, 0)], 4.0),
        ([(None, 5), (4, 0)], 4.0),
        ([(None, None)], None),
    ],
)
def test_a_duration_counts_when_it_has_both_its_parts(
    durations: list[tuple[int | None, int | None]], expected: float | None
) -> None:
    parts = [SimpleNamespace(retry_delay=SimpleNamespace(seconds=s, nanos=n)) for s, n in durations]
    assert classify(client_error(status=503, details=parts)).retry_after == expected


@pytest.mark.parametrize(
    ("value", "expected"), [("1500", 1.5), ("1", 0.001), ("0.5", 0.0005), ("0", 0.0), ("-0.5", None), ("-1", None)]
)
def test_a_pushback_below_zero_is_no_wait_and_zero_is(value: str, expected: float | None) -> None:
    assert retry_after({"grpc-retry-pushback-ms": value}, now=0.0) == expected


def test_milliseconds_below_zero_are_no_wait_at_all_where_they_are_no_pushback() -> None:
    assert retry_after({"retry-after-ms": "-5"}, now=0.0) == 0.0


@pytest.mark.parametrize(
    ("reset", "now"), [("100000000000", 1e8 - 5.0), ("99999999999", 99_999_999_994.0), ("1000000000", 1e9 - 5.0)]
)
def test_an_instant_is_in_milliseconds_from_exactly_1e11_on(reset: str, now: float) -> None:
    assert retry_after({"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset}, now=now) == 5.0


def test_a_limit_is_told_whether_it_ends_after_a_length_or_at_an_instant() -> None:
    for reset in ("30", "1700000000", "1700000000000"):
        assert tells_limit({"x-ratelimit-remaining": "0", "x-ratelimit-reset": reset})
        assert not tells_limit({"x-ratelimit-remaining": "1", "x-ratelimit-reset": reset})


@pytest.mark.parametrize("comma", [",", ", ", " ,", "\t,\t"])
def test_the_limits_of_one_header_are_told_apart_by_commas_and_not_by_spaces(comma: str) -> None:
    header = comma.join(['"burst"; r=0; t=5', '"day"; r=9; t=80'])
    assert retry_after({"ratelimit": header}, now=0.0) == 5.0


# ---- Google's RetryInfo, packed


def packed(number: int, value: bytes | int, *, kind: int | None = None) -> bytes:
    """One field of a protobuf message whose numbers and lengths are below 128."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    if kind is not None:
        return bytes([number << 3 | kind]) + value
    return bytes([number << 3 | 2, len(value)]) + value


def status_of(duration: bytes, before: bytes = b"") -> tuple[tuple[str, bytes], ...]:
    info = before + packed(1, duration)
    detail = packed(1, b"type.googleapis.com/google.rpc.RetryInfo") + before + packed(2, info)
    return (("grpc-status-details-bin", before + packed(3, detail)),)


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (packed(1, 5), 5.0),
        (packed(2, 100), 1e-7),
        (packed(1, 5) + packed(2, 100), 5.0 + 1e-7),
        (b"", 0.0),
    ],
)
@pytest.mark.parametrize(
    "before", [b"", packed(9, bytes(8), kind=1), packed(9, bytes(4), kind=5), packed(9, b"abc"), packed(9, 1)]
)
def test_packed_retry_info_is_read_past_fields_of_every_kind(duration: bytes, expected: float, before: bytes) -> None:
    assert retry_delay_in(status_of(duration, before)) == expected


# ---- codes, words and markers


def test_words_of_a_connection_that_was_refused_do_not_count_where_there_is_a_sqlstate() -> None:
    words = "authentication failed while the server was busy"
    assert classify(client_error("psycopg", words=words)).type is FailureType.AUTHENTICATION
    busy = client_error("psycopg", words=words, sqlstate="53300")
    assert classify(busy).type is classify(client_error(sqlstate="53300")).type is not FailureType.AUTHENTICATION


@pytest.mark.parametrize(
    ("words", "is_permanent"),
    [
        ('FATAL:  database "shop" does not exist', True),
        ("FATAL:  database is not accepting connections", False),
        ("the server does not exist", False),
    ],
)
def test_a_database_that_does_not_exist_is_told_by_both_halves_of_the_sentence(words: str, is_permanent: bool) -> None:
    assert (classify(client_error("psycopg", words=words)).type is FailureType.PERMANENT) is is_permanent


def test_what_is_no_severity_is_not_taken_for_one() -> None:
    error: Any = Transient("no")
    error.severity = "loud"
    assert classify(error).severity is Severity.LOW


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_an_exit_is_nobodys_failure_and_has_the_severity_of_its_type(error: BaseException) -> None:
    failure = classify(error)
    assert (failure.type, failure.severity, failure.retry_after) == (FailureType.SYSTEM, Severity.HIGH, None)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), GeneratorExit()])
def test_what_an_exit_was_raised_from_does_not_matter(error: BaseException) -> None:
    error.__cause__ = PermissionError("no")
    error.__context__ = ConnectionResetError("no")
    assert classify(error).type is FailureType.SYSTEM


@pytest.mark.parametrize("error", [OSError(5, "no"), ValueError("no"), KeyboardInterrupt(), client_error(status=503)])
def test_a_failure_holds_the_error_it_speaks_of(error: BaseException) -> None:
    assert classify(error).error is error
    assert classify(error).error is error  # and again, when its class is known


def test_the_cause_is_followed_where_the_error_has_attributes_to_ask_for() -> None:
    outer = client_error(reason="because")
    outer.__cause__ = PermissionError("no")
    assert classify(outer).type is classify(PermissionError("no")).type is not FailureType.SYSTEM


def test_a_rule_keeps_the_wait_that_stands_on_the_class() -> None:
    slow_down = type("SlowDown", (Exception,), {"__module__": "somebody", "retry_after": 7})
    failure = Classifier([Rule(FailureType.TRANSIENT, on=slow_down)])(slow_down())
    assert (failure.type, failure.retry_after) == (FailureType.TRANSIENT, 7.0)


# ---- a classifier's own settings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rules": None}, "rules=None: must be a list of Rule"),
        ({"rules": 5}, "rules=5: must be a list of Rule"),
        ({"rules": ["network"]}, "rules='network': must be a list of Rule"),
        ({"now": 5.0}, "now=5.0: must be a function to seconds since 1970, or None"),
        ({"now": "now"}, "now='now': must be a function to seconds since 1970, or None"),
    ],
)
def test_a_classifier_that_cannot_work_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Classifier(**arguments)
    assert str(refused.value) == message


def test_a_classifier_measures_dates_by_its_own_clock_and_else_by_the_one_it_is_given() -> None:
    error = client_error(status=503, headers={"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT"})
    ten_before, twenty_before = (lambda: 784_111_827.0), (lambda: 784_111_817.0)
    assert Classifier(now=ten_before)(error).retry_after == 10.0
    assert Classifier(now=ten_before).timed_by(twenty_before)(error).retry_after == 10.0
    assert Classifier().timed_by(twenty_before)(error).retry_after == 20.0
    ruled = Classifier([Rule(FailureType.RATE_LIMITED, on=type(error))]).timed_by(twenty_before)(error)
    assert (ruled.type, ruled.retry_after) == (FailureType.RATE_LIMITED, 20.0)
