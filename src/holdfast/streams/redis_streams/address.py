"""Where a stream is: from a URL to a server, a stream and its options."""

from __future__ import annotations

import inspect
import re
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct
from redis import ConnectionPool, RedisError, SSLConnection

from holdfast.errors import ConfigError

_FORM: Final = "redis://user:password@host:port/stream?db=0&shards=1"
_ESCAPES: Final = "in a user name or password write %2F for /, %3F for ?, %23 for #, %40 for @ and %25 for %"
_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")
_GROUP: Final = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,@]*)(:\d{0,5})?")
_OF_STREAM: Final = ("shards", "field", "max_entries", "claim_after", "handover")
_OURS: Final = ("db", *_OF_STREAM, "stream", "client_name")


class Address(Struct, frozen=True, kw_only=True):
    """A stream, and the server that it is on."""

    url: str
    """As redis-py reads it, with the database."""
    location: str
    """For people, without the password."""
    stream: str
    options: dict[str, str]
    """Those of the stream and its consumers, not of the server: shards, field, max_entries, claim_after, handover."""


def address_of(url: str) -> Address:
    """What a URL says; ConfigError, in one line and without a password, where it cannot be read."""
    try:
        parts = urlsplit(url)
        has_form = parts.scheme in {"redis", "rediss", "unix"} and "://" in url and not parts.fragment
    except ValueError:
        has_form = False
    if not has_form or (parts.scheme != "unix" and not _HOST.fullmatch(parts.netloc.rpartition("@")[2])):
        raise ConfigError(f"url: must be one such as {_FORM}; {_ESCAPES}")
    options = _options(parts)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.scheme == "unix":
        stream = options.pop("stream", "")
        place, path = f"{place}{parts.path}?stream=", parts.path
    else:
        if "stream" in options:
            raise ConfigError("url: the option stream is for unix:// alone; write redis://host/stream")
        stream = unquote(parts.path[1:])
        place, path = f"{place}/", f"/{options.get('db', '0')}"
    if not _NAME.fullmatch(stream) or "/" in stream:
        raise ConfigError(f"url: names no stream; it must be one such as {_FORM}, or unix:///redis.sock?stream=orders")
    if not options.get("db", "0").isdecimal():
        raise ConfigError(f"url: db={options['db']!r} must be a number, as in ?db=0")
    own: dict[str, str] = {name: options.pop(name) for name in _OF_STREAM if name in options}
    if parts.scheme != "unix":
        options.pop("db", None)
    query = urlencode(options, safe="/", quote_via=quote)
    redis_url = f"{parts.scheme}://{parts.netloc}{path}" + (f"?{query}" if query else "")
    try:
        ConnectionPool.from_url(redis_url)
    except (ValueError, TypeError, RedisError):
        raise ConfigError(f"url: cannot be read; it must be one such as {_FORM}; {_ESCAPES}") from None
    return Address(url=redis_url, location=f"{place}{stream}", stream=stream, options=own)


def _options(parts: SplitResult) -> dict[str, str]:
    pairs: list[tuple[str, Any]] = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs) or len(pairs) < len([one for one in parts.query.split("&") if one]):
        raise ConfigError("url: what follows ? must be name=value&name=value, each name once")
    known = set(_OURS)
    if parts.scheme == "rediss":
        known |= {name for name in inspect.signature(SSLConnection.__init__).parameters if name.startswith("ssl_")}
    for name in options:
        if name not in known:
            called = repr(name) if re.fullmatch(r"[a-z_]{1,40}", name) else "of this name"
            raise ConfigError(f"url: has no option {called}; there are {', '.join(_OURS)}, and with rediss:// ssl_…")
    return options


def group_of(name: str) -> bytes:
    """A group's name; ConfigError where it cannot be one."""
    if not isinstance(name, str) or not _GROUP.fullmatch(name):
        raise ConfigError(f"group={name!r}: must be of letters, digits and _ . : - alone, from 1 to 100")
    return name.encode()
