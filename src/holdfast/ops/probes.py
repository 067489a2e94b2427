"""Ready-made health checks for what an app needs: a Redis server, a database, a web site."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import apsw

from holdfast.addresses import place_of
from holdfast.errors import ConfigError
from holdfast.extras import how_to_install
from holdfast.ops.request import Request
from holdfast.wiring import shown, store_file

IDLE_S: Final = 10.0
"""How long a thread waits for a server at most; the check's own time limit is what people see."""
_NOT_TAKEN: Final = frozenset({405, 501})

_OWN: Final = frozenset({"prefix", "wait_replicas", "wait_s", "schema", "synchronous_commit"})
"""Options of a store's URL that its server does not know."""

Probe = Callable[[], None]


def redis(url: str) -> Probe:
    """A check that a Redis server answers PING: `redis://host`, `rediss://…` or `unix://…`."""
    _check_scheme(url, ("redis", "rediss", "unix"))
    package = _package("redis", "redis", "redis")
    plain = _without_own(url)

    def ping() -> None:
        client = package.Redis.from_url(plain, socket_timeout=IDLE_S, socket_connect_timeout=IDLE_S)
        try:
            client.ping()
        finally:
            client.close()

    return ping


def database(url: str) -> Probe:
    """A check that a database answers: `postgresql://user@host/db`, or `sqlite:///file.db`, which must be there."""
    _check_scheme(url, ("postgresql", "postgres", "sqlite"))
    if (path := store_file(url)) is not None:
        return lambda: _query_file(path)
    package = _package("psycopg", "postgres", "database")
    plain = _without_own(url)

    def query() -> None:
        with package.connect(plain, connect_timeout=int(IDLE_S), autocommit=True) as connection:
            connection.execute("SELECT 1")

    return query


def site(url: str) -> Probe:
    """A check that a web site answers a request with a status below 400; redirects are not followed."""
    place = place_of("url", url)

    def ask() -> None:
        answer = Request(place, method="HEAD", idle_s=IDLE_S).send()
        if answer.status in _NOT_TAKEN:
            answer = Request(place, method="GET", idle_s=IDLE_S).send()
        if answer.status >= 400:
            raise ConnectionError(f"{place.shown} answered {answer.status}")

    return ask


def _query_file(path: Path) -> None:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    finally:
        connection.close()


def _without_own(url: str) -> str:
    base, _, query = url.partition("?")
    options = "&".join(option for option in query.split("&") if option.partition("=")[0] not in _OWN)
    return f"{base}?{options}" if options else base


def _check_scheme(url: object, schemes: tuple[str, ...]) -> None:
    if not isinstance(url, str) or url.partition("://")[0] not in schemes:
        known = ", ".join(f"{scheme}://" for scheme in schemes)
        raise ConfigError(f"url={shown(url) if isinstance(url, str) else url!r}: must begin with one of {known}")


def _package(name: str, extra: str, probe: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(f"{probe}(…) needs a package that is missing: {how_to_install(extra)}") from None
