from __future__ import annotations

import asyncio
import errno
import gc
import json
import socket
import ssl
import subprocess
import sys
import weakref
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from types import SimpleNamespace
from typing import Any

import msgspec
import pydantic
import pytest

from holdfast.errors import (
    BulkheadFull,
    CircuitOpenError,
    ConfigError,
    IllegalChange,
    Invalid,
    Permanent,
    RateLimited,
    RateLimitExceeded,
    Structural,
    TimeLimitExceeded,
    Transient,
)
from holdfast.policy.classify import Classifier, Rule, classify
from holdfast.policy.known_codes import AWS, GRPC, SQLITE, SQLSTATES
from holdfast.policy.known_errors import BY_NAME, LAST_RESORT
from holdfast.types import FailureContext, FailureType, Severity

NOW = 1_000_000_000.0


def made(name: str, *bases: type[BaseException], **attributes: Any) -> BaseException:
    """An error of a client's class, known by its qualified name alone; the attributes are the instance's."""
    module, _, qualname = name.rpartition(".")
    error_class = type(qualname, bases or (Exception,), {"__module__": module})
    error: BaseException = error_class("no")
    if attributes:
        vars(error).update(attributes)
    return error


def with_attributes(**attributes: Any) -> BaseException:
    return made("somebody.Error", **attributes)


def response(status: int, **headers: str) -> SimpleNamespace:
    return SimpleNamespace(status_code=status, headers={k.replace("_", "-"): v for k, v in headers.items()})


def raised(
    outer: BaseException, cause: BaseException | None = None, context: BaseException | None = None
) -> BaseException:
    outer.__cause__, outer.__context__ = cause, context
    outer.__suppress_context__ = cause is not None
    return outer


def meaning(error: BaseException) -> str:
    return classify(error, now=lambda: NOW).type.value


def error_of(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        error.__traceback__ = None
        return error
    raise AssertionError("did not fail")


class Model(pydantic.BaseModel):
    size: int


# ---------------------------------------------------------------- by class
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionError(), "network"),
        (ConnectionRefusedError(), "network"),
        (ConnectionResetError(), "network"),
        (BrokenPipeError(), "network"),
        (TimeoutError(), "network"),
        (TimeLimitExceeded(1.0), "network"),
        (socket.gaierror(-2, "unknown host"), "network"),
        (socket.herror(1, "unknown host"), "network"),
        (ssl.SSLError(1, "bad record"), "network"),
        (asyncio.IncompleteReadError(b"", 5), "network"),
        (ValueError(), "validation"),
        (TypeError(), "validation"),
        (KeyError(), "validation"),
        (ConfigError("x=1: must be 2"), "validation"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), "validation"),
        (error_of(lambda: json.loads("{")), "validation"),
        (error_of(lambda: Model.model_validate({"size": "large"})), "validation"),
        (error_of(lambda: msgspec.json.decode(b'"x"', type=int)), "validation"),
        (error_of(lambda: msgspec.json.decode(b"{")), "validation"),
        (error_of(lambda: msgspec.json.encode(object())), "validation"),
        (AttributeError(), "permanent"),
        (NameError(), "permanent"),
        (UnboundLocalError(), "permanent"),
        (AssertionError(), "permanent"),
        (NotImplementedError(), "permanent"),
        (IndexError(), "permanent"),
        (LookupError(), "permanent"),
        (ZeroDivisionError(), "permanent"),
        (OverflowError(), "permanent"),
        (ImportError(), "permanent"),
        (ModuleNotFoundError(), "permanent"),
        (SyntaxError(), "permanent"),
        (RecursionError(), "permanent"),
        (StopIteration(), "permanent"),
        (StopAsyncIteration(), "permanent"),
        (BufferError(), "permanent"),
        (ReferenceError(), "permanent"),
        (DeprecationWarning(), "permanent"),
        (IllegalChange(), "permanent"),
        (FileNotFoundError(), "permanent"),
        (FileExistsError(), "permanent"),
        (IsADirectoryError(), "permanent"),
        (NotADirectoryError(), "permanent"),
        (ProcessLookupError(), "permanent"),
        (ChildProcessError(), "permanent"),
        (PermissionError(), "authentication"),
        (BlockingIOError(), "transient"),
        (InterruptedError(), "transient"),
        (MemoryError(), "system"),
        (Exception(), "system"),
        (RuntimeError(), "system"),
        (OSError(), "system"),
        (EOFError(), "system"),
        (KeyboardInterrupt(), "system"),
        (SystemExit(404), "system"),
        (GeneratorExit(), "system"),
        (asyncio.CancelledError(), "system"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else value,
)
def test_a_class_has_a_meaning(error: BaseException, expected: str) -> None:
    assert meaning(error) == expected


def test_a_subclass_means_what_its_nearest_known_class_means() -> None:
    class OddKey(KeyError):
        pass

    class Both(RuntimeError, TimeoutError):
        pass

    assert meaning(OddKey()) == "validation"
    assert meaning(Both()) == "network"


@pytest.mark.parametrize("name", [*BY_NAME, *LAST_RESORT])
def test_a_clients_class_is_known_by_name_and_so_are_its_subclasses(name: str) -> None:
    expected = (BY_NAME.get(name) or LAST_RESORT[name]).type
    error = made(name)
    assert meaning(error) == expected
    assert meaning(made("users.Own", type(error))) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("httpx.TransportError", "network"),
        ("httpx.UnsupportedProtocol", "validation"),
        ("httpx.TooManyRedirects", "permanent"),
        ("requests.exceptions.ConnectionError", "network"),
        ("requests.exceptions.RetryError", "transient"),
        ("requests.exceptions.MissingSchema", "validation"),
        ("urllib3.exceptions.MaxRetryError", "network"),
        ("aiohttp.client_exceptions.ClientPayloadError", "network"),
        ("aiohttp.client_exceptions.ContentTypeError", "structural"),
        ("botocore.exceptions.NoCredentialsError", "authentication"),
        ("botocore.exceptions.HTTPClientError", "network"),
        ("redis.exceptions.ConnectionError", "network"),
        ("redis.exceptions.TimeoutError", "network"),
        ("redis.exceptions.BusyLoadingError", "transient"),
        ("redis.exceptions.AuthenticationError", "authentication"),
        ("redis.exceptions.OutOfMemoryError", "system"),
        ("psycopg.OperationalError", "system"),
        ("psycopg.IntegrityError", "validation"),
        ("sqlalchemy.exc.TimeoutError", "transient"),
        ("sqlalchemy.exc.StatementError", "system"),
        ("sqlite3.IntegrityError", "validation"),
        ("apsw.BindingsError", "validation"),
        ("ssl.SSLCertVerificationError", "permanent"),
    ],
)
def test_the_common_clients_classes_mean_what_they_should(name: str, expected: str) -> None:
    assert meaning(made(name)) == expected


# ---------------------------------------------------------------- by operating system
@pytest.mark.parametrize(
    ("number", "expected", "severity"),
    [
        (errno.ENOSPC, "system", "critical"),
        (errno.EDQUOT, "system", "critical"),
        (errno.ENOMEM, "system", "critical"),
        (errno.EIO, "system", "critical"),
        (errno.EROFS, "system", "critical"),
        (errno.EMFILE, "system", "high"),
        (errno.ENFILE, "system", "high"),
        (errno.ENETUNREACH, "network", "medium"),
        (errno.EHOSTUNREACH, "network", "medium"),
        (errno.EADDRINUSE, "network", "medium"),
        (errno.EBUSY, "transient", "low"),
        (errno.EINVAL, "validation", "medium"),
        (errno.ENAMETOOLONG, "validation", "medium"),
        (errno.ENOTEMPTY, "permanent", "high"),
        (errno.EPERM, "authentication", "high"),
        (99_999, "system", "high"),
    ],
)
def test_an_errno_has_a_meaning_and_failing_hardware_is_critical(number: int, expected: str, severity: str) -> None:
    failure = classify(OSError(number, "no"))
    assert (failure.type, failure.severity) == (expected, severity)


def test_a_users_os_error_is_known_by_its_errno() -> None:
    class DiskError(OSError):
        pass

    assert meaning(DiskError(errno.ENOSPC, "full")) == "system"
    assert meaning(DiskError(errno.ENOENT, "gone")) == "permanent"


def test_the_numbers_of_ssl_errors_are_not_errnos() -> None:
    assert errno.EPERM == 1
    assert meaning(ssl.SSLError(1, "handshake")) == "network"


def test_memory_that_ran_out_is_critical() -> None:
    assert classify(MemoryError()).severity is Severity.CRITICAL


# ---------------------------------------------------------------- by status
STATUSES = {
    400: "validation",
    401: "authentication",
    402: "permanent",
    403: "authentication",
    404: "permanent",
    405: "permanent",
    407: "authentication",
    408: "transient",
    409: "transient",
    410: "permanent",
    412: "permanent",
    413: "validation",
    414: "validation",
    415: "validation",
    418: "permanent",
    422: "validation",
    423: "transient",
    425: "transient",
    429: "rate_limited",
    451: "permanent",
    499: "permanent",
    500: "transient",
    501: "transient",
    503: "transient",
    505: "transient",
    511: "transient",
    529: "transient",
    599: "transient",
}


@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
@pytest.mark.parametrize("where", ["status_code", "status", "http_status", "code"])
def test_a_status_on_the_error_has_a_meaning(status: int, expected: str, where: str) -> None:
    assert meaning(with_attributes(**{where: status})) == expected


@pytest.mark.parametrize(
    "attributes",
    [
        {"response": SimpleNamespace(status_code=404)},
        {"response": SimpleNamespace(status=404)},
        {"resp": SimpleNamespace(status=404)},
        {"response": {"ResponseMetadata": {"HTTPStatusCode": 404}}},
        {"status_code": 200, "response": SimpleNamespace(status_code=404)},
        {"status_code": None, "code": 404},
    ],
)
def test_a_status_is_found_on_the_response_as_well(attributes: dict[str, Any]) -> None:
    assert meaning(with_attributes(**attributes)) == "permanent"


@pytest.mark.parametrize("status", [None, 0, 200, 302, 399, 600, 1006, "404", 404.0, True, [404]])
def test_what_is_no_error_status_is_ignored(status: object) -> None:
    assert meaning(with_attributes(status_code=status)) == "system"
    assert meaning(made("users.Own", ValueError, code=status)) == "validation"


def test_a_status_wins_over_the_class_even_a_builtin_one() -> None:
    error = ValueError("no")
    vars(error)["status_code"] = 503
    assert meaning(error) == "transient"


def test_a_status_on_the_class_counts() -> None:
    class NotFound(RuntimeError):
        code = 404

    assert meaning(NotFound()) == "permanent"


def test_a_status_in_a_slot_counts() -> None:
    class Slotted(Exception):
        __slots__ = ("status_code",)

        def __init__(self) -> None:
            self.status_code = 429

    assert meaning(Slotted()) == "rate_limited"


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (403, {"X_RateLimit_Remaining": "0"}, "rate_limited"),
        (403, {"Retry_After": "60"}, "rate_limited"),
        (403, {"RateLimit": "limit=5, remaining=0, reset=9"}, "rate_limited"),
        (403, {"X_RateLimit_Remaining": "1"}, "authentication"),
        (403, {}, "authentication"),
        (401, {"X_RateLimit_Remaining": "0"}, "authentication"),
        (503, {"Retry_After": "60"}, "transient"),
    ],
)
def test_rate_limit_headers_win_over_403_and_no_other_status(
    status: int, headers: dict[str, str], expected: str
) -> None:
    assert meaning(with_attributes(response=response(status, **headers))) == expected


# ---------------------------------------------------------------- by codes
@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ThrottlingException", 400, "rate_limited"),
        ("ProvisionedThroughputExceededException", 400, "rate_limited"),
        ("SlowDown", 503, "rate_limited"),
        ("AccessDenied", 400, "authentication"),
        ("ExpiredToken", 400, "authentication"),
        ("ResourceNotFoundException", 400, "permanent"),
        ("TransactionConflictException", 400, "transient"),
        ("ValidationException", 400, "validation"),
        ("404", 404, "permanent"),
        (None, 500, "transient"),
    ],
)
def test_an_aws_code_wins_over_the_status(code: str | None, status: int, expected: str) -> None:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    assert meaning(with_attributes(response=answer)) == expected


@pytest.mark.parametrize(("code", "found"), AWS.items())
def test_every_aws_code_listed_is_found(code: str, found: tuple[FailureType]) -> None:
    assert meaning(with_attributes(response={"Error": {"Code": code}})) == found[0]


@pytest.mark.parametrize("where", ["errors", "details", "error_details"])
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("rateLimitExceeded", "rate_limited"),
        ("userRateLimitExceeded", "rate_limited"),
        ("quotaExceeded", "rate_limited"),
        ("dailyLimitExceeded", "rate_limited"),
        ("RATE_LIMIT_EXCEEDED", "rate_limited"),
        ("forbidden", "authentication"),
        (None, "authentication"),
    ],
)
def test_a_google_reason_wins_over_403(where: str, reason: str | None, expected: str) -> None:
    parts = ["odd", {"reason": "other"}, {"reason": reason}]
    assert meaning(with_attributes(code=403, **{where: parts})) == expected


class Code(Enum):
    UNAVAILABLE = 14
    RESOURCE_EXHAUSTED = 8


@pytest.mark.parametrize(("name", "found"), GRPC.items())
def test_a_grpc_code_has_a_meaning(name: str, found: tuple[FailureType]) -> None:
    error = made("grpc.RpcError", code=lambda: SimpleNamespace(name=name))
    assert meaning(error) == found[0]


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ("no", "transient"),
        (None, "transient"),
        ("failed to connect to all addresses; last error: refused", "network"),
        ("DNS resolution failed for nothing.invalid", "network"),
        ("errors resolving nothing.invalid:1", "network"),
        ("failed to connect to all addresses; Ssl handshake failed: CERTIFICATE_VERIFY_FAILED", "permanent"),
    ],
)
def test_an_unavailable_grpc_server_is_told_from_one_that_was_not_reached(details: str | None, expected: str) -> None:
    error = made("grpc.RpcError", code=lambda: Code.UNAVAILABLE, details=lambda: details)
    assert meaning(error) == expected


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"code": 409, "grpc_status_code": SimpleNamespace(name="ALREADY_EXISTS")}, "permanent"),
        ({"code": 501, "grpc_status_code": SimpleNamespace(name="UNIMPLEMENTED")}, "permanent"),
        (
            {"code": 501, "grpc_status_code": SimpleNamespace(name="UNIMPLEMENTED"), "response": response(501)},
            "transient",
        ),
        ({"code": 503, "response": SimpleNamespace(code=lambda: Code.RESOURCE_EXHAUSTED)}, "rate_limited"),
        ({"code": 500, "grpc_status_code": None}, "transient"),
        (
            {"grpc_status_code": SimpleNamespace(name="PERMISSION_DENIED"), "reason": "RATE_LIMIT_EXCEEDED"},
            "rate_limited",
        ),
    ],
)
def test_a_google_error_is_known_by_its_grpc_code_unless_it_came_over_http(
    attributes: dict[str, Any], expected: str
) -> None:
    assert meaning(made("google.api_core.exceptions.GoogleAPICallError", **attributes)) == expected


@pytest.mark.parametrize("where", ["sqlstate", "pgcode"])
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08006", "system"),
        ("57P01", "system"),
        ("40001", "transient"),
        ("40P01", "transient"),
        ("55P03", "transient"),
        ("57014", "transient"),
        ("25006", "transient"),
        ("23505", "validation"),
        ("22001", "validation"),
        ("42601", "permanent"),
        ("42P01", "permanent"),
        ("42501", "authentication"),
        ("28P01", "authentication"),
        ("28000", "authentication"),
        ("3D000", "permanent"),
        ("53100", "system"),
        ("P0001", "permanent"),
        ("XX000", "system"),
    ],
)
def test_a_sqlstate_has_a_meaning(where: str, state: str, expected: str) -> None:
    assert meaning(made("users.DatabaseError", ValueError, **{where: state})) == expected


@pytest.mark.parametrize(("state", "found"), SQLSTATES.items())
def test_every_sqlstate_listed_is_found(state: str, found: tuple[FailureType, Severity | None]) -> None:
    failure = classify(with_attributes(sqlstate=state.ljust(5, "0")))
    assert failure.type is found[0]
    if len(state) == 5:
        assert failure.severity is (found[1] or found[0].severity)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ('FATAL:  password authentication failed for user "x"', "authentication"),
        ("fe_sendauth: no password supplied", "authentication"),
        ('FATAL:  no pg_hba.conf entry for host "::1"', "authentication"),
        ("SSL error: certificate verify failed", "permanent"),
        ('FATAL:  database "nothing" does not exist', "permanent"),
        ("Connection refused", "system"),
    ],
)
def test_a_failed_connect_of_psycopg_has_only_words(words: str, expected: str) -> None:
    error = made("psycopg.OperationalError", sqlstate=None)
    error.args = (words,)
    assert meaning(error) == expected


@pytest.mark.parametrize(("name", "where"), [("sqlite3.Error", "sqlite_errorcode"), ("apsw.Error", "result")])
@pytest.mark.parametrize(("code", "found"), SQLITE.items())
def test_a_sqlite_code_has_a_meaning_extended_or_not(
    name: str, where: str, code: int, found: tuple[FailureType, Severity | None]
) -> None:
    for number in (code, code | 0x0300):
        failure = classify(made(name, **{where: number}))
        assert (failure.type, failure.severity) == (found[0], found[1] or found[0].severity)


def test_a_connection_that_sqlalchemy_threw_away_is_a_system_failure() -> None:
    lost = made("sqlalchemy.exc.DBAPIError", orig=ValueError(), connection_invalidated=True)
    kept = made("sqlalchemy.exc.DBAPIError", orig=ValueError(), connection_invalidated=False)
    assert (meaning(lost), meaning(kept)) == ("system", "validation")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("MISCONF cannot persist", "system"),
        ("LOADING", "transient"),
        ("NOREPLICAS not enough", "transient"),
        ("WRONGPASS no", "authentication"),
        ("WRONGTYPE no", "permanent"),
        ("they said LOADING", "permanent"),
    ],
)
def test_the_first_word_of_a_redis_reply_is_its_code(reply: str, expected: str) -> None:
    error = made("redis.exceptions.ResponseError")
    error.args = (reply,)
    assert meaning(error) == expected


def test_an_answer_that_aiohttp_cannot_parse_is_no_400() -> None:
    error = made("aiohttp.client_exceptions.ClientResponseError", status=400)
    assert meaning(error) == "validation"
    assert meaning(raised(error, cause=made("aiohttp.http_exceptions.BadStatusLine"))) == "network"


# ---------------------------------------------------------------- errors that say it themselves
@pytest.mark.parametrize(
    ("error", "expected", "wait"),
    [
        (Transient("no"), "transient", None),
        (Transient("no", retry_after=3), "transient", 3.0),
        (RateLimited("no", retry_after=2.5), "rate_limited", 2.5),
        (Permanent("no"), "permanent", None),
        (Invalid("no"), "validation", None),
        (Structural("no"), "structural", None),
        (CircuitOpenError("db", 4.0, "ConnectionError"), "transient", 4.0),
        (CircuitOpenError("db", None, None), "transient", None),
        (BulkheadFull("full", 0.5), "transient", 0.5),
        (RateLimitExceeded("slow", 9.0), "rate_limited", 9.0),
    ],
)
def test_our_own_errors_say_their_type_and_their_wait(error: Exception, expected: str, wait: float | None) -> None:
    failure = classify(error)
    assert (failure.type, failure.retry_after) == (expected, wait)


def test_a_marker_wins_over_status_class_and_cause() -> None:
    class Mine(Transient, ValueError):
        status_code = 404

    assert meaning(raised(Mine("no"), cause=KeyError())) == "transient"


def test_a_marker_sets_its_severity() -> None:
    assert classify(Transient("no", severity=Severity.CRITICAL)).severity is Severity.CRITICAL
    assert classify(Transient("no")).severity is Severity.LOW


def test_a_marker_with_a_response_tells_the_wait_of_its_headers() -> None:
    error = Transient("no")
    vars(error)["response"] = response(503, Retry_After="8")
    assert classify(error).retry_after == 8.0


# ---------------------------------------------------------------- the wait
@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"response": response(429, Retry_After="7")}, 7.0),
        ({"status_code": 429, "headers": {"retry-after": "7"}}, 7.0),
        ({"response": {"ResponseMetadata": {"HTTPStatusCode": 429, "HTTPHeaders": {"retry-after": "7"}}}}, 7.0),
        ({"status_code": 503, "retry_after": 7}, 7.0),
        ({"status_code": 503, "retry_after": True}, None),
        ({"status_code": 503, "retry_after": float("nan")}, None),
        ({"status_code": 503, "retry_after": -3}, 0.0),
        ({"status_code": 503, "retry_after": 1e9}, 86_400.0),
        ({"code": 503, "details": [{"retryDelay": "1.5s"}]}, 1.5),
        ({"code": 503, "details": [SimpleNamespace(retry_delay=SimpleNamespace(seconds=2, nanos=500_000_000))]}, 2.5),
        ({"status_code": 503, "trailing_metadata": lambda: (("grpc-retry-pushback-ms", "250"),)}, 0.25),
        ({"response": response(429, X_RateLimit_Reset=str(NOW + 30))}, 30.0),
        ({"status_code": 400, "headers": {"retry-after": "7"}}, None),
        ({"status_code": 503}, None),
    ],
)
def test_the_wait_is_found_wherever_clients_keep_it(attributes: dict[str, Any], expected: float | None) -> None:
    assert classify(with_attributes(**attributes), now=lambda: NOW).retry_after == expected


def status_with_retry_info() -> bytes:
    """google.rpc.Status {code: 14, details: [ErrorInfo, RetryInfo {7.25 s}]}, as protobuf writes it."""
    duration = b"\x08\x07\x10" + _varint(250_000_000)
    info = b"\x0a" + bytes([len(duration)]) + duration
    kind = b"type.googleapis.com/google.rpc."
    details = [(kind + b"ErrorInfo", b"\x0a\x04BUSY"), (kind + b"RetryInfo", info)]
    packed = [b"\x0a" + bytes([len(k)]) + k + b"\x12" + bytes([len(v)]) + v for k, v in details]
    fixed = b"\x51" + bytes(8) + b"\x55" + bytes(4)  # fields of fixed size that nobody asked for
    return b"\x08\x0e" + fixed + b"".join(b"\x1a" + bytes([len(p)]) + p for p in packed)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ((("other", b""), ("grpc-status-details-bin", status_with_retry_info())), 7.25),
        ((("grpc-status-details-bin", status_with_retry_info()[:-3]),), None),
        ((("grpc-status-details-bin", b"\xff\xff\xff"),), None),
        ((("grpc-status-details-bin", b""),), None),
        ("no metadata", None),
        (5, None),
    ],
)
def test_retry_info_is_read_from_grpc_metadata(metadata: object, expected: float | None) -> None:
    error = made("grpc.RpcError", code=lambda: Code.UNAVAILABLE, trailing_metadata=lambda: metadata)
    assert classify(error).retry_after == expected


def test_a_rule_keeps_the_wait() -> None:
    classifier = Classifier([Rule(FailureType.RATE_LIMITED, on=LookupError)])
    error = made("users.Busy", LookupError, response=response(400, Retry_After="5"))
    failure = classifier(error)
    assert (failure.type, failure.retry_after) == ("rate_limited", 5.0)


# ---------------------------------------------------------------- the chain
def test_the_cause_of_an_unrecognised_error_decides() -> None:
    assert meaning(raised(RuntimeError(), cause=ConnectionError())) == "network"
    assert meaning(raised(Exception(), cause=raised(RuntimeError(), cause=KeyError()))) == "validation"


def test_so_does_its_context_unless_it_is_suppressed() -> None:
    assert meaning(raised(RuntimeError(), context=KeyError())) == "validation"
    error = raised(RuntimeError(), context=KeyError())
    error.__suppress_context__ = True
    assert meaning(error) == "system"
    assert meaning(raised(RuntimeError(), cause=ConnectionError(), context=KeyError())) == "network"


def test_the_outermost_recognised_error_wins() -> None:
    assert meaning(raised(TimeoutError(), cause=KeyError())) == "network"
    assert meaning(raised(with_attributes(status=404), cause=ConnectionError())) == "permanent"


@pytest.mark.parametrize("link", ["orig", "reason", "cause"])
def test_the_clients_own_links_are_followed_when_they_hold_errors(link: str) -> None:
    assert meaning(with_attributes(**{link: KeyError()})) == "validation"
    assert meaning(with_attributes(**{link: "KeyError"})) == "system"


def test_a_wrapper_counts_only_when_nothing_in_it_is_recognised() -> None:
    assert meaning(made("sqlalchemy.exc.IntegrityError", orig=Exception())) == "validation"
    assert meaning(made("sqlalchemy.exc.IntegrityError", orig=made("psycopg.Error", sqlstate="40001"))) == "transient"
    assert meaning(raised(Exception(), cause=made("urllib.error.URLError"))) == "network"


def test_a_bad_certificate_behind_a_network_error_needs_a_person() -> None:
    bad = ssl.SSLCertVerificationError(1, "certificate verify failed")
    assert meaning(bad) == "permanent"
    assert meaning(raised(ConnectionError(), cause=bad)) == "permanent"
    assert meaning(made("urllib.error.URLError", OSError, reason=bad)) == "permanent"
    hidden = raised(made("httpcore.ConnectError"), context=bad)
    hidden.__suppress_context__ = True
    assert meaning(raised(made("httpx.ConnectError", ConnectionError), cause=hidden)) == "permanent"
    assert meaning(raised(ConnectionError(), cause=ssl.SSLError(1, "handshake"))) == "network"


def test_a_bad_certificate_does_not_win_over_a_status_or_a_marker() -> None:
    bad = ssl.SSLCertVerificationError(1, "certificate verify failed")
    assert meaning(raised(with_attributes(status=503), context=bad)) == "transient"
    assert meaning(raised(Transient("no"), cause=bad)) == "transient"


def test_a_chain_that_goes_round_ends() -> None:
    one, two = RuntimeError(), Exception()
    one.__cause__, two.__cause__ = two, one
    assert meaning(one) == "system"
    own = with_attributes()
    vars(own)["orig"] = own
    assert meaning(own) == "system"


def test_a_very_long_chain_is_not_walked_to_its_end() -> None:
    def chain(length: int) -> BaseException:
        error: BaseException = KeyError()
        for _ in range(length):
            error = raised(RuntimeError(), cause=error)
        return error

    assert meaning(chain(50)) == "validation"
    assert meaning(chain(100)) == "system"
    assert meaning(chain(5_000)) == "system"


def test_an_error_that_is_linked_twice_is_walked_once() -> None:
    error: BaseException = KeyError()
    for _ in range(30):
        error = raised(with_attributes(orig=error, reason=error), cause=error)
    assert meaning(error) == "validation"


# ---------------------------------------------------------------- groups
def group(*members: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", members)


LIMITED = RateLimited("slow", retry_after=3.0)


@pytest.mark.parametrize(
    ("error", "expected", "wait"),
    [
        (group(ConnectionError(), Transient("no")), "network", None),
        (group(ConnectionError(), KeyError(), AttributeError()), "validation", None),
        (group(ConnectionError(), LIMITED, Transient("no", retry_after=7.0)), "rate_limited", 7.0),
        (group(ConnectionError(), group(Transient("no"), group(AttributeError()))), "permanent", None),
        (group(RuntimeError()), "system", None),
    ],
)
def test_in_a_group_the_member_that_cannot_be_retried_wins(error: Exception, expected: str, wait: float | None) -> None:
    failure = classify(error)
    assert (failure.type, failure.retry_after) == (expected, wait)
    assert failure.error is error


def test_a_member_is_known_by_its_chain_and_a_group_may_be_a_cause() -> None:
    member = RuntimeError()
    member.__cause__ = KeyError()
    assert meaning(group(ConnectionError(), member)) == "validation"
    assert meaning(raised(OSError("all attempts failed"), cause=group(ConnectionRefusedError()))) == "network"


def test_a_group_of_cancellations_does_not_crash() -> None:
    assert meaning(BaseExceptionGroup("end", [asyncio.CancelledError(), KeyboardInterrupt()])) == "system"


def test_a_group_inside_its_own_members_ends() -> None:
    member = RuntimeError()
    error = group(member, ConnectionError())
    member.__context__ = error
    assert meaning(error) in {"network", "system"}


def test_groups_nested_very_deep_and_very_wide_end() -> None:
    deep: Exception = KeyError()
    for _ in range(200):
        deep = group(deep)
    assert meaning(deep) == "system"
    assert meaning(group(*[ConnectionError() for _ in range(20_000)], KeyError())) == "network"
    assert meaning(group(*[ConnectionError() for _ in range(400)], KeyError())) == "validation"


# ---------------------------------------------------------------- rules
def test_a_users_rule_wins_over_the_builtin_ones() -> None:
    classifier = Classifier([Rule(FailureType.TRANSIENT, on=ValueError, severity=Severity.CRITICAL)])
    failure = classifier(UnicodeError())
    assert (failure.type, failure.severity) == ("transient", "critical")
    assert classifier(KeyError()).type == "validation"


def test_a_users_rule_wins_over_markers() -> None:
    assert Classifier([Rule(FailureType.PERMANENT, on=Transient)])(Transient("no")).type == "permanent"


def test_the_first_rule_that_matches_decides() -> None:
    classifier = Classifier(
        [
            Rule(FailureType.STRUCTURAL, on=lambda error: "selector" in str(error)),
            Rule(FailureType.TRANSIENT, on=(KeyError, IndexError)),
        ]
    )
    assert classifier(KeyError("selector")).type == "structural"
    assert classifier(IndexError("x")).type == "transient"
    assert classifier(ValueError("x")).type == "validation"


def test_a_predicate_that_raises_does_not_match() -> None:
    class Odd:
        def __bool__(self) -> bool:
            raise ArithmeticError

    broken = Rule(FailureType.STRUCTURAL, on=lambda error: error.nothing)  # type: ignore[attr-defined]
    odd: Any = lambda error: Odd()  # noqa: E731
    assert Classifier([broken, Rule(FailureType.STRUCTURAL, on=odd)])(KeyError()).type == "validation"


def test_a_rule_for_a_task_or_a_service_holds_only_there() -> None:
    classifier = Classifier(
        [
            Rule(FailureType.TRANSIENT, on=KeyError, task="charge"),
            Rule(FailureType.NETWORK, on=KeyError, service="bank"),
            Rule(FailureType.SYSTEM, on=IndexError, task="charge", service="bank"),
        ]
    )
    assert classifier(KeyError(), FailureContext(task="charge")).type == "transient"
    assert classifier(KeyError(), FailureContext(task="refund", service="bank")).type == "network"
    assert classifier(KeyError(), FailureContext(task="refund")).type == "validation"
    assert classifier(KeyError()).type == "validation"
    assert classifier(IndexError(), FailureContext(task="charge", service="bank")).type == "system"
    assert classifier(IndexError(), FailureContext(task="charge")).type == "permanent"


def test_a_rule_reaches_the_cause_of_an_error_and_the_members_of_a_group() -> None:
    classifier = Classifier([Rule(FailureType.STRUCTURAL, on=KeyError)])
    assert classifier(raised(RuntimeError(), cause=KeyError())).type == "structural"
    assert classifier(raised(TimeoutError(), cause=KeyError())).type == "structural"  # rules win over built-in ones
    assert classifier(raised(Transient(), cause=KeyError())).type == "transient"  # but not over an error's own word
    assert classifier(group(ConnectionError(), KeyError())).type == "structural"


def test_a_rule_reaches_what_was_being_handled_only_if_the_error_itself_is_not_recognised() -> None:
    classifier = Classifier([Rule(FailureType.STRUCTURAL, on=KeyError)])
    assert classifier(raised(NameError(), context=KeyError())).type == "permanent"  # a bug in the handler
    assert classifier(raised(RuntimeError(), context=KeyError())).type == "structural"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(7, 7.0), (timedelta(minutes=1), 60.0), ("5", 5.0), ("Sun, 09 Sep 2001 01:46:45 GMT", 5.0), ("soon", None)],
)
def test_a_marker_takes_a_wait_in_seconds_as_a_timedelta_or_as_the_header_has_it(
    asked: Any, seconds: float | None
) -> None:
    assert classify(RateLimited(retry_after=asked), now=lambda: 1_000_000_000.0).retry_after == seconds


def test_a_rule_that_says_network_is_not_overruled_by_a_certificate() -> None:
    error = raised(ConnectionError(), cause=ssl.SSLCertVerificationError(1, "no"))
    assert Classifier([Rule(FailureType.NETWORK, on=ConnectionError)])(error).type == "network"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"type": "transient", "on": KeyError}, "type='transient': must be a FailureType"),
        ({"on": 5}, "on=5: must be an exception class, a tuple of them, or a function of an error"),
        ({"on": int}, "on=<class 'int'>: must be an exception class, a tuple of them, or a function of an error"),
        ({"on": ()}, "on=(): must be an exception class, a tuple of them, or a function of an error"),
        ({"on": (KeyError, 5)}, "an exception class, a tuple of them, or a function of an error"),
        ({"on": KeyError, "task": 5}, "task=5: must be the name of a task, or None"),
        ({"on": KeyError, "service": 5}, "service=5: must be the name of a service, or None"),
        ({"on": KeyError, "severity": "high!"}, "severity='high!': must be a Severity, or None"),
    ],
)
def test_a_rule_with_the_wrong_kinds_of_values_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Rule(**({"type": FailureType.TRANSIENT} | arguments))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_classifier_takes_rules_only() -> None:
    rules: Any = [KeyError]
    with pytest.raises(ConfigError, match="rules=<class 'KeyError'>: must be a list of Rule"):
        Classifier(rules)


# ---------------------------------------------------------------- hostile errors
class Hostile(Exception):
    """Raises from wherever it is touched."""

    @property
    def status_code(self) -> int:
        raise ZeroDivisionError

    @property
    def __cause__(self) -> BaseException:  # type: ignore[override]
        raise ZeroDivisionError

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        raise ZeroDivisionError

    def __str__(self) -> str:
        raise ZeroDivisionError

    def __getattr__(self, name: str) -> Any:
        raise OSError(name)


class Unanswering(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise LookupError(name)


class HostileMapping(dict[str, Any]):
    def get(self, *_: object) -> Any:
        raise RecursionError

    def items(self) -> Any:
        raise RecursionError


@pytest.mark.parametrize(
    "make",
    [
        Hostile,
        Unanswering,
        lambda: with_attributes(response=HostileMapping()),
        lambda: with_attributes(status_code=503, headers=HostileMapping()),
        lambda: made("redis.exceptions.ResponseError", Hostile),
        lambda: made("grpc.RpcError", code=Hostile, details=1),
        lambda: made("psycopg.OperationalError", sqlstate=5),
        lambda: with_attributes(errors=[Hostile(), HostileMapping()]),
        lambda: raised(RuntimeError(), cause=Unanswering()),
        lambda: group(Hostile(), Unanswering()),
    ],
)
def test_nothing_on_an_error_makes_classify_raise(make: Callable[[], BaseException]) -> None:
    assert isinstance(classify(make()).type, FailureType)


def test_one_property_that_raises_does_not_hide_the_next() -> None:
    class Half(Exception):
        code = 404

        @property
        def status_code(self) -> int:
            raise RuntimeError

    assert meaning(Half()) == "permanent"


def test_classes_made_on_the_fly_are_let_go() -> None:
    first = type("Made0", (Exception,), {})
    kept = weakref.ref(first)
    classify(first())
    del first
    for number in range(2_000):
        classify(type(f"Made{number}", (Exception,), {})())
    gc.collect()
    assert kept() is None


# ---------------------------------------------------------------- lightness
def test_classifying_loads_no_client_and_nothing_slow() -> None:
    clients = "httpx requests aiohttp botocore google grpc redis psycopg sqlalchemy urllib3 pydantic".split()
    slow = "asyncio ssl http.client email.utils sqlite3 apsw".split()
    code = (
        "import sys, holdfast.policy.classify as c; c.classify(ConnectionError());"
        f"print([name for name in {clients + slow} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
