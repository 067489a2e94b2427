"""Which names secrets go under, however they are spelt: `password`, `apiKey`, `X-Auth-Token`, `DB_PASS`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Of the words without what is between them, in lower case: passWord and pass_word are one name.
_ANYWHERE: Final = re.compile(
    r"(?<!by)pass(?:word|wort|wd|phrase|code)|secret(?!ar[yi])|token(?!i[zs])|credential|authorization|cookie"
    r"|(?:api|access|private|signing|encryption|ssh|master|account|hmac|licen[cs]e|session|shared|storage|webhook)"
    r"keys?(?!board)|sessionid|cardnumber|creditcard|connectionstring|mfacode"
)
_ONE_WORD: Final = frozenset("pw pwd pin otp totp cvv cvc auth hmac jwt bearer sid dsn".split())
_LAST_WORD: Final = re.compile(
    r"pass|sig|signatures?|(?:db|user|root|admin|my|mysql|pg|redis|smtp|mail|ftp|login)(?:pass|pwd?)"
)
_COUNTED: Final = re.compile(r"tokens|token(?:count|limit|budget)")
STEMS: Final = (
    "pass secret token credential auth cookie key session card conn mfa hmac pw pin otp cvv cvc jwt bearer sid dsn sig"
).split()
"""Every secret's name has one of these in it, in whatever case."""
_REMEMBERED: Final = 64
NAME_KEYS: Final = ("name", "key", "Name", "Key")
"""What stands under one of these says what the `value` beside it is."""
_VALUES: Final = ("value", "Value")
_PAIR: Final = 2
_ORIGIN: Final = frozenset({"kind", "group", "topic", "partition", "offset"})


def is_secret(name: str) -> bool:
    """Whether what goes under this name is not to be shown: `password`, `apiKey`, `X-Auth-Token` and the like."""
    return _known(name)[0] if len(name) <= _REMEMBERED else _look(name)[0]


def hides(name: str, value: Any) -> bool:
    """Whether this value is not to be shown under this name; null, "" and a count such as `max_tokens` may be."""
    if value is None or (isinstance(value, str) and value == ""):
        return False
    is_known, is_count = _known(name) if len(name) <= _REMEMBERED else _look(name)
    return is_known and not (is_count and isinstance(value, int | float))


def hidden_keys(value: Mapping[Any, Any]) -> frozenset[Any]:
    """The keys of an object whose values are not to be shown, with `value` where its `name` is a secret's.

    The key of a message says nothing of its value, whatever it looks like.
    """
    found = [key for key, one in value.items() if hides(str(key), one)]
    if _is_message(value):
        return frozenset(found)
    for name in NAME_KEYS:
        if isinstance(said := value.get(name), str) and is_secret(said):
            found += [key for key in _VALUES if key in value and hides(said, value[key])]
    return frozenset(found)


def _is_message(value: Mapping[Any, Any]) -> bool:
    """Whether this is the payload of a dead letter that is a message of a stream."""
    origin = value.get("origin")
    return isinstance(origin, Mapping) and origin.keys() == _ORIGIN and origin["kind"] == "message"


def hidden_items(value: Sequence[Any]) -> frozenset[int]:
    """The places of a list that are not to be shown: the second of `["X-Api-Key", …]`, what follows `--password`."""
    if len(value) == _PAIR and isinstance(value[0], str) and is_secret(value[0]) and hides(value[0], value[1]):
        return frozenset({1})
    return frozenset(
        i + 1
        for i, one in enumerate(value[:-1])
        if isinstance(one, str) and one.startswith("--") and "=" not in one and hides(one, value[i + 1])
    )


def is_count(name: str) -> bool:
    """Whether a number under this secret's name is a count: `max_tokens`."""
    return _look(name)[1]


def _look(name: str) -> tuple[bool, bool]:
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False, False
    joined = "".join(words)
    is_known = (
        _ANYWHERE.search(joined) is not None
        or not _ONE_WORD.isdisjoint(words)
        or _LAST_WORD.fullmatch(words[-1]) is not None
    )
    return is_known, is_known and _COUNTED.search(joined) is not None


_known = lru_cache(maxsize=2048)(_look)
