"""Where we may connect to on behalf of others: web addresses, and the guard that keeps them out of inner networks."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Sequence
from typing import Final, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.errors import ConfigError, Permanent, Transient

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve = Callable[[str, int], Sequence[str]]
"""From a host and a port to addresses."""

_CLOSED_4: Final = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24"
        " 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4"
        " 168.63.129.16/32"  # where a cloud's machines ask for their secrets, though it is no private address
    ).split()
)
_OPEN_6: Final = ipaddress.IPv6Network("2000::/3")
"""All that is given out; loopback, local, multicast, mapped and translated addresses are outside of it."""
_CLOSED_6: Final = tuple(
    ipaddress.IPv6Network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")  # tunnels, other protocols, documentation
)
_ODD: Final = re.compile(r"[^\x21-\x7e]|\\")
_NAME: Final = re.compile(
    r"[A-Za-z0-9_]([A-Za-z0-9_\-]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_\-]*[A-Za-z0-9_])?)*\.?"
)
_LONGEST_URL: Final = 2_000
_LONGEST_HOST: Final = 253
_PORTS: Final = {"http": 80, "https": 443}


class Place(Struct, frozen=True):
    """A web address, taken apart once: nothing else reads it a second time, in another way."""

    scheme: Literal["http", "https"]
    host: str
    """A name, or an address without brackets."""
    port: int
    path: str
    """With the query."""

    @property
    def shown(self) -> str:
        """For people: the path may be a secret, and is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}/…"


def place_of(field: str, url: object) -> Place:
    """The parts of an http or https URL; ConfigError for anything else, and for what might be read in two ways."""
    if not isinstance(url, str) or not url or len(url) > _LONGEST_URL:
        raise ConfigError(f"{field}: must be a URL such as https://example.com/hook")
    if _ODD.search(url):
        raise ConfigError(f"{field}: has a character that is none of a URL's; escape it with %")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ConfigError(f"{field}: cannot be read; write one such as https://example.com/hook") from None
    if parts.scheme not in _PORTS:
        raise ConfigError(f"{field}: must begin with https:// or http://")
    if "@" in parts.netloc:
        raise ConfigError(f"{field}: must have no user name or password before the host")
    if not (_NAME.fullmatch(host) or _literal(host)) or len(host) > _LONGEST_HOST or port == 0:
        raise ConfigError(f"{field}: names no host that could be asked")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Place(scheme, host, _PORTS[scheme] if port is None else port, path)


def networks(field: str, given: object) -> tuple[Network, ...]:
    """Networks such as "10.0.0.0/8"; ConfigError for anything else."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"{field}={given!r}: must be a list of networks such as '10.0.0.0/8'")
    try:
        return tuple(ipaddress.ip_network(one if isinstance(one, str) else "") for one in given)
    except ValueError as error:
        raise ConfigError(f"{field}={given!r}: must be networks such as '10.0.0.0/8': {error}") from None


def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a host, as the machine's resolver has them."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Transient(f"{host} has no address: {error}") from error
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class AddressGuard:
    """Which addresses may be connected to: public ones, and those that are allowed by name.

    It is asked with the very address of the connection to be made, after the name was resolved: no spelling of an
    address, and no change of what a name stands for, comes between the question and the connection.
    """

    def __init__(self, allow: Sequence[Network] = (), resolve: Resolve = resolve) -> None:
        self._allow = tuple(allow)
        self.resolve = resolve

    def allows(self, text: str) -> bool:
        """Whether this address may be connected to."""
        address = _literal(text)
        if address is None:
            return False
        if any(address in network for network in self._allow if network.version == address.version):
            return True
        if isinstance(address, ipaddress.IPv4Address):
            return not any(address in network for network in _CLOSED_4)
        return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)

    def refuses_literal(self, host: str) -> bool:
        """Whether a host is an address, written out, that may not be connected to."""
        return _literal(host) is not None and not self.allows(host)

    def addresses(self, place: Place) -> list[str]:
        """Where a place is now, by its addresses that may be connected to; Permanent where there is none.

        It asks the resolver, which blocks.
        """
        found = [place.host] if _literal(place.host) else list(self.resolve(place.host, place.port))
        allowed = [address for address in found if self.allows(address)]
        if not allowed:
            names = ", ".join(found) or "nothing"
            raise Permanent(f"{place.shown} is {names}, which may not be connected to; allow=(…) names what may be")
        return allowed


def _literal(text: str) -> Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        return ipaddress.IPv6Address(int(address))  # the zone says through which card, and nothing of the network
    return address
