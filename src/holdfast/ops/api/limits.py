"""How much one caller may ask for: requests in a time, and what a body may be."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from holdfast.policy.limiter import Rate, Starts

MAX_DEPTH: Final = 100
"""Levels of arrays and objects in a body."""
_MAX_KEYS: Final = 10_000
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS: Final = bytes(one for one in range(256) if one not in b"[]{}")


class Buckets:
    """Starts of each caller within a rate; those who have asked for nothing for the longest time are forgotten first.

    Whoever is forgotten starts anew: bounded memory is worth more than a limit held for ten thousand addresses.
    """

    def __init__(self, rate: Rate | None, max_keys: int = _MAX_KEYS) -> None:
        self._rate = rate
        self._max_keys = max_keys
        self._starts: OrderedDict[str, Starts] = OrderedDict()

    def __len__(self) -> int:
        return len(self._starts)

    def take(self, key: str, now: float) -> float:
        """Take one start and return zero, or the seconds until there is one."""
        if self._rate is None:
            return 0.0
        starts = self._starts.get(key)
        if starts is None:
            starts = self._starts[key] = Starts()
            if len(self._starts) > self._max_keys:
                self._starts.popitem(last=False)
        else:
            self._starts.move_to_end(key)
        return starts.take(self._rate, now)


def caller_key(address: str) -> str:
    """An address as it is limited: one of IPv6 by its network, since whoever has one has the 2^64 beside it."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))
    return str(found)


class BadBody(ValueError):
    """A body that is JSON to some and something else to others, or that cannot be kept as it is."""


def check_json(body: bytes) -> None:
    """Refuse what readers of JSON disagree about; what is no JSON at all is left to the route, which says where.

    Keys that are there twice, NaN and infinity, halves of a character, encodings other than UTF-8, and a nesting that
    would use up a reader's stack.
    """
    if _is_deep(body):
        raise BadBody(f"the body is nested more than {MAX_DEPTH} levels deep")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadBody("the body is not UTF-8") from None
    try:
        value = _decode(text)
    except json.JSONDecodeError:
        return
    except RecursionError:
        raise BadBody(f"the body is nested more than {MAX_DEPTH} levels deep") from None
    except BadBody:
        raise
    except ValueError:  # a whole number of thousands of digits
        raise BadBody("the body has a number that is too long") from None
    if "\\u" in text:
        _check_text(value)


def _is_deep(body: bytes) -> bool:
    """Whether it has too many levels; by whole passes over the body, since it may be a megabyte."""
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return False
    brackets = _TEXT.sub(b"", body).translate(_BRACKETS, _ALL_BUT_BRACKETS)
    for _ in range(MAX_DEPTH):
        fewer = brackets.replace(b"[]", b"")  # one level less: the innermost
        if len(fewer) == len(brackets):
            return brackets.count(b"[") > MAX_DEPTH  # none left, or they do not fit, and it is no JSON
        brackets = fewer
    return bool(brackets)


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadBody("the body has an object with one key twice")
    return found


def _constant(name: str) -> NoReturn:
    raise BadBody(f"the body has {name}, which is not JSON")


def _check_text(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadBody("the body has half of a surrogate pair") from None


_decode: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant).decode
