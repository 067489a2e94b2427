"""The URL of a stream, taken apart: which servers, which topic, which options, and how it may be shown."""

from __future__ import annotations

import re
from typing import Final, Literal, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from holdfast.errors import ConfigError, Invalid

Scheme = Literal["kafka", "redis", "rediss", "unix", "memory"]
EXAMPLES: Final = "kafka://host:9092/orders, redis://host:6379/orders, memory://orders"

_PORTS: Final = {"kafka": "9092", "redis": "6379", "rediss": "6379"}
_SCHEMES: Final = frozenset({*_PORTS, "unix", "memory"})
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,@\s]+)(?::(\d{1,5}))?")
_AUTHORITY: Final = re.compile(r"[^/?#]*")
_OPTION: Final = re.compile(r"[a-z][a-z0-9_.]{0,79}")
_KAFKA_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LONGEST_TOPIC: Final = 500
_HARMLESS: Final = frozenset(
    "db stream shards field max_entries claim_after handover partitions security.protocol sasl.mechanism "
    "sasl.mechanisms client.id linger.ms compression.type session.timeout.ms heartbeat.interval.ms isolation.level "
    "socket.timeout.ms".split()
)
"""Options whose values may be shown: any other may be a password under a name that nobody has thought of."""
_ESCAPES: Final = "in a user name or password write %2F for /, %3F for ?, %23 for #, %40 for @ and %25 for %"


class StreamURL(Struct, frozen=True, kw_only=True):
    """Where a stream is. Its text and its `repr` are the location: without what may be secret."""

    scheme: Scheme
    location: str
    """The URL as it may be shown."""
    servers: tuple[str, ...] = ()
    """Each as `host:port`; the path of a socket for unix; none for memory."""
    topic: str = ""
    """Empty where the URL names none."""
    username: str | None = None
    password: str | None = None
    options: dict[str, str] = {}

    def __repr__(self) -> str:
        return self.location

    def refusal(self, why: str) -> ConfigError:
        """What to raise when this URL cannot work."""
        return ConfigError(f"url={self.location!r}: {why}")

    def check_topic(self, topic: object) -> str:
        """The topic, if this kind of server can have one of this name; else Invalid."""
        if not isinstance(topic, str):
            raise Invalid(f"topic={topic!r}: must be text")
        if self.scheme == "kafka":
            if not _KAFKA_TOPIC.fullmatch(topic) or topic in {".", ".."}:
                raise Invalid(f"topic={topic[:250]!r}: must be of letters, digits and . _ - alone, from 1 to 249")
        elif not topic or not topic.isprintable() or " " in topic or len(topic) > _LONGEST_TOPIC:
            raise Invalid(f"topic={topic[:250]!r}: must be printable, without blanks, from 1 to {_LONGEST_TOPIC} long")
        return topic


def parse(url: str) -> StreamURL:
    """Take a URL apart; ConfigError, in one line without its secrets, where it cannot work whatever the server says."""
    if not isinstance(url, str):
        raise ConfigError(f"url={url!r}: must be text such as {EXAMPLES}")
    location = shown(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # it would repeat what it cannot read
        raise ConfigError(f"url={location!r}: cannot be read; write one such as {EXAMPLES}") from None
    if parts.scheme not in _SCHEMES or "://" not in url:
        raise ConfigError(f"url={location!r}: must be one such as {EXAMPLES}")
    scheme = cast("Scheme", parts.scheme)
    if parts.fragment or "#" in url:
        raise ConfigError(f"url={location!r}: must have no #; {_ESCAPES}")
    options = _options(location, parts)
    if scheme == "memory":
        if parts.path.strip("/") or "@" in parts.netloc:
            raise ConfigError(f"url={location!r}: a topic in memory is memory://orders, with no server")
        return _checked(StreamURL(scheme=scheme, location=location, topic=unquote(parts.netloc), options=options))
    if scheme == "unix":
        return _of_socket(location, parts, options)
    _check_place(url, location, parts)
    username, password = _login(parts)
    return _checked(
        StreamURL(
            scheme=scheme,
            location=location,
            servers=_servers(location, parts),
            topic=unquote(parts.path.removeprefix("/")),
            username=username,
            password=password,
            options=options,
        )
    )


def shown(url: str) -> str:
    """The URL as it may be shown: whatever may be a password in it is left out."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return "…" if "@" in url or "passw" in url.lower() else url
    if _is_torn(scheme, rest):
        return f"{scheme}://…"
    rest, mark, query = rest.partition("?")
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    options = "&".join(map(_shown_option, query.split("&")))
    return f"{scheme}://{user}{':…' if colon else ''}{at}{place}{mark}{options}"


def _is_torn(scheme: str, rest: str) -> bool:
    """Whether what follows :// is no user, server and path: a stray / ? # or @ has torn a password apart."""
    found = _AUTHORITY.match(rest)
    authority = found[0] if found else ""
    behind = rest[len(authority) :]
    if "@" in behind or "#" in behind or "@" in authority.rpartition("@")[0]:
        return True
    servers = authority.rpartition("@")[2]
    return scheme in _PORTS and not all(map(_SERVER.fullmatch, servers.split(",")))


def _shown_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals or not _OPTION.fullmatch(name):
        return "…" if option else ""
    return f"{name}={value if name in _HARMLESS else '…'}"


def _checked(url: StreamURL) -> StreamURL:
    if url.topic:
        try:
            url.check_topic(url.topic)
        except Invalid as error:
            raise url.refusal(str(error)) from None
    return url


def _check_place(url: str, location: str, parts: SplitResult) -> None:
    """Refuse what clients would take for a host, and name in their errors, though it is a part of a password."""
    if not parts.netloc.rpartition("@")[2]:
        raise ConfigError(f"url={location!r}: names no server; write one such as {EXAMPLES}")
    if _is_torn(parts.scheme, url.partition("://")[2]):
        raise ConfigError(f"url={location!r}: must be {parts.scheme}://user:password@host:port/topic; {_ESCAPES}")


def _servers(location: str, parts: SplitResult) -> tuple[str, ...]:
    servers: list[str] = []
    for text in parts.netloc.rpartition("@")[2].split(","):
        found = _SERVER.fullmatch(text)
        host, port = found.groups() if found else ("", "0")
        port = port or _PORTS[parts.scheme]
        if not 0 < int(port) < 65_536:
            raise ConfigError(f"url={location!r}: a port must be from 1 to 65535")
        servers.append(f"{host}:{port}")
    if len(servers) > 1 and parts.scheme != "kafka":
        raise ConfigError(f"url={location!r}: names more than one host; of a cluster one host is enough")
    return tuple(servers)


def _login(parts: SplitResult) -> tuple[str | None, str | None]:
    login, at, _ = parts.netloc.rpartition("@")
    if not at:
        return None, None
    user, colon, password = login.partition(":")
    return unquote(user) or None, unquote(password) if colon else None


def _of_socket(location: str, parts: SplitResult, options: dict[str, str]) -> StreamURL:
    """`unix:///run/redis.sock?stream=orders`: the path is taken, so that the stream is an option."""
    login, _, host = parts.netloc.rpartition("@")
    path = unquote(parts.path)
    if host or not path.startswith("/") or not path.isprintable() or path == "/":
        raise ConfigError(f"url={location!r}: must be unix:///path/of/the.sock?stream=orders")
    username, password = _login(parts) if login else (None, None)
    topic = options.pop("stream", "")
    return _checked(
        StreamURL(
            scheme="unix",
            location=location,
            servers=(path,),
            topic=topic,
            username=username,
            password=password,
            options=options,
        )
    )


def _options(location: str, parts: SplitResult) -> dict[str, str]:
    if parts.query and any("=" not in option for option in parts.query.split("&")):
        raise ConfigError(f"url={location!r}: what follows ? must be name=value&name=value; {_ESCAPES}")
    pairs = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)  # a plus is a plus
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ConfigError(f"url={location!r}: an option is given twice")
    for name in options:
        if not _OPTION.fullmatch(name):
            raise ConfigError(f"url={location!r}: an option's name must be of a-z, 0-9, _ and . alone; {_ESCAPES}")
    return options
