"""Globs over URLs, made into one regular expression each.

`https://example.org/shop/*` is a whole URL, `*.example.org` a host with all that it has, `/shop/**` a path on any host.
`*` stands for anything within one segment of the path, label of the host or parameter of the query; `**` for anything
within the path (host, query), and `/**/` also for a single `/`. A pattern without `?` matches whatever the query is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from holdfast.crawl.urls import LONGEST, canonical, domain_of, escaped
from holdfast.errors import ConfigError

_SCHEMES: Final = {"http": "http://", "https": "https://", "*": "https?://"}
_PORTS: Final = {"http": ":80", "https": ":443"}
_FILES: Final = frozenset(
    """
    avi css csv doc docx exe gif gz htm html ico jpeg jpg js json mov mp3 mp4 pdf php png ppt pptx rar rss svg tar txt
    webp xls xlsx xml zip
    """.split()
)
_is_host = re.compile(r"[a-z0-9_.*:\[\]-]+").fullmatch
_is_file = re.compile(r"\*+\.([a-z0-9]+)").fullmatch
_has_space = re.compile(r"[\x00-\x20\x7f\\#]").search
_wildcards = re.compile(r"(\*\*?)")


class Pattern:
    """A glob over canonical URLs; what cannot match any is refused with ConfigError, which names the `field`."""

    __slots__ = ("_match", "has_host", "has_path", "regex", "text")

    def __init__(self, text: str, *, field: str = "pattern") -> None:
        self.text = text
        refusal = _refusal(text)
        if refusal:
            raise ConfigError(f"{field}={text!r}: {refusal}")
        try:
            scheme, host, rest = _parts(text)
            self.regex = _SCHEMES[scheme] + _host_regex(host, scheme) + _rest_regex(rest)
        except ValueError as error:
            raise ConfigError(f"{field}={text!r}: {error}") from None
        is_every = text == "**"
        if is_every:
            self.regex = ".*"
        self.has_host = bool(host)
        self.has_path = bool(rest) or is_every
        self._match = re.compile(self.regex).fullmatch

    def matches(self, url: str) -> bool:
        """Whether a canonical URL is one of those meant."""
        return self._match(url) is not None

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Pattern) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


def any_of(patterns: Iterable[Pattern]) -> Callable[[str], object] | None:
    """One question for all of them, whose answer is true where any matches; None where there are none."""
    regexes = [f"(?:{one.regex})" for one in patterns]
    return re.compile("|".join(regexes)).fullmatch if regexes else None


def _refusal(text: object) -> str:
    if not isinstance(text, str) or not text or len(text) > LONGEST:
        return f"must be a text of 1 to {LONGEST} characters, such as https://example.org/**"
    if _has_space(text):
        return "must be without white space, backslashes and #, which no URL of a page has"
    if "***" in text:
        return "there is * (within a segment) and ** (anything), but no ***"
    if text == "*":
        return "write ** for every URL"
    if (file := _is_file(text.lower())) and file[1] in _FILES:
        return f"names hosts; the files of that name are /**.{file[1]}"
    return ""


def _parts(text: str) -> tuple[str, str, str]:
    """Scheme, host ("" for any) and what follows it."""
    if text.startswith("/"):
        return "*", "", text
    if text.startswith("**/"):
        return "*", "", f"/{text}"
    before, separator, place = text.partition("://")
    if not separator or "/" in before:
        scheme, place = "*", text
    else:
        scheme = before.lower()
    if scheme not in _SCHEMES:
        raise ValueError("must begin with http://, https:// or *://, with a host or with /")
    host, slash, rest = place.partition("/")
    if not host:
        raise ValueError("there is no host between :// and /")
    return scheme, host, slash + rest


def _host_regex(text: str, scheme: str) -> str:
    if not text:
        return "[^/]+"
    host = ".".join(
        label if label.isascii() else _punycode(label) for label in text.lower().removesuffix(".").split(".")
    )
    host = host.removesuffix(_PORTS.get(scheme, ""))
    if not _is_host(host) or ".." in host.replace("**", "") or host.startswith("."):
        raise ValueError(f"{text!r} is no host; paths begin with / and queries stand behind one")
    return _glob(host, one="[^./:]", anything="[^/:]")


def _punycode(label: str) -> str:
    url = None if "*" in label else canonical(f"http://{label}/")
    if url is None:
        raise ValueError(f"the host label {label!r} cannot be in a URL")
    return domain_of(url)


def _rest_regex(text: str) -> str:
    if not text:
        return "/.*"
    path, has_query, query = escaped(text).partition("?")
    if any(segment in {".", ".."} for segment in path.split("/")):
        raise ValueError("no URL has the segments . and .. once it is resolved")
    regex = _glob(path, one="[^/?]", anything="[^?]", folder="/")
    if not has_query:
        return rf"{regex}(?:\?.*)?"
    return rf"{regex}\?{_glob(query, one='[^&]', anything='.')}"


def _glob(text: str, *, one: str, anything: str, folder: str = "") -> str:
    """The regular expression of a part of a URL, which is matched up to the part's end.

    Its time must not explode on a hostile URL, so no choice is tried twice. What follows a `*` is looked for from the
    left and the first place is kept (an atomic group): no match is lost by that as long as another wildcard follows.
    The same holds for each `**` with all up to the next one. Between two `folder`s, `**` is any number of segments.
    """
    tokens = _wildcards.split(text)
    blocks: list[str] = [re.escape(tokens[0])]
    starts: list[str] = [""]
    for before, wildcard, literal, at in zip(
        tokens[0::2], tokens[1::2], tokens[2::2], range(2, len(tokens), 2), strict=False
    ):
        if wildcard == "**":
            is_folders = bool(folder) and before.endswith(folder) and literal.startswith(folder)
            starts.append(f"(?<={folder})" if is_folders else "")
            blocks.append(re.escape(literal[1:] if is_folders else literal))
        elif at == len(tokens) - 1:
            blocks[-1] += f"{one}*{re.escape(literal)}"
        else:
            blocks[-1] += f"(?>{one}*?{re.escape(literal)})"
    regex = blocks[0]
    for start, block in zip(starts[1:-1], blocks[1:-1], strict=True):
        regex += f"(?>{anything}*?{start}{block})"
    return regex + (f"{anything}*{starts[-1]}{blocks[-1]}" if len(blocks) > 1 else "")
