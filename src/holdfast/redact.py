"""Secrets are left out of all that is shown: values by the names they go under, and in text what looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.fingerprint import in_a_line, message_of, name_of
from holdfast.secret_names import NAME_KEYS, STEMS, hidden_items, hidden_keys, hides, is_count, is_secret

__all__ = [
    "HIDDEN",
    "NAME_KEYS",
    "error_in_words",
    "hidden_items",
    "hidden_keys",
    "hides",
    "is_secret",
    "redacted",
    "redacted_text",
]

HIDDEN: Final = "[redacted]"
"""What stands in a secret's place."""

# What a secret looks like by itself. A pattern is tried only where one of its needles is in the text, begins where the
# one before cannot go on, and gives nothing back, so that hostile text takes time in proportion to its length.
_SHAPES: Final = tuple(
    (needle, re.compile(pattern, re.DOTALL))
    for needles, pattern in (
        ("eyJ", r"eyJ(?<![\w\-]eyJ)[\w\-]{5,}+\.[\w\-]{2,}+(?:\.[\w\-]*+)?"),  # a JSON web token
        ("hf_", r"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9\-]{1,64}+_[\w\-]{16,}+"),
        ("AKIA ASIA", r"(?<!\w)(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)"),
        ("_live_ _test_", r"(?<![A-Za-z0-9])[a-z]{2,8}_(?:live|test)_[A-Za-z0-9]{12,}+"),
        ("ghp_ gho_ ghu_ ghs_ ghr_", r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{16,}+"),
        ("github_pat_ glpat-", r"(?:github_pat_|glpat-)[\w\-]{16,}+"),
        ("xox", r"xox(?<![A-Za-z0-9\-]xox)[abeprs]-[A-Za-z0-9\-]{10,}+"),
        ("sk-", r"sk-(?<![\w\-]sk-)[\w\-]{20,}+"),
        ("AIza", r"AIza(?<![\w\-]AIza)[\w\-]{35}"),
        ("hooks.slack.com/", r"(?<=hooks\.slack\.com/services/)[\w/]++"),
        (
            "PRIVATE",
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----(?:(?!-----).)*+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----)?",
        ),
    )
    for needle in needles.split()
)
_SHORTEST_SHAPE: Final = 12
_BEARER: Final = re.compile(r"\b([Bb][Ee][Aa][Rr][Ee][Rr])(\s{1,3})[A-Za-z0-9+/_.~\-]{8,}+=*")

_USER: Final = re.compile(r"[^\s/?#:@\"'<>]{0,4096}+")
_HARMLESS_USERS: Final = frozenset({"", "git", HIDDEN})
_END_OF_URL: Final = re.compile(r"[\s<>]|[\"'](?=[\s,:;)\]}]|\Z)")
_LONGEST_LOGIN: Final = 4096

_LONGEST_NAME: Final = 100
_QUOTE: Final = r"\\{0,7}[\"']"
_REST_OF_NAME: Final = re.compile(r"[\w.\-]*+")
_SEPARATOR: Final = re.compile(rf"(?:{_QUOTE})?\s{{0,3}}(?:=>|:=|->|!=|={{1,3}}|:)\s{{0,3}}")
_VALUE_OF_NAME: Final = re.compile(  # {"name": "DB_PASSWORD", "value": …
    rf"{_QUOTE}\s{{0,3}},\s{{0,3}}{_QUOTE}[Vv]alue{_QUOTE}\s{{0,3}}:\s{{0,3}}"
)
_NEXT_ITEM: Final = re.compile(rf"{_QUOTE}\s{{0,3}},\s{{0,3}}(?={_QUOTE}|[A-Za-z]{{1,2}}[\"'])")
_NEXT_WORD: Final = re.compile(r"\s{1,3}(?=[^\s\-])")
_ASSIGNED: Final = re.compile(r"\s{1,3}=\s{1,3}")  # after an annotation, in a line of source code

_BEFORE_VALUE: Final = re.compile(
    r"(?:[|>][+\-]?[ \t]{0,8}\r?\n\s{0,16})?(?:(?:bearer|basic|digest|token|apikey|negotiate|ntlm)\s{1,3})?",
    re.IGNORECASE,
)
_QUOTED: Final = re.compile(r"[A-Za-z]{0,2}(\"\"\"|'''|\\{0,7}[\"'])(?:(?!\1)(?:\\.|[^\\]))*+(?:\1|\\?\Z)", re.DOTALL)
_OPENING: Final = re.compile(r"[\w.]{0,60}+[(\[{]")
_BRACKETS: Final = re.compile(r"\\.|\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|([(\[{])|([)\]}])", re.DOTALL)
_PLAIN: Final = re.compile(r"(?:[^\s&;\"']|[\"'](?![\s,:;)\]}]|\Z))++")
_HEADER: Final = re.compile(r"(?:=\\?\"[^\"\r\n]*+\"|='[^'\r\n]*+'|[^\r\n\"'])++")
_HEADERS: Final = re.compile(r"authorization|cookie", re.IGNORECASE)
_XML: Final = re.compile(r">([^<]++)")
_EMPTY: Final = frozenset({"", '""', "''", r"\"\"", r"\'\'", "None", "null", HIDDEN, f'"{HIDDEN}"', f"'{HIDDEN}'"})
_NUMBER: Final = re.compile(r"[\d.,_]+")


def redacted(value: Any) -> Any:
    """The same JSON value without its secrets, however deep they are. Under a secret's name null and "" stay."""
    if isinstance(value, Mapping):
        keys = hidden_keys(value)
        return {
            redacted_text(key) if isinstance(key, str) else key: HIDDEN if key in keys else redacted(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        items = hidden_items(value)
        return [HIDDEN if i in items else redacted(one) for i, one in enumerate(value)]
    return redacted_text(value) if isinstance(value, str) else value


def redacted_text(text: str) -> str:
    """The same text without what looks like a secret: logins in URLs, `password=…`, bearer tokens, private keys."""
    if len(text) >= _SHORTEST_SHAPE:
        for needle, pattern in _SHAPES:
            if needle in text:
                text = pattern.sub(HIDDEN, text)
    if "@" in text and "://" in text:
        text = "".join(_without_logins(text))
    # Between a name and its value is one of these; most texts of arguments have none.
    has_value = "=" in text or ":" in text or "," in text or ">" in text or "--" in text
    if not has_value and len(text) < _SHORTEST_SHAPE:
        return text
    lower = text.replace("İ", "i").lower()  # the one letter that is longer in lower case
    if has_value:
        text = "".join(_without_named(text, lower))
    return _BEARER.sub(rf"\1\2{HIDDEN}", text) if "bearer" in lower else text


def error_in_words(error: BaseException, most: int = 500) -> str:
    """An error's name and message on one line of at most so many characters, without what looks like a secret."""
    text = message_of(error)
    line = in_a_line(redacted_text(f"{name_of(type(error))}: {text}" if text else name_of(type(error))))
    return line if len(line) <= most else line[: most - 1] + "…"


def _without_logins(text: str) -> Iterator[str]:
    """Of each URL all before the last @ but the user's name, or the user's name where there is no password."""
    kept, at, end = 0, 0, -1
    while (start := text.find("://", at)) >= 0:
        last = text.find("@", start)
        if last < 0:
            break
        if last - start > _LONGEST_LOGIN:
            at = max(start + 3, last - _LONGEST_LOGIN)
            continue
        user = _USER.match(text, start + 3)
        at = start + 3 if user is None else user.end()
        follows = text[at : at + 1]
        if follows == "@" and user is not None and user[0] not in _HARMLESS_USERS:
            yield text[kept : start + 3]
            yield HIDDEN
            kept = at
        elif follows == ":":
            if end < at:  # else it is known from the URL before, in the same run of characters
                found = _END_OF_URL.search(text, at)
                end = len(text) if found is None else found.start()
            last = text.rfind("@", at, min(end, at + _LONGEST_LOGIN))
            if last > at + 1:
                yield text[kept : at + 1]
                yield HIDDEN
                kept = at = last
    yield text[kept:]


def _without_named(text: str, lower: str) -> Iterator[str]:
    kept = 0
    for start, end in _names(text, lower):
        if start < kept:
            continue  # part of a value that is left out already
        for before, value_end, quote in _values(text, start, end):
            yield text[kept:before]
            yield f"{quote}{HIDDEN}{quote}"
            kept = value_end
    yield text[kept:]


def _names(text: str, lower: str) -> Iterator[tuple[int, int]]:
    """Where the names of secrets are, in their order; each run of a name's characters is looked at once."""
    places = {stem: place for stem in STEMS if (place := lower.find(stem)) >= 0}
    at = 0
    while places:
        stem = min(places, key=places.__getitem__)
        place = places[stem]
        if place >= at:
            start = place
            while (
                start > at and place - start < _LONGEST_NAME and (text[start - 1].isalnum() or text[start - 1] in "_-.")
            ):
                start -= 1
            rest = _REST_OF_NAME.match(text, place)
            at = place + 1 if rest is None else rest.end()
            if at - start <= _LONGEST_NAME and is_secret(text[start:at]):
                yield start, at
        place = lower.find(stem, max(at, place + 1))
        if place < 0:
            del places[stem]
        else:
            places[stem] = place


def _values(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    """What goes under the name that is there: where each value begins and ends, and its quote."""
    name = text[start:end]
    if text[start - 1 : start] == "<" and (xml := _XML.match(text, end)):
        yield xml.start(1), xml.end(), ""
        return
    separator = _SEPARATOR.match(text, end) or _VALUE_OF_NAME.match(text, end)
    if separator is None and name.startswith("--"):
        separator = _NEXT_ITEM.match(text, end) or _NEXT_WORD.match(text, end)
    elif separator is None and text[max(0, start - 9) : start].rstrip("\\\"'")[-1:] in {"(", "["}:  # a pair
        separator = _NEXT_ITEM.match(text, end)
    while separator is not None:
        before = separator.end()
        value_end, quote = _value(text, before, name)
        value = text[before:value_end]
        if value in _EMPTY or (is_count(name) and _NUMBER.fullmatch(value)):
            return
        yield before, value_end, quote
        separator = _ASSIGNED.match(text, value_end)


def _value(text: str, at: int, name: str) -> tuple[int, str]:
    """Where a value ends, and the quote it is in if there is nothing else to it."""
    rest = _HEADER if _HEADERS.search(name) else _PLAIN
    if text.startswith(HIDDEN, at):  # a part of it was known by its shape
        after = at + len(HIDDEN)
        more = rest.match(text, after)
        return after if more is None else _trimmed(text, after, more.end()), ""
    before = _BEFORE_VALUE.match(text, at)
    begin = at if before is None else before.end()
    if quoted := _QUOTED.match(text, begin):
        is_bare = quoted.start(1) == at and text.endswith(quoted[1], at, quoted.end())
        return quoted.end(), quoted[1] if is_bare else ""
    if opening := _OPENING.match(text, begin):
        return _closing(text, opening.end() - 1), ""
    found = rest.match(text, begin)
    return at if found is None else _trimmed(text, at, found.end()), ""


def _closing(text: str, at: int) -> int:
    """The end of what is in brackets, or of the text where they are not closed."""
    depth = 0
    for token in _BRACKETS.finditer(text, at):
        depth += (token[1] is not None) - (token[2] is not None)
        if depth == 0 and token[2] is not None:
            return token.end()
    return len(text)


def _trimmed(text: str, start: int, end: int) -> int:
    """Without what belongs to the sentence around a value rather than to the value."""
    while end > start and text[end - 1] in " \t,.)]}":
        end -= 1
    return end
