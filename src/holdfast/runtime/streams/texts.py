"""What headers say in words: a bounded history of attempts, bounded texts, instants and offsets."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.runtime.run import storable
from holdfast.types import Attempt, Change, entry_offset, offset_text

HISTORY_BYTES: Final = 64 * 1024
"""What a message may carry along of its attempts: with more, it might not fit into its topic any longer."""

_TEXTS: Final = {
    "worker": 500,
    "error_name": 2_000,
    "message": 16_000,
    "traceback": 128_000,
    "fingerprint": 200,
    "breaker": 200,
}
"""The texts of an attempt, and how many bytes of each are taken from a header: no honest one has more."""
_MOST_NUMBER: Final = 1_000_000
_MOST_DELAY_S: Final = 1e10
_OUTCOMES: Final = frozenset(Change) - {Change.CLAIM, Change.CANCEL, Change.REPLAY, Change.REMOVE}
"""What an attempt can end in."""
_LEFT_OUT_BYTES: Final = 48
_OFFSET: Final = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")
_LAST_INSTANT: Final = 253_402_300_799.0  # in the year 9999

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[Attempt, ...]).decode


def history_of(attempts: Sequence[Attempt], limit: int = HISTORY_BYTES) -> bytes:
    """Attempts as JSON within so many bytes.

    The tracebacks between the first and the last attempt go first, oldest before newest, and then the oldest attempts
    as a whole. The last one stays, with its texts cut if it is too long by itself.
    """
    parts = [_attempt_json(one) for one in attempts]
    size = 1 + sum(map(len, parts)) + max(len(parts), 1)  # brackets, and the commas between
    for i in range(1, len(parts) - 1):
        if size <= limit:
            break
        shorter = _attempt_json(replace(attempts[i], traceback=""))
        size -= len(parts[i]) - len(shorter)
        parts[i] = shorter
    first = 0
    while size > limit and first < len(parts) - 1:
        size -= len(parts[first]) + 1
        first += 1
    if size > limit and parts:
        parts[-1] = _attempt_json(_cut(attempts[-1], limit))
        if 2 + len(parts[-1]) > limit:
            return b"[]"
    return b"[%b]" % b",".join(parts[first:])


def history_in(data: bytes | None) -> tuple[Attempt, ...]:
    """What `history_of` wrote; nothing of what is damaged, or of what no store could hold."""
    if data is None or len(data) > HISTORY_BYTES:
        return ()
    try:
        found = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    return tuple(map(bounded_attempt, found)) if all(map(_is_possible, found)) else ()


def _is_possible(attempt: Attempt) -> bool:
    """Whether an attempt may have been like this, whoever says so."""
    instants = 0.0 <= attempt.started_at <= _LAST_INSTANT and 0.0 <= attempt.ended_at <= _LAST_INSTANT
    delay = attempt.delay_s is None or 0.0 <= attempt.delay_s <= _MOST_DELAY_S
    return 1 <= attempt.number <= _MOST_NUMBER and instants and delay and attempt.outcome in _OUTCOMES


def bounded_attempt(attempt: Attempt) -> Attempt:
    """The attempt with texts that every store can hold, none longer than its bound."""
    texts = {name: bounded_text(getattr(attempt, name), most) for name, most in _TEXTS.items()}
    severity = attempt.severity
    if attempt.failure_type is None:
        severity = None
    elif severity is None:
        severity = attempt.failure_type.severity
    number = min(max(attempt.number, 1), _MOST_NUMBER)
    return replace(attempt, number=number, severity=severity, **texts)


def _attempt_json(attempt: Attempt) -> bytes:
    try:
        return _encode(attempt)
    except UnicodeEncodeError:
        return _encode(storable_attempt(attempt))


def storable_attempt(attempt: Attempt) -> Attempt:
    """The attempt with texts that every store and every JSON can hold."""
    return replace(attempt, **{name: storable(getattr(attempt, name)) for name in _TEXTS})


def _cut(attempt: Attempt, limit: int) -> Attempt:
    """With texts that fit into so many bytes as JSON, where one byte of a text may take six."""
    room = limit // 12
    shares = {"traceback": room, "message": room // 2, "error_name": room // 8}
    return replace(
        attempt, **{name: bounded_text(getattr(attempt, name), shares.get(name, room // 32)) for name in _TEXTS}
    )


def bounded_text(text: str, most: int) -> str:
    """A text of so many bytes at most: of a longer one the beginning and, as the cause is there, more of the end."""
    text = storable(text)
    data = text.encode()
    if len(data) <= most:
        return text
    room = most - _LEFT_OUT_BYTES
    if room <= 0:
        return data[: max(most, 0)].decode(errors="ignore")
    head = data[: room // 4].decode(errors="ignore")
    tail = data[len(data) - (room - room // 4) :].decode(errors="ignore")
    return f"{head}\n… {len(data) - room:,} bytes left out …\n{tail}"


def finite(seconds: float) -> float:
    """The number, or 0 where it is none that JSON has: it would not come back."""
    return seconds if math.isfinite(seconds) else 0.0


def instant_text(at: float) -> str:
    """An instant for people and other programs: ISO 8601, UTC, to the millisecond."""
    at = min(max(finite(at), 0.0), _LAST_INSTANT)
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def instant_of(text: str) -> float:
    """The instant that `instant_text` wrote; ValueError for what is none."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError(f"{text[:60]!r} has no time zone")
    return instant.timestamp()


def offset_of(text: str) -> int:
    """The offset that `offset_text` wrote; ValueError for any other text."""
    if _OFFSET.fullmatch(text):
        offset = entry_offset(text) if "-" in text else int(text)
        if offset_text(offset) == text:
            return offset
    raise ValueError(f"{text[:60]!r} is no offset")
