"""From a URL to a store or a stream: the one place that names concrete stores, each imported only when asked for."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from holdfast.errors import ConfigError
from holdfast.extras import how_to_install
from holdfast.ports import Clock, Source, Store

if TYPE_CHECKING:
    from holdfast.streams.memory import MemoryBroker
    from holdfast.streams.producer import Producer
    from holdfast.streams.url import StreamURL

DEFAULT_URL = "sqlite:///holdfast.db"
_EXAMPLES = "sqlite:///shop.db (a file in the current folder), postgresql://user@host/db, redis://host, memory://"
_POSTGRES: Final = frozenset({"postgresql", "postgres"})
_REDIS: Final = frozenset({"redis", "rediss", "unix"})
_SYNCHRONOUS: dict[str, Literal["FULL", "NORMAL", "EXTRA"]] = {"full": "FULL", "normal": "NORMAL", "extra": "EXTRA"}
_COMMITS: Final = ("on", "off", "local", "remote_write", "remote_apply")
_OF_REDIS: Final = frozenset({"db", "username", "password", "client_name"})
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,63}")
_HOST: Final = r"(\[[^\[\]]*\]|[^\[\]:,@]*)(:\d*)?"
_HOSTS: Final = re.compile(rf"{_HOST}(,{_HOST})*")
_AUTHORITY: Final = re.compile(r"[^/?#]*")
_OPTION: Final = re.compile(r"[a-z_]{1,40}")
_HARMLESS: Final = frozenset(
    "schema synchronous_commit synchronous sslmode target_session_attrs prefix wait_replicas wait_s db".split()
)
"""Options whose values may be shown: any other may be a password under a name that nobody has thought of."""
_ESCAPES: Final = "in a user name or password write %2F for /, %3F for ?, %23 for #, %40 for @ and %25 for %"


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
        raise ConfigError(f"url={shown(url)!r}: cannot be read: {error}; write one such as {_EXAMPLES}") from None
    if parts.scheme == "memory":
        if url not in {"memory://", "memory:"}:
            raise ConfigError(f"url={url!r}: a memory store has no name; write memory://")
        from holdfast.stores.memory import MemoryStore  # noqa: PLC0415

        return MemoryStore(clock)
    if parts.scheme == "sqlite":
        path, synchronous = _sqlite_parts(url)
        from holdfast.stores.sqlite import SqliteStore  # noqa: PLC0415

        return SqliteStore(path, synchronous=synchronous)
    if parts.scheme in _POSTGRES | _REDIS and "://" in url:
        _check_place(url, parts)
        return _postgres(url, parts) if parts.scheme in _POSTGRES else _redis(url, parts)
    base, plus, driver = parts.scheme.partition("+")
    if plus and base in _POSTGRES | _REDIS:
        raise ConfigError(f"url={shown(url)!r}: leave out +{driver}, which is for other programs: write {base}://…")
    raise ConfigError(f"url={shown(url)!r}: must be one such as {_EXAMPLES}")


def stream_place(url: str) -> StreamURL:
    """Where a stream's URL leads; ConfigError when it names no topic."""
    from holdfast.streams.url import parse  # noqa: PLC0415

    place = parse(url)
    if not place.topic:
        raise place.refusal("names no topic")
    return place


def new_broker() -> MemoryBroker:
    """What the memory:// streams of one app share."""
    from holdfast.streams.memory import MemoryBroker  # noqa: PLC0415

    return MemoryBroker()


def new_producer(url: str, **options: Any) -> Producer:
    """A producer for a URL; its class has the options."""
    from holdfast.streams.producer import Producer  # noqa: PLC0415

    return Producer(url, **options)


def open_stream(url: str, group: str, clock: Clock, *, start: Literal["earliest", "latest"], broker: Any) -> Source:
    """The source that a URL names, for a group, not yet opened. broker: what streams in memory share."""
    from holdfast.streams.opening import open_source  # noqa: PLC0415

    options = {"broker": broker} if stream_place(url).scheme == "memory" else {}
    return open_source(url, group, clock, start=start, **options)


def store_file(url: str) -> Path | None:
    """The file that a URL names; None for a store that is no file."""
    return _sqlite_parts(url)[0] if urlsplit(url).scheme == "sqlite" else None


def is_store(path: Path) -> bool:
    """Whether there is a store in this file; nothing is changed by looking."""
    from holdfast.stores.sqlite.connection import is_store as has_tables  # noqa: PLC0415

    return has_tables(str(path))


def shown(url: str) -> str:
    """The URL as it may be shown: whatever may be a password in it is left out."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return "…" if "@" in url or "passw" in url.lower() else url
    is_file = scheme == "sqlite"
    if not is_file and _is_torn(rest):
        return f"{scheme}://…"
    rest, mark, query = rest.partition("?")
    login, at, place = ("", "", rest) if is_file else rest.rpartition("@")
    user, colon, _ = login.partition(":")
    options = "&".join(_shown_option(option) for option in query.split("&"))
    return f"{scheme}://{user}{':…' if colon else ''}{at}{place}{mark}{options}"


def _is_torn(rest: str) -> bool:
    """Whether what follows :// is no user, host and path: a stray / ? # or @ has torn a password apart."""
    found = _AUTHORITY.match(rest)
    authority = found[0] if found else ""
    behind = rest[len(authority) :]
    return "@" in behind or "#" in behind or _HOSTS.fullmatch(authority.rpartition("@")[2]) is None


def _shown_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals or not _OPTION.fullmatch(name):
        return "…" if option else ""
    return f"{name}={value if name in _HARMLESS else '…'}"


# ---------------------------------------------------------------- servers


def _check_place(url: str, parts: SplitResult) -> None:
    """Refuse what drivers would take for a host, and name in their errors, though it is a part of a password."""
    if "@" in parts.netloc.rpartition("@")[0]:
        raise ConfigError(f"url={shown(url)!r}: has more than one @; {_ESCAPES}")
    if _is_torn(url.partition("://")[2]):
        raise ConfigError(f"url={shown(url)!r}: must be {parts.scheme}://user:password@host:port/…; {_ESCAPES}")


def _postgres(url: str, parts: SplitResult) -> Store:
    try:
        import psycopg  # noqa: PLC0415
    except ImportError as error:
        _refuse_missing(url, "postgres", error)
    options = _options(url, parts)
    schema = _named(url, "schema", options.pop("schema")) if "schema" in options else ""
    commit = options.get("synchronous_commit", "on")
    if commit not in _COMMITS:
        raise ConfigError(f"url={shown(url)!r}: synchronous_commit must be one of {', '.join(_COMMITS)}")
    libpq = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    own = "schema, synchronous_commit, and what libpq takes, such as sslmode"
    _refuse_unknown(url, options, libpq | {"synchronous_commit"}, own)
    try:
        psycopg.conninfo.conninfo_to_dict(url.partition("?")[0])
    except psycopg.Error:  # it repeats what it cannot read, which may be the password
        raise ConfigError(f"url={shown(url)!r}: cannot be read; {_ESCAPES}, and %20 for a blank") from None
    from holdfast.stores.postgres import PostgresStore  # noqa: PLC0415

    return PostgresStore(_with_options(url, options), schema=schema)


def _redis(url: str, parts: SplitResult) -> Store:
    try:
        from redis import SSLConnection  # noqa: PLC0415
    except ImportError as error:
        _refuse_missing(url, "redis", error)
    if parts.scheme != "unix":
        if "," in parts.netloc.rpartition("@")[2]:
            raise ConfigError(f"url={shown(url)!r}: names more than one host; of a cluster one host is enough")
        if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
            raise ConfigError(f"url={shown(url)!r}: what follows the host must be the number of a database, as in /0")
    options = _options(url, parts)
    prefix = _named(url, "prefix", options.pop("prefix", "holdfast"))
    replicas = _number(url, "wait_replicas", options.pop("wait_replicas", "0"))
    if not replicas.is_integer():
        raise ConfigError(f"url={shown(url)!r}: wait_replicas must be a whole number")
    wait_s = _number(url, "wait_s", options.pop("wait_s", "1"))
    known = set(_OF_REDIS)
    if parts.scheme == "rediss":
        known |= {name for name in inspect.signature(SSLConnection.__init__).parameters if name.startswith("ssl_")}
    own = "prefix, wait_replicas, wait_s, db, username, password, client_name, and with rediss:// redis-py's ssl_…"
    _refuse_unknown(url, options, known, own)
    _number(url, "db", options.get("db", "0"))
    from holdfast.stores.redis import RedisStore  # noqa: PLC0415

    return RedisStore(_with_options(url, options), prefix=prefix, wait_replicas=int(replicas), wait_s=wait_s)


def _refuse_missing(url: str, extra: str, error: ImportError) -> NoReturn:
    why = " ".join(str(error).split())
    raise ConfigError(f"url={shown(url)!r}: needs packages that are missing ({why}): {how_to_install(extra)}") from None


def _options(url: str, parts: SplitResult) -> dict[str, str]:
    if parts.query and any("=" not in option for option in parts.query.split("&")):
        raise ConfigError(f"url={shown(url)!r}: what follows ? must be name=value&name=value; {_ESCAPES}")
    pairs = _pairs(parts.query)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ConfigError(f"url={shown(url)!r}: an option is given twice")
    return options


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)  # a plus is a plus, as libpq has it


def _with_options(url: str, options: dict[str, str]) -> str:
    query = urlencode(options, safe="/", quote_via=quote)
    return url.partition("?")[0] + (f"?{query}" if query else "")


def _refuse_unknown(url: str, options: dict[str, str], known: Container[str], words: str) -> None:
    for name in options:
        if name not in known:
            called = repr(name) if _OPTION.fullmatch(name) else "of this name"
            raise ConfigError(f"url={shown(url)!r}: has no option {called}; there are {words}")


def _named(url: str, option: str, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ConfigError(f"url={shown(url)!r}: {option} must be of letters, digits and _ . - alone, from 1 to 63")
    return value


def _number(url: str, option: str, value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if 0.0 <= found < 1e6:
        return found
    raise ConfigError(f"url={shown(url)!r}: {option} must be a number from 0 on")


# ---------------------------------------------------------------- files


def _sqlite_parts(url: str) -> tuple[Path, Literal["FULL", "NORMAL", "EXTRA"]]:
    """The absolute path and the synchronous setting of a sqlite URL."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/"):
        raise ConfigError(
            f"url={shown(url)!r}: three slashes and a path, as in sqlite:///shop.db or sqlite:////var/lib/shop.db"
        )
    path = unquote(parts.path[1:])
    if not path or not path.isprintable():
        raise ConfigError(f"url={shown(url)!r}: names no file; write sqlite:///shop.db")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "full").lower()
    if options or parts.fragment:
        raise ConfigError(f"url={shown(url)!r}: the only option is ?synchronous=full or normal")
    if synchronous not in _SYNCHRONOUS:
        raise ConfigError(f"url={shown(url)!r}: synchronous must be one of {', '.join(_SYNCHRONOUS)}")
    return Path(path).absolute(), _SYNCHRONOUS[synchronous]
