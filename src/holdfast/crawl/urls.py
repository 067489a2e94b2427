"""URLs in one spelling each, so that a page is one job however it is linked to.

Read as browsers read them (the WHATWG URL standard: white space, backslashes, `//` and `///`), written as RFC 3986
wants them. Hosts that spell an address in a strange way (`0x7f000001`) stay as they are: what protects is the check of
the address that is really connected to.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv6Address
from typing import Final
from urllib.parse import quote, unquote

from holdfast.crawl.extras import wanted

LONGEST: Final = 2_000
"""A canonical URL of more characters is none."""

TRACKING: Final = frozenset(
    """
    _branch_match_id _ga _gl _hsenc _hsmi _kx _openstat dclid epik fbclid gad_campaignid gad_source gbraid gclid gclsrc
    hsctatracking igsh igshid irclickid li_fat_id mc_cid mc_eid mkt_tok ml_subscriber ml_subscriber_hash msclkid
    oly_anon_id oly_enc_id rb_clickid srsltid ttclid twclid vero_conv vero_id wbraid wickedid yclid ysclid
    """.split()
)
"""Query parameters that say where a visitor came from and nothing about the page; `utm_…` are the others."""

_LONGEST_GIVEN: Final = 4_096  # a fragment or tracking parameters may be dropped of a longer text than LONGEST
_LONGEST_HOST: Final = 253
_PORTS: Final = {"http": 80, "https": 443}
_HIGHEST_PORT: Final = 65_535
_TRIMMED: Final = "".join(map(chr, range(0x21)))
_BREAKS: Final = str.maketrans("", "", "\t\n\r")
_VARIANTS: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}

_UNRESERVED: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
# Escapes as they are written: those of unreserved characters decoded, all others with capitals.
_ESCAPES: Final = {
    f"%{high}{low}": chr(code) if chr(code) in _UNRESERVED else f"%{code:02X}"
    for high in "0123456789ABCDEFabcdef"
    for low in "0123456789ABCDEFabcdef"
    for code in [int(high + low, 16)]
}

# What needs nothing done to it. `_KEPT` is an escape that stays: in capitals, of a character that is not unreserved.
_IN_PATH: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/-]"
_IN_QUERY: Final = r"[A-Za-z0-9._~!$&'()*+,;=:@/?-]"
_KEPT: Final = r"%(?:[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[B-DF])"
_PLAIN_QUERY: Final = rf"(?:\?(?=.){_IN_QUERY}*(?:{_KEPT}{_IN_QUERY}*)*)?"
_REST: Final = rf"{_IN_PATH}*(?:{_KEPT}{_IN_PATH}*)*{_PLAIN_QUERY}"
_LABEL: Final = "[a-z0-9_-]{1,63}"
_NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_PLAIN_NAME: Final = rf"(?!xn--){_LABEL}(?:\.(?!xn--){_LABEL})*"
_PLAIN_PORT: Final = r"(?::(?!80/|443/)[1-9](?:[0-9]{0,3}|(?<=[1-5])[0-9]{4}))?"
_plain_url = re.compile(rf"https?://(?=[^/:]{{1,{_LONGEST_HOST}}}[/:]){_PLAIN_NAME}{_PLAIN_PORT}/{_REST}").fullmatch
_plain_path = re.compile(rf"/(?!/){_REST}").fullmatch
# A colon might end a scheme, and a dot might begin a dot segment.
_plain_relative = re.compile(rf"[A-Za-z0-9_~-][A-Za-z0-9._~!$&'()*+,;=@/-]*{_PLAIN_QUERY}").fullmatch

_is_host = re.compile(_NAME).fullmatch
_scheme_of = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):").match
_unsafe = re.compile(r"%(?:[0-9A-Fa-f]{2})?|[^A-Za-z0-9._~!$&'()*+,;=:@/?%-]+")
_TRACKED: Final = rf"(?:utm_|(?:{'|'.join(sorted(TRACKING))})(?=[=&]|\Z))"
_is_tracked = re.compile(_TRACKED, re.ASCII | re.IGNORECASE).match
_has_tracked = re.compile(f"[?&]{_TRACKED}", re.ASCII | re.IGNORECASE).search
_zeros = re.compile(r"\b0(?::0)+\b")


def canonical(url: str, base: str | None = None) -> str | None:
    """The absolute http or https URL in canonical form, or None where it is none or cannot be used.

    Canonical twice is canonical once. Refused are other schemes, a user name or password, hosts and ports that cannot
    be, and what is longer than LONGEST. Many links of one page are read quicker by Links.
    """
    if base is not None:
        return Links(base).canonical(url)
    if _plain_url(url) and "/." not in url and len(url) <= LONGEST and not _has_tracked(url):
        return url
    return _resolved(url, None)


def domain_of(url: str) -> str:
    """The domain of a canonical URL: its host, with the port if that is not the scheme's own."""
    return url.split("/", 3)[2]


def page_id(crawl: str, url: str) -> str:
    """The id of the job that is this page of this crawl: a UUID (version 8) made of both, the same for ever."""
    digest = blake2b(f"{crawl}\0{url}".encode(), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-8{digest[13:16]}-{_VARIANTS[digest[16]]}{digest[17:20]}-{digest[20:]}"


def item_id(page_id: str, index: int) -> str:
    """The id of a page's item, counted from 0: the same whenever the page is handled again."""
    return f"{page_id}-{index}"


class Links:
    """Reads the links of one page, whose address is taken apart once.

    With a base that is no http or https URL, only absolute links are read.
    """

    __slots__ = ("_base", "_folder", "_origin")

    def __init__(self, base: str) -> None:
        url = canonical(base)
        self._base = None if url is None else _Base(url)
        self._origin = None if self._base is None else self._base.origin
        self._folder = None if self._base is None else self._base.origin + self._base.folder

    def canonical(self, href: str) -> str | None:
        """The link in canonical form, or None: as `canonical(href, base)`."""
        start: str | None
        if href.startswith("/"):
            start, is_plain = self._origin, _plain_path(href)
        elif href.startswith("http"):
            start, is_plain = "", _plain_url(href)
        else:
            start, is_plain = self._folder, _plain_relative(href)
        if (
            is_plain
            and start is not None
            and "/." not in href
            and len(start) + len(href) <= LONGEST
            and not ("?" in href and _has_tracked(href))
        ):
            return start + href
        return _resolved(href, self._base)


class _Base:
    """A canonical URL, taken apart."""

    __slots__ = ("folder", "origin", "path", "query", "scheme")

    def __init__(self, url: str) -> None:
        before, _, self.query = url.partition("?")
        self.scheme, _, rest = before.partition("://")
        host, slash, path = rest.partition("/")
        self.origin = f"{self.scheme}://{host}"
        self.path = slash + path
        self.folder = self.path[: self.path.rindex("/") + 1]


def _resolved(href: str, base: _Base | None) -> str | None:
    if len(href) > _LONGEST_GIVEN:
        return None
    text = href.strip(_TRIMMED).translate(_BREAKS).partition("#")[0]
    before, has_query, query = text.partition("?")
    before = before.replace("\\", "/")
    scheme = base.scheme if base is not None else ""
    has_host = before.startswith("//")
    if found := _scheme_of(before):
        scheme, before = found[1].lower(), before[found.end() :]
        if scheme not in _PORTS:
            return None
        # `https:page` is relative on a page of that scheme, and a host elsewhere.
        has_host = before.startswith("//") or base is None or base.scheme != scheme
    elif base is None:
        return None
    try:
        if has_host:
            authority, slash, path = before.lstrip("/").partition("/")
            netloc = _netloc(authority, scheme)
            if netloc is None:
                return None
            origin, path = f"{scheme}://{netloc}", slash + path
        else:
            assert base is not None  # noqa: S101 - for the type checker
            origin = base.origin
            if not before:
                path, query = base.path, query if has_query else base.query
            else:
                path = before if before.startswith("/") else base.folder + before
        url = origin + _without_dots(escaped(path))
        if query := _without_tracking(escaped(query)):
            url = f"{url}?{query}"
    except ValueError:  # a lone surrogate, or a host that is no name and no address
        return None
    return url if len(url) <= LONGEST else None


def _netloc(authority: str, scheme: str) -> str | None:
    if "@" in authority or len(authority) > LONGEST:
        return None
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    name = _ipv6(host) if host.startswith("[") else _host(host)
    if name is None or not port:
        return name
    digits = port.lstrip("0")
    if not (port.isascii() and port.isdigit()) or not 1 <= len(digits) <= len(str(_HIGHEST_PORT)):
        return None
    number = int(digits)
    if number > _HIGHEST_PORT:
        return None
    return name if number == _PORTS[scheme] else f"{name}:{number}"


def _host(text: str) -> str | None:
    if "%" in text:
        text = unquote(text, errors="strict")
    if not text.isascii():
        if len(text) > _LONGEST_HOST:
            return None
        text = _punycode(text)
    name = text.lower().removesuffix(".")
    if len(name) > _LONGEST_HOST or not _is_host(name) or ("xn--" in name and not _is_readable(name)):
        return None
    return name


@lru_cache(maxsize=1024)
def _is_readable(name: str) -> bool:
    """Whether its labels in Punycode stand for something. No browser opens others, and not every library reads them."""
    with wanted():
        import idna  # noqa: PLC0415 - few hosts need it
    try:
        idna.decode(name)
    except UnicodeError:
        try:
            name.encode("ascii").decode("idna")  # as below
        except UnicodeError:
            return False
    return True


@lru_cache(maxsize=1024)
def _punycode(text: str) -> str:
    with wanted():
        import idna  # noqa: PLC0415 - few hosts need it
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except UnicodeError:
        # IDNA 2008 has no symbols such as emoji; browsers open such hosts all the same.
        return text.encode("idna").decode("ascii")


def _ipv6(text: str) -> str | None:
    if not text.endswith("]") or "%" in text:
        return None
    packed = IPv6Address(text[1:-1]).packed
    # Not str(): Python 3.13 writes mapped IPv4 addresses in another way than 3.12, and ids must not change.
    groups = ":".join(f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2))
    if longest := max(_zeros.finditer(groups), key=lambda run: len(run[0]), default=None):
        groups = f"{groups[: longest.start()].rstrip(':')}::{groups[longest.end() :].lstrip(':')}"
    return f"[{groups}]"


def escaped(text: str) -> str:
    """A path or query in one spelling: what must be is percent-encoded, and what need not be is not."""
    return _unsafe.sub(_as_written, text)


def _as_written(found: re.Match[str]) -> str:
    text = found[0]
    if text.startswith("%"):
        return _ESCAPES.get(text, "%25")
    return quote(text)


def _without_dots(path: str) -> str:
    if "/." not in path:
        return path or "/"
    kept: list[str] = []
    segments = path[1:].split("/")
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments[-1] in {".", ".."}:
        kept.append("")
    return "/" + "/".join(kept)


def _without_tracking(query: str) -> str:
    if not _has_tracked(f"?{query}"):
        return query
    return "&".join(part for part in query.split("&") if not _is_tracked(part))
