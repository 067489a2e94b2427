"""Secrets are left out of all that is shown: values by the names they go under, and in text what looks like one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from holdfast.fingerprint import in_a_line, message_of, name_of

HIDDEN: Final = "[redacted]"
"""What stands in a secret's place."""

_SECRET: Final = re.compile(
    r"passw(or)?d|passphrase|passcode|(^|_)(pwd|pin|otp|cvv|cvc|auth|jwt|bearer|sid)($|_)|secret|token(?!s_|s$|ize)|api_?key"
    r"|access_?key|private_?key|signing_?key|encryption_?key|credential|authorization|cookie|session_?(id|key)"
    r"|card_?number|connection_?string|(^|_)dsn($|_)"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS: Final = re.compile(r"[\s.\-]+")

# Every repetition has a bound or gives nothing back, so that hostile text cannot make these slow.
_LOGIN: Final = re.compile(r"(://[^\s/?#:@\"'<>]{0,256}:)[^\s\"'<>]{1,512}@")
_NAME: Final = re.compile(r"(?<![\w.\-])([\w.\-]{1,100}+)\\?[\"']?\s{0,3}(?:=>|:=|[=:])\s{0,3}")
_VALUE: Final = re.compile(
    r"(?:(?:bearer|basic|digest|token)\s{1,3})?"
    r"(?:\[redacted\]|(\\?[\"'])(?:(?!\1)(?:\\.|[^\\])){0,4000}+(?:\1)?|[^\s,;&\"')}\]]{1,4000}+)",
    re.IGNORECASE | re.DOTALL,
)
_SCHEME: Final = re.compile(r"\b(bearer)(\s{1,3})[A-Za-z0-9+/_.~\-]{8,4000}+=*", re.IGNORECASE)
_SHAPED: Final = re.compile(
    r"\beyJ[\w\-]{5,4000}+\.[\w\-]{2,4000}+\.[\w\-]{0,4000}+"  # a JSON web token
    r"|\bhf_[A-Za-z0-9\-]{1,64}_[\w\-]{16,256}+"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,20000}+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
_EMPTY: Final = frozenset({"", '""', "''", "None", "null", HIDDEN, f'"{HIDDEN}"', f"'{HIDDEN}'"})


def is_secret(name: str) -> bool:
    """Whether what goes under this name is not to be shown: `password`, `apiKey`, `X-Auth-Token` and the like."""
    return _SECRET.search(_SEPARATORS.sub("_", _CAMEL.sub("_", name)).lower()) is not None


def redacted(value: Any) -> Any:
    """The same JSON value without its secrets, however deep they are. Under a secret's name null and "" stay."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_secret(str(key)) and one not in (None, "") else redacted(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(one) for one in value]
    return value


def redacted_text(text: str) -> str:
    """The same text without what looks like a secret: logins in URLs, `password=…`, bearer tokens, private keys."""
    text = _SHAPED.sub(HIDDEN, text)
    text = _LOGIN.sub(rf"\1{HIDDEN}@", text)
    return _SCHEME.sub(rf"\1\2{HIDDEN}", _without_named(text))


def error_in_words(error: BaseException, most: int = 500) -> str:
    """An error's name and message on one line of at most so many characters, without what looks like a secret."""
    text = message_of(error)
    line = in_a_line(redacted_text(f"{name_of(type(error))}: {text}" if text else name_of(type(error))))
    return line if len(line) <= most else line[: most - 1] + "…"


def _without_named(text: str) -> str:
    parts, at = [], 0
    for name in _NAME.finditer(text):
        if name.end() <= at or not is_secret(name[1]):
            continue  # part of a value that is left out already, or harmless
        value = _VALUE.match(text, name.end())
        if value is not None and value[0] not in _EMPTY:
            quote = value[1] or ""
            parts += [text[at : name.end()], quote, HIDDEN, quote]
            at = value.end()
    return "".join([*parts, text[at:]])
