"""What can be set about the HTTP API."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.errors import ConfigError
from holdfast.ops.api.tokens import Token, TokenFile, Tokens
from holdfast.policy import bounds
from holdfast.policy.limiter import Rate

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
"""Host names that are always allowed: no other machine can make a browser send them."""
_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")


class ApiSettings(Struct, frozen=True, kw_only=True):
    """How the API is guarded.

    tokens [none]: who may ask: Tokens as a sequence, or a TokenFile. Without, only this machine may.
    hosts [none]: names that the Host header may have, without ports, beside those of loopback.
    read_only [False]: every change is refused, whoever asks.
    allows_simulation [False]: whether failures may be simulated, to try alerts and breakers out.
    max_body [1 MiB]: bytes of a request's body.
    body_s [30]: seconds within which the body of a request has to be there.
    rate [600/minute]: changes by one token, or without tokens by one address; None is no limit, as for all rates.
    submit_rate [60000/minute]: the same for new jobs, which programs make.
    read_rate [6000/minute]: the same for everything that changes nothing.
    login_rate [30/minute]: wrong tokens from one address; more are refused with 429 and not logged.
    max_clients [500]: open `/events` streams.
    trusts_proxy [False]: believe X-Forwarded-For, -Proto and -Host; only behind a proxy that sets all of them.
    is_loopback [True]: whether requests from this machine need no token where there are none; a server that
        listens on other addresses says False.
    """

    tokens: Sequence[Token] | TokenFile = ()
    hosts: Sequence[str] = ()
    read_only: bool = False
    allows_simulation: bool = False
    max_body: int = 1_048_576
    body_s: float = 30.0
    rate: str | Rate | None = "600/minute"
    submit_rate: str | Rate | None = "60000/minute"
    read_rate: str | Rate | None = "6000/minute"
    login_rate: str | Rate | None = "30/minute"
    max_clients: int = 500
    trusts_proxy: bool = False
    is_loopback: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, TokenFile):
            force_setattr(self, "tokens", tuple(self.tokens))
            Tokens(self.tokens)
        if isinstance(self.hosts, str):
            raise ConfigError(f"hosts={self.hosts!r}: must be a sequence of names, not one string")
        force_setattr(self, "hosts", tuple(host_name(name) for name in self.hosts))
        bounds.whole("max_body", self.max_body, low=1)
        bounds.length("body_s", self.body_s, above=0.0)
        bounds.whole("max_clients", self.max_clients, low=1)
        for field in ("rate", "submit_rate", "read_rate", "login_rate"):
            rate_of(field, getattr(self, field))
        for field in ("read_only", "allows_simulation", "trusts_proxy", "is_loopback"):
            if not isinstance(getattr(self, field), bool):
                raise ConfigError(f"{field}={getattr(self, field)!r}: must be True or False")

    @property
    def has_tokens(self) -> bool:
        """Whether tokens are asked for; a file that is empty lets nobody in, it does not open the door."""
        return isinstance(self.tokens, TokenFile) or len(self.tokens) > 0


def rate_of(field: str, rate: str | Rate | None) -> Rate | None:
    """A rate as it is set: a Rate, text like "600/minute", or None."""
    return rate if rate is None or isinstance(rate, Rate) else Rate.parse(rate, field)


def host_name(name: object) -> str:
    """A host name or address as it is compared: lower case, without brackets, port or final dot."""
    text = name.lower() if isinstance(name, str) else ""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        text = text.removesuffix(".")
        if len(text) > 253 or not _NAME.fullmatch(text):
            raise ConfigError(f"hosts: {name!r}: must be a host name or an address, without a port") from None
        return text


def is_loopback_host(host: str) -> bool:
    """Whether only this machine can reach a server that listens on this host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower().removesuffix(".") == "localhost"
