"""How much one caller may ask for: requests in a time, places at a time, and what a body may be."""

from __future__ import annotations

import ipaddress
import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, NoReturn

from holdfast.policy.limiter import Rate, Starts

MAX_DEPTH: Final = 100
"""Levels of arrays and objects in a body."""
_MAX_KEYS: Final = 10_000
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_BITS: Final = bytes.maketrans(b"[{]}", b"1100")
_ALL_BUT_BRACKETS: Final = bytes(one for one in range(256) if one not in b"[]{}")
_LONG_NUMBER: Final = re.compile(rb"[0-9]{4001}")


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


class Places:
    """What is under way at a time: so many of each caller, and so much of all together."""

    def __init__(self, *, each: int, all_together: int | None = None) -> None:
        self._each = each
        self._all = all_together
        self._taken: dict[str, int] = {}
        self._size = 0

    @contextmanager
    def taken(self, key: str, size: int = 1) -> Iterator[bool]:
        """Take a place for as long as the block lasts; False, and none is taken, where there is none left."""
        held = self._taken.get(key, 0)
        if held >= self._each or (self._all is not None and self._size + size > self._all):
            yield False
            return
        self._taken[key] = held + 1
        self._size += size
        try:
            yield True
        finally:
            self._size -= size
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


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
    bare = _TEXT.sub(b"", body)
    if _is_deep(bare):
        raise BadBody(f"the body is nested more than {MAX_DEPTH} levels deep")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadBody("the body is not UTF-8") from None
    has_escapes = "\\u" in text
    if not (has_escapes or b"{" in bare or b"N" in bare or b"I" in bare or _LONG_NUMBER.search(bare)):
        return  # nothing in it can mean two things, and building half a million lists takes long
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
    if has_escapes:
        _check_text(value)


def _is_deep(bare: bytes) -> bool:
    """Whether a body without its texts has too many levels; in one pass, eight brackets at a time."""
    brackets = bare.translate(_BITS, _ALL_BUT_BRACKETS)
    if brackets.count(b"1") <= MAX_DEPTH:
        return False
    brackets += b"0" * (-len(brackets) % 8)
    depth = 0
    for eight in int(brackets, 2).to_bytes(len(brackets) // 8, "big"):
        if depth > MAX_DEPTH - 8 and depth + _PEAKS[eight] > MAX_DEPTH:
            return True
        depth += _STEPS[eight]
    return False


def _steps(eight: int) -> tuple[int, int]:
    """How much deeper eight brackets lead in the end, and at most on the way."""
    depths = list(accumulate(1 if eight >> place & 1 else -1 for place in range(7, -1, -1)))
    return depths[-1], max(depths)


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
_STEPS, _PEAKS = zip(*map(_steps, range(256)), strict=True)
