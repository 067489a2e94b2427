"""What one error says about itself: its codes, its HTTP status, the wait it asks for.

Each `by_…` function looks for one kind of evidence and gives None when there is none. They are asked in the order of
`GENERAL`, after those that fit the error's class alone (`FOR_CLASS`): error codes win over the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from holdfast.fingerprint import message_of
from holdfast.policy.foreign import answer, attribute
from holdfast.policy.known_codes import (
    AUTHENTICATION,
    AWS,
    CERTIFICATE,
    ERRNOS,
    GOOGLE_LIMITS,
    GRPC,
    NETWORK,
    PERMANENT,
    RATE_LIMITED,
    REDIS_REPLIES,
    SQLITE,
    SQLSTATES,
    SYSTEM,
    Finding,
    meaning_of_status,
)
from holdfast.policy.retry_after import bounded, retry_after, seconds_of, tells_limit
from holdfast.policy.retry_info import retry_delay_in
from holdfast.types import FailureType, Severity

Probe = Callable[[BaseException], Finding | None]

ATTRIBUTES = frozenset(
    "response resp headers status_code status http_status code errors details error_details reason sqlstate pgcode"
    " retry_after grpc_status_code trailing_metadata orig cause".split()
)
"""Every attribute that may matter here or in the chain; an error with none of them is known by its class alone."""

_FORBIDDEN = 403
_PARTS_READ = 32
_WRONG_PASSWORD = ("authentication failed", "no password supplied", "pg_hba.conf")
_UNREACHED = ("failed to connect to all addresses", "dns resolution failed", "errors resolving")
_BAD_CERTIFICATE = ("certificate_verify_failed", "certificate verify failed")


def wait_of(error: BaseException, now: Callable[[], float]) -> float | None:
    """The seconds an error asks to wait: an attribute `retry_after`, headers, gRPC metadata or Google's RetryInfo."""
    own = attribute(error, "retry_after")
    if isinstance(own, timedelta):
        return bounded(own.total_seconds())
    if isinstance(own, int | float) and not isinstance(own, bool):
        return bounded(own)
    if isinstance(own, str):  # a header's value, handed on as it came
        return retry_after({"Retry-After": own}, now=now())
    for headers in _headers_of(error):
        wait = retry_after(headers, status_of(error), now=now())
        if wait is not None:
            return wait
    return _retry_info(error)


def status_of(error: BaseException) -> int | None:
    """The HTTP status from 400 to 599 on the error or on its response."""
    response = _response_of(error)
    candidates = (
        *(attribute(error, name) for name in ("status_code", "status", "http_status", "code")),
        *(attribute(response, name) for name in ("status_code", "status")),
        _item(_item(response, "ResponseMetadata"), "HTTPStatusCode"),
    )
    return next((int(found) for found in candidates if isinstance(found, int) and 400 <= found <= 599), None)


def by_marker(error: BaseException) -> Finding | None:
    """The type that a ClassifiedError says of itself."""
    failure_type, severity = attribute(error, "failure_type"), attribute(error, "severity")
    if not isinstance(failure_type, FailureType):
        return None
    return Finding(failure_type, severity if isinstance(severity, Severity) else None)


def by_aws_code(error: BaseException) -> Finding | None:
    """Botocore's `response["Error"]["Code"]`."""
    code = _item(_item(attribute(error, "response"), "Error"), "Code")
    return AWS.get(code) if isinstance(code, str) else None


def by_google_reason(error: BaseException) -> Finding | None:
    """A used-up quota, told by the reasons in the body: Google sends 403 for it."""
    reasons = [attribute(error, "reason"), *(_item(part, "reason") for part in _google_parts(error))]
    return Finding(RATE_LIMITED) if any(isinstance(it, str) and it in GOOGLE_LIMITS for it in reasons) else None


def by_grpc_code(error: BaseException) -> Finding | None:
    """The status of a gRPC call that failed, or of the one that a google-api-core error stands for."""
    response = attribute(error, "response")
    call = error if response is None else response
    code = answer(call, "code") or (attribute(error, "grpc_status_code") if response is None else None)
    name = attribute(code, "name")
    if name == "UNAVAILABLE":
        return _by_grpc_words(call) or GRPC[name]
    return GRPC.get(name) if isinstance(name, str) else None


def _by_grpc_words(call: object) -> Finding | None:
    """UNAVAILABLE is the server's word and the library's own; only the text tells that nobody was reached."""
    words = answer(call, "details")
    words = words.lower() if isinstance(words, str) else ""
    if any(sign in words for sign in _BAD_CERTIFICATE):
        return CERTIFICATE
    return Finding(NETWORK) if words.startswith(_UNREACHED) else None


def by_sqlstate(error: BaseException) -> Finding | None:
    """The SQLSTATE that psycopg, asyncpg and psycopg2 carry."""
    state = attribute(error, "sqlstate") or attribute(error, "pgcode")
    return SQLSTATES.get(state) or SQLSTATES.get(state[:2]) if isinstance(state, str) else None


def by_libpq_words(error: BaseException) -> Finding | None:
    """Why no connection came about; libpq gives no SQLSTATE for that, only a text, English unless told otherwise."""
    if attribute(error, "sqlstate") is not None:
        return None
    words = message_of(error)
    if any(sign in words for sign in _WRONG_PASSWORD):
        return Finding(AUTHENTICATION)
    if any(sign in words for sign in _BAD_CERTIFICATE):
        return CERTIFICATE
    return Finding(PERMANENT) if "FATAL:  database" in words and "does not exist" in words else None


def by_lost_connection(error: BaseException) -> Finding | None:
    """Whether SQLAlchemy threw its connection away because of this error."""
    return Finding(SYSTEM) if attribute(error, "connection_invalidated") is True else None


def by_sqlite_code(error: BaseException) -> Finding | None:
    """The result code of SQLite, as sqlite3 and apsw carry it."""
    code = attribute(error, "sqlite_errorcode")
    code = attribute(error, "result") if code is None else code
    return SQLITE.get(code & 0xFF) if isinstance(code, int) else None


def by_redis_reply(error: BaseException) -> Finding | None:
    """The code at the head of an error reply of Redis."""
    return REDIS_REPLIES.get(message_of(error).partition(" ")[0])


def by_garbled_answer(error: BaseException) -> Finding | None:
    """An answer that aiohttp could not parse: it says 400, which the server never did."""
    cause = type(attribute(error, "__cause__"))
    return Finding(NETWORK) if cause.__module__ == "aiohttp.http_exceptions" else None


def by_errno(error: BaseException) -> Finding | None:
    """The operating system's error number."""
    number = attribute(error, "errno")
    return ERRNOS.get(number) if isinstance(number, int) else None


def by_status(error: BaseException) -> Finding | None:
    """The HTTP status; 403 with rate-limit headers that say so is a limit, as GitHub has it."""
    status = status_of(error)
    if status is None:
        return None
    if status == _FORBIDDEN and any(tells_limit(headers) for headers in _headers_of(error)):
        return Finding(RATE_LIMITED)
    return meaning_of_status(status)


GENERAL: tuple[Probe, ...] = (by_aws_code, by_google_reason, by_sqlstate, by_status)
FOR_CLASS: dict[str, tuple[Probe, ...]] = {
    "holdfast.errors.ClassifiedError": (by_marker,),
    "grpc.RpcError": (by_grpc_code,),
    "google.api_core.exceptions.GoogleAPICallError": (by_google_reason, by_grpc_code),
    "psycopg.OperationalError": (by_libpq_words,),
    "sqlalchemy.exc.DBAPIError": (by_lost_connection,),
    "sqlite3.Error": (by_sqlite_code,),
    "apsw.Error": (by_sqlite_code,),
    "redis.exceptions.ResponseError": (by_redis_reply,),
    "aiohttp.client_exceptions.ClientResponseError": (by_garbled_answer,),
}


def _response_of(error: BaseException) -> Any:
    response = attribute(error, "response")
    return attribute(error, "resp") if response is None else response  # resp: googleapiclient's name for it


def _headers_of(error: BaseException) -> list[object]:
    """Wherever headers may be: on the error, its response, botocore's dictionary, a gRPC call's trailing metadata."""
    response = _response_of(error)
    places = [attribute(error, "headers"), answer(error, "trailing_metadata")]
    if response is not None:
        places += [attribute(response, "headers"), answer(response, "trailing_metadata")]
        places += [_item(_item(response, "ResponseMetadata"), "HTTPHeaders")]
        places += [attribute(error, "resp")]  # httplib2's responses are dictionaries of headers
    return [headers for headers in places if headers is not None]


def _retry_info(error: BaseException) -> float | None:
    """Google's RetryInfo: as JSON, as a message of google-api-core, or packed into a gRPC call's metadata."""
    for part in _google_parts(error):
        delay = _item(part, "retryDelay")
        if isinstance(delay, str):
            return bounded(seconds_of(delay))
        duration = attribute(part, "retry_delay")
        seconds, nanos = attribute(duration, "seconds"), attribute(duration, "nanos")
        if isinstance(seconds, int) and isinstance(nanos, int):
            return bounded(seconds + nanos / 1e9)
    return bounded(retry_delay_in(answer(error, "trailing_metadata")))


def _google_parts(error: BaseException) -> Iterator[object]:
    """The parts of a Google error's body; googleapiclient keeps them under `error_details`."""
    for name in ("errors", "details", "error_details"):
        parts = attribute(error, name)
        if isinstance(parts, list | tuple):
            yield from parts[:_PARTS_READ]


def _item(thing: object, key: str) -> Any:
    return thing.get(key) if isinstance(thing, dict) else None
