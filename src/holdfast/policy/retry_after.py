"""When the other side wants to be asked again, read from its headers. Pure, and never raises.

Retry-After, retry-after-ms, x-ms-retry-after-ms, grpc-retry-pushback-ms     said outright: always honoured
RateLimit, RateLimit-Reset, X-RateLimit-Reset, X-Rate-Limit-Reset,           when a limit ends: honoured when it is
X-RateLimit-Reset-After, x-ratelimit-reset-requests, -tokens                 used up, or the status is 429
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from holdfast.policy.foreign import quietly

LONGEST_S = 86_400.0
"""Nobody is made to wait longer than a day by a header."""

_HEADERS_READ = 256
_TOO_MANY_REQUESTS = 429
_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms", "grpc-retry-pushback-ms", "retry-pushback-ms")
_RESETS = {
    "ratelimit-reset": "ratelimit-remaining",
    "x-ratelimit-reset": "x-ratelimit-remaining",
    "x-rate-limit-reset": "x-rate-limit-remaining",
    "x-ratelimit-reset-after": "x-ratelimit-remaining",
    "x-ratelimit-reset-requests": "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-tokens": "x-ratelimit-remaining-tokens",
}
_NUMBER = re.compile(r"[+-]?[0-9]{1,300}(\.[0-9]{0,300})?")
_PART = r"([0-9]{1,300}+(?:\.[0-9]{1,300}+)?+)(ms|us|µs|ns|s|m|h|d)"
_DURATION = re.compile(_PART)
_DURATIONS = re.compile(f"(?:{_PART})++")  # no place is tried twice: others write this text, at any length
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_IETF_FIELD = re.compile(r"\b(r|remaining|t|reset)\s*=\s*([0-9]{1,20})")
_SMALLEST_EPOCH_S = 1e9  # 2001; as a length it would be 31 years
_SMALLEST_EPOCH_MS = 1e11  # 1973 in milliseconds; as seconds it would be the year 5138


def retry_after(headers: object, status: int | None = None, *, now: float) -> float | None:
    """Seconds to wait, between 0 and a day; None when the headers do not say.

    `headers` may be a mapping, pairs, or nothing of the kind. Instants are measured from the response's own Date, so
    a wrong clock on either side does not matter; `now` stands in where there is none.
    """
    read = read_headers(headers)
    return bounded(_said(read, status, now)) if read else None


def tells_limit(headers: object) -> bool:
    """Whether the headers speak of a used-up limit: some remaining count is 0, or a wait is asked for."""
    read = read_headers(headers)
    return "retry-after" in read or any(remaining == 0 for remaining, _ in _limits(read, 0.0))


def bounded(seconds: float | None) -> float | None:
    """The wait within 0 and a day; None for what is no number."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_S)


def seconds_of(text: str) -> float | None:
    """A length: a plain number is seconds, and "1h", "6m0s", "12ms", "1.5s" are what they say."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    if not _DURATIONS.fullmatch(text):
        return None
    return sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(text))


def read_headers(headers: object) -> dict[str, str]:
    """The headers with lower-case names, whatever holds them; of a repeated one, the first."""
    return {} if headers is None else quietly(_read, headers) or {}


def _read(headers: object) -> dict[str, str]:
    read: dict[str, str] = {}
    for name, value in islice(_pairs(headers), _HEADERS_READ):
        read.setdefault(_text(name).lower(), _text(value))
    return read


def _pairs(headers: Any) -> Iterable[tuple[object, object]]:
    return headers.items() if hasattr(headers, "items") else headers  # type: ignore[no-any-return]


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _said(headers: dict[str, str], status: int | None, now: float) -> float | None:
    for name in _MILLISECONDS:
        wait = seconds_of(headers.get(name, ""))
        if wait is not None:
            return None if wait < 0 and "pushback" in name else wait / 1_000  # pushback -1: do not ask again
    now = _instant(headers.get("date", "")) or now
    wanted = headers.get("retry-after", "")
    wait = seconds_of(wanted)
    if wait is None and (instant := _instant(wanted)) is not None:
        wait = instant - now
    return _until_reset(headers, status, now) if wait is None else wait


def _until_reset(headers: dict[str, str], status: int | None, now: float) -> float | None:
    """The longest wait among the limits that are used up; among all of them, if a 429 does not say which."""
    limits = list(_limits(headers, now))
    waits = [wait for remaining, wait in limits if remaining == 0]
    if not waits and status == _TOO_MANY_REQUESTS:
        waits = [wait for _, wait in limits]
    return max((wait for wait in waits if wait is not None), default=None)


def _limits(headers: dict[str, str], now: float) -> Iterator[tuple[float | None, float | None]]:
    """What remains of each limit, and the seconds until it is full again."""
    for reset, remaining in _RESETS.items():
        if reset in headers or remaining in headers:
            yield seconds_of(headers.get(remaining, "")), _until(headers.get(reset, ""), now)
    for policy in _policies(headers.get("ratelimit", "")):
        fields = {name: float(value) for name, value in _IETF_FIELD.findall(policy)}
        if fields:
            yield fields.get("r", fields.get("remaining")), fields.get("t", fields.get("reset"))


def _policies(text: str) -> list[str]:
    """The limits in a RateLimit header: `"burst";r=0;t=5, "day";r=9;t=80`; or the one of `remaining=0, reset=5`."""
    return text.split(",") if ";" in text else [text]


def _until(text: str, now: float) -> float | None:
    """Until a reset: an instant in seconds or milliseconds since 1970, or a length; told apart by size."""
    value = seconds_of(text)
    if value is None or value < _SMALLEST_EPOCH_S:
        return value
    return (value / 1_000 if value >= _SMALLEST_EPOCH_MS else value) - now


def _instant(text: str) -> float | None:
    return quietly(_parse_date, text) if text else None


def _parse_date(text: str) -> float:
    """An HTTP date in any of its three forms; one without a zone is in UTC. Raises on anything else."""
    from datetime import UTC  # noqa: PLC0415 - both are slow to import, and dates are rare
    from email.utils import parsedate_to_datetime  # noqa: PLC0415

    instant = parsedate_to_datetime(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
