"""Headers of the user's own, checked before anything is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.crawl.urls import domain_of
from holdfast.errors import ConfigError
from holdfast.secret_names import is_secret

_OURS: Final = frozenset({"accept-encoding", "connection", "content-length", "host", "te", "transfer-encoding"})
"""What says how a request is sent and how its answer may come: what else is sent there would break the fetching."""

_is_name = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_is_value = re.compile(r"[\x20-\x7e\x80-\ud7ff\ue000-\U0010ffff\t]*").fullmatch


def checked_headers(given: Mapping[str, str] | None) -> dict[str, str]:
    """The headers as they are sent; ConfigError for what is none, and for those that are the fetcher's own."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"headers={given!r}: must be a mapping, such as {{'Accept-Language': 'en'}}")
    return dict(_checked(name, value) for name, value in given.items())


def without_secrets(headers: Mapping[str, str]) -> dict[str, str]:
    """Those that any domain of a crawl may see: a redirect, or a link, must not carry a password elsewhere."""
    return {name: value for name, value in headers.items() if not is_secret(name)}


def origin_of(url: str) -> str:
    """Scheme and domain of a canonical URL: "https://example.org"."""
    return "/".join(url.split("/", 3)[:3])


def trusted_by(seeds: Iterable[str]) -> frozenset[str]:
    """The origins that secrets may go to: where the seeds are, and the same over https; never from https to http."""
    origins = frozenset(map(origin_of, seeds))
    return origins | {f"https://{domain_of(one)}" for one in origins}


def _checked(name: Any, value: Any) -> tuple[str, str]:
    if not isinstance(name, str) or not _is_name(name):
        raise ConfigError(f"headers: {name!r} is no name of a header")
    if name.lower() in _OURS:
        raise ConfigError(f"headers: {name} is set by the crawl itself; leave it out")
    if not isinstance(value, str) or not _is_value(value):
        raise ConfigError(f"headers: the value of {name} must be a text on one line")  # which may be a secret
    return name, value
