"""From a URL to a store: the one place that names concrete adapters, each imported only when asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from holdfast.errors import ConfigError
from holdfast.ports import Clock, Store

DEFAULT_URL = "sqlite:///holdfast.db"
_EXAMPLES = "sqlite:///shop.db (a file in the current folder), sqlite:////var/lib/shop.db, memory://"
_LATER = {"postgres", "postgresql", "redis", "rediss"}
_SYNCHRONOUS: dict[str, Literal["FULL", "NORMAL", "EXTRA"]] = {"full": "FULL", "normal": "NORMAL", "extra": "EXTRA"}


def url_or_default(url: str | None) -> str:
    """The URL given, or that of the environment variable HOLDFAST_URL, or a file in the current folder."""
    return url or os.environ.get("HOLDFAST_URL") or DEFAULT_URL


def open_store(url: str, clock: Clock | None = None) -> Store:
    """The store that a URL names, not yet opened; ConfigError when it names none.

    clock: that of a memory store [the machine's]. Others have their own, which all their processes share.
    """
    if not isinstance(url, str):
        raise ConfigError(f"url={url!r}: must be text such as {_EXAMPLES}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        shown = f"…{url[url.rindex('@') :]}" if "@" in url else url  # a password may stand before it
        raise ConfigError(f"url={shown!r}: cannot be read: {error}; write one such as {_EXAMPLES}") from None
    if parts.scheme == "memory":
        if url not in {"memory://", "memory:"}:
            raise ConfigError(f"url={url!r}: a memory store has no name; write memory://")
        from holdfast.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(clock)
    if parts.scheme == "sqlite":
        path, synchronous = _sqlite_parts(url)
        from holdfast.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(path, synchronous=synchronous)
    if parts.scheme in _LATER:
        raise ConfigError(f"url={_without_password(url)!r}: this version has no {parts.scheme} store yet")
    raise ConfigError(f"url={_without_password(url)!r}: must be one such as {_EXAMPLES}")


def store_file(url: str) -> Path | None:
    """The file that a URL names; None for a store that is no file."""
    return _sqlite_parts(url)[0] if urlsplit(url).scheme == "sqlite" else None


def is_store(path: Path) -> bool:
    """Whether there is a store in this file; nothing is changed by looking."""
    from holdfast.stores.sqlite.connection import is_store as has_tables  # noqa: PLC0415

    return has_tables(str(path))


def _sqlite_parts(url: str) -> tuple[Path, Literal["FULL", "NORMAL", "EXTRA"]]:
    """The absolute path and the synchronous setting of a sqlite URL."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(
            f"url={url!r}: three slashes and a path, as in sqlite:///shop.db or sqlite:////var/lib/shop.db"
        )
    path = unquote(parts.path[1:])
    if not path or not path.isprintable():
        raise ConfigError(f"url={url!r}: names no file; write sqlite:///shop.db")
    options = parse_qs(parts.query, keep_blank_values=True)
    synchronous = options.pop("synchronous", ["full"])[-1].lower()
    if options or parts.fragment:
        raise ConfigError(f"url={url!r}: the only option is ?synchronous=full or normal")
    if synchronous not in _SYNCHRONOUS:
        raise ConfigError(f"url={url!r}: synchronous must be one of {', '.join(_SYNCHRONOUS)}")
    return Path(path).absolute(), _SYNCHRONOUS[synchronous]


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=f"{parts.username or ''}:…@{parts.hostname or ''}").geturl()
