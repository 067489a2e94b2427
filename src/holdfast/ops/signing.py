"""Signed notices: what a webhook sends with a body, and how its receiver makes sure of it."""

from __future__ import annotations

import hashlib
import hmac
import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast.clock import SystemClock
from holdfast.errors import ConfigError, Invalid
from holdfast.policy import bounds
from holdfast.policy.notices import KEEP_S, Notice
from holdfast.ports import Clock

ID: Final = "Holdfast-Id"
TIMESTAMP: Final = "Holdfast-Timestamp"
SIGNATURE: Final = "Holdfast-Signature"
TOLERANCE_S: Final = 300.0
"""How far a timestamp may be from the receiver's clock."""

_VERSION: Final = "v1="
_SHORTEST: Final = 16
_MOST: Final = 8
_decode = msgspec.json.Decoder(Notice).decode


def checked_secret(secret: object) -> bytes:
    """The key; ConfigError where it is too short to be one."""
    key = secret.encode() if isinstance(secret, str) else secret
    if not isinstance(key, bytes) or len(key) < _SHORTEST:
        raise ConfigError(f"secret: must be text or bytes of at least {_SHORTEST}, made by chance")
    return key


def headers_for(id: str, body: bytes, key: bytes, now: float) -> dict[str, str]:  # noqa: A002
    """The headers that prove where a body comes from, and when it was sent."""
    timestamp = str(int(now))
    return {ID: id, TIMESTAMP: timestamp, SIGNATURE: _VERSION + _signature(id, timestamp, body, key)}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secret: str | bytes | Sequence[str | bytes],
    now: float | None = None,
    *,
    tolerance_s: float = TOLERANCE_S,
) -> Notice:
    """The notice of a request, or Invalid where it was not signed with the secret, or was sent too long ago.

    secret: the webhook's; several while one is replaced by another. now: seconds since 1970 [the machine's clock].
    A notice may come more than once, and within the tolerance somebody may send it again: `Seen` tells by its id.
    """
    keys = [checked_secret(one) for one in ([secret] if isinstance(secret, str | bytes) else secret)]
    if not keys:
        raise ConfigError("secret: must be at least one")
    bounds.length("tolerance_s", tolerance_s, above=0.0)
    given = {str(name).lower(): value for name, value in headers.items()}
    id_, timestamp, signatures = (given.get(name.lower(), "") for name in (ID, TIMESTAMP, SIGNATURE))
    right = [_signature(id_, timestamp, body, key) for key in keys]
    found = [one.removeprefix(_VERSION) for one in signatures.replace(" ", "").split(",") if one.startswith(_VERSION)]
    # Every pair is compared, so that the time taken does not tell how close a guess was.
    matches = [hmac.compare_digest(a.encode(), b.encode("utf-8", "replace")) for a in right for b in found[:_MOST]]
    if not any(matches):
        raise Invalid("the signature is missing or wrong")
    at = float(timestamp) if timestamp.isascii() and timestamp.isdecimal() else math.nan
    if not abs((SystemClock.now() if now is None else now) - at) <= tolerance_s:
        raise Invalid("the timestamp is too old, or ahead of time")
    try:
        notice = _decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid("the body is no notice") from error
    if notice.id != id_:
        raise Invalid("the body is that of another id")
    return notice


class Seen:
    """The ids that have come already: a receiver's memory, for one process.

    Ids are kept for longer than a notice is sent again and again, and for as long as signatures hold after that: twice
    the tolerance, as clocks may be off to both sides. One that comes again is kept for as long anew.
    """

    def __init__(self, *, tolerance_s: float = TOLERANCE_S, clock: Clock | None = None) -> None:
        self._keep_s = KEEP_S + 2 * bounds.length("tolerance_s", tolerance_s, above=0.0)
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._ids: OrderedDict[str, float] = OrderedDict()

    def is_new(self, id: str) -> bool:  # noqa: A002
        """Whether this id has not come before; from now on it has."""
        now_s = self._clock.monotonic()
        with self._lock:
            while self._ids and next(iter(self._ids.values())) + self._keep_s < now_s:
                self._ids.popitem(last=False)
            is_new = self._ids.pop(id, None) is None
            self._ids[id] = now_s
            return is_new


def _signature(id: str, timestamp: str, body: bytes, key: bytes) -> str:  # noqa: A002
    head = f"{id}.{timestamp}.".encode("utf-8", "surrogatepass")
    return hmac.new(key, head + body, hashlib.sha256).hexdigest()
