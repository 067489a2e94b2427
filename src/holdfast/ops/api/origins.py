"""Names in Host and Origin, and whether a request comes from this server's own page."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.errors import ConfigError
from holdfast.ops.api.settings import host_name

_AUTHORITY: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/?#@\s]+)(?::([0-9]{1,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://([^/?#@\s]+)")
_PORTS: Final = {"http": 80, "https": 443}
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def host_of(authority: str) -> str | None:
    """The name in `name:port`, as names are compared; None where it is neither a name nor an address."""
    found = _split(authority)
    return found[0] if found else None


def is_same_origin(method: str, headers: Mapping[str, Sequence[str]], host: str, scheme: str) -> bool:
    """Whether no page of another site made a browser send this.

    A change needs an Origin that is ours where there is one, and a Sec-Fetch-Site that says so where there is one; a
    program sends neither. For what changes nothing it is enough that it is not fetched by another site's page: it may
    be opened from there. Another port of this host is another site.
    """
    sites = headers.get("sec-fetch-site", ())
    is_ours = all(site in {"same-origin", "none"} for site in sites)
    if method in _READING:
        return is_ours or headers.get("sec-fetch-mode", ())[:1] == ["navigate"]
    origins = headers.get("origin", ())
    return is_ours and len(origins) <= 1 and all(_is_own(origin, host, scheme) for origin in origins)


def _is_own(origin: str, host: str, scheme: str) -> bool:
    match = _ORIGIN.fullmatch(origin)
    if match is None:  # "null" among others
        return False
    default = _PORTS[match[1]]
    if scheme == "https" and match[1] != "https":
        return False
    own, theirs = _split(host), _split(match[2])
    return own is not None and theirs is not None and (own[0], own[1] or default) == (theirs[0], theirs[1] or default)


@functools.lru_cache(maxsize=256)
def _split(authority: str) -> tuple[str, int | None] | None:
    match = _AUTHORITY.fullmatch(authority)
    if match is None:
        return None
    try:
        return host_name(match[1]), int(match[2]) if match[2] else None
    except ConfigError:
        return None
