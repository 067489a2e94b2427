"""One request of a crawl: redirects followed, limits held, and addresses that are not allowed never connected to."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

from msgspec import Struct

from holdfast.addresses import AddressGuard
from holdfast.crawl.bodies import ACCEPTED, Body
from holdfast.crawl.connecting import GuardedConnector, sent_once
from holdfast.crawl.extras import wanted
from holdfast.crawl.fetch_failures import page_error, refused
from holdfast.crawl.fetched import Fetched, media_type, plain_headers, refuse_status
from holdfast.crawl.time_limits import TimeLimit, TimeLimits
from holdfast.crawl.urls import canonical
from holdfast.errors import ConfigError, PageError, PageRefused
from holdfast.policy import bounds
from holdfast.ports import Clock

with wanted():
    import aiohttp
    from aiohttp import ClientResponse
    from yarl import URL

__all__ = ["FetchLimits", "Fetched", "Fetcher", "refuse_status"]

LONGEST_HEADER: Final = 64 * 1024
"""Of one header. Real sites send policies of more than aiohttp's 8 KiB; browsers take 256 KiB of all together."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ACCEPT: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
_SENDABLE: Final = re.compile(r"https?://[\x21-\x7e]+")
_PRINTABLE: Final = "".join(chr(code) for code in range(0x21, 0x7F))


class FetchLimits(Struct, frozen=True, kw_only=True):
    """How long one request may take, and how much it may bring.

    total_s: the whole of it, with redirects and body [30 s]. It is what ends an answer that comes drop by drop.
    connect_s: until a connection stands, TLS included [10 s].
    read_s: until an answer begins, the connection included, and between any two pieces of its body [15 s].
    max_bytes: of the body, as it is sent and as it is decompressed [10 MiB].
    max_redirects: how often one request is sent on [10].
    """

    total_s: float = 30.0
    connect_s: float = 10.0
    read_s: float = 15.0
    max_bytes: int = 10 * 1024 * 1024
    max_redirects: int = 10

    def __post_init__(self) -> None:
        for field in ("total_s", "connect_s", "read_s"):
            bounds.length(field, getattr(self, field), above=0.0)
        bounds.whole("max_bytes", self.max_bytes, low=1)
        bounds.whole("max_redirects", self.max_redirects, low=0)


class Fetcher:
    """Sends requests over kept connections. Used as `async with Fetcher(…) as fetcher`, on one event loop.

    user_agent: the User-Agent header, as a whole.
    guard: which addresses may be connected to. It is asked for every connection, so for every redirect too.
    connections: how many may be in use at a time.
    verify_tls: False takes any certificate; an SSL context brings authorities of your own.

    Cookies are not kept, proxies and passwords are not taken from the environment. A request is sent again only where a
    kept connection broke before any of the answer came, as a site may close it at that very moment.
    """

    def __init__(
        self,
        *,
        user_agent: str,
        clock: Clock,
        limits: FetchLimits,
        guard: AddressGuard,
        connections: int,
        verify_tls: bool | ssl.SSLContext = True,
    ) -> None:
        if not isinstance(user_agent, str) or not user_agent.strip() or not user_agent.isprintable():
            raise ConfigError(f"user_agent={user_agent!r}: must be one line that says who asks")
        self._clock = clock
        self._limits = limits
        self._guard = guard
        self._connections = bounds.whole("connections", connections, low=1)
        self._tls = verify_tls
        self._headers = {"User-Agent": user_agent, "Accept": _ACCEPT, "Accept-Encoding": ACCEPTED}
        self._connector: GuardedConnector
        self._session: aiohttp.ClientSession
        self._time: TimeLimits

    async def __aenter__(self) -> Self:
        limits = self._limits
        self._time = TimeLimits(self._clock, total_s=limits.total_s, read_s=limits.read_s)
        self._connector = GuardedConnector(self._guard, connections=self._connections, tls=self._tls)
        self._session = aiohttp.ClientSession(
            connector=self._connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=limits.connect_s, sock_read=None),
            auto_decompress=False,
            max_field_size=LONGEST_HEADER,
            trust_env=False,
            middlewares=(sent_once,),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._time.close()
        await self._session.close()

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        follows: Callable[[str], bool] | None = None,
        first_bytes: int | None = None,
    ) -> Fetched:
        """The answer to a canonical URL. Raises FetchFailed where none came, and PageRefused where it breaks a limit.

        headers: sent to the origin of the URL alone, and not where a redirect leads elsewhere.
        follows: asked with the URL of each redirect; where it says no, the redirect itself is the answer.
        first_bytes: so many are enough, and a little more may come. A larger body is cut, and no `max_bytes` counts.
        """
        if not _SENDABLE.fullmatch(url):
            raise refused(url, "not http", "not an http or https URL that could be sent")
        limit = self._time.begin()
        trip = _Trip(url, limit, first_bytes)
        response: ClientResponse | None
        try:
            with limit:
                response = await self._travel(trip, headers, follows)
        except PageError:
            if (response := trip.settled) is None:
                raise
        except (aiohttp.ClientError, OSError) as error:
            if (response := trip.settled) is None:
                raise page_error(error, url) from error
        finally:
            trip.leave()
        return self._fetched(trip, response)

    def _fetched(self, trip: _Trip, response: ClientResponse) -> Fetched:
        content_type, charset = media_type(response.headers.get("Content-Type", ""))
        return Fetched(
            url=trip.url,
            final_url=trip.final_url,
            status=response.status,
            headers=plain_headers(response.headers),
            body=trip.body.so_far() if trip.body is not None else b"",
            elapsed_s=trip.limit.heard_s - trip.limit.begun_s,
            first_byte_s=trip.first_byte_s,
            fetched_at=self._clock.now(),
            redirects=trip.redirects,
            redirect_to=trip.redirect_to,
            content_type=content_type,
            charset=charset,
        )

    async def _travel(
        self, trip: _Trip, headers: Mapping[str, str] | None, follows: Callable[[str], bool] | None
    ) -> ClientResponse:
        """Request after request, until one is answered with something else than a redirect that is followed."""
        while True:
            address, sent = _address(trip.final_url), headers
            if sent and trip.redirects and address.origin() != _address(trip.url).origin():
                sent = None
            if self._connector.is_crowded:
                sent = {**(sent or {}), "Connection": "close"}
            asked_s = trip.limit.heard_s
            response = await self._session.get(address, headers=sent, allow_redirects=False)
            trip.first_byte_s = trip.limit.heard() - asked_s
            trip.response = response
            if response.status in _REDIRECTS and (target := _target(trip, response)):
                if follows is None or follows(target):
                    if len(trip.redirects) >= self._limits.max_redirects:
                        what = f"is redirected more than {self._limits.max_redirects} times"
                        raise refused(trip.url, "too many redirects", what)
                    trip.go_on(target)
                    continue
                trip.redirect_to = target
            await self._read(trip, response)
            return response

    async def _read(self, trip: _Trip, response: ClientResponse) -> None:
        encodings = response.headers.getall("Content-Encoding", None)
        is_part_enough = trip.first_bytes is not None
        most = self._limits.max_bytes if trip.first_bytes is None else trip.first_bytes
        body = trip.body = Body(trip.url, ",".join(encodings) if encodings else "", most)
        if not is_part_enough:
            body.expect(response.content_length)
        content = response.content
        heard = trip.limit.heard
        while chunk := await content.readany():
            heard()
            try:
                body.add(chunk)
            except PageRefused:
                if is_part_enough:
                    return
                raise
        body.end()


class _Trip:
    """What has come of one `get` so far."""

    __slots__ = (
        "url",
        "final_url",
        "limit",
        "first_bytes",
        "first_byte_s",
        "redirects",
        "redirect_to",
        "response",
        "body",
    )

    def __init__(self, url: str, limit: TimeLimit, first_bytes: int | None) -> None:
        self.url = self.final_url = url
        self.limit = limit
        self.first_bytes = first_bytes
        self.first_byte_s = 0.0
        self.redirects: tuple[str, ...] = ()
        self.redirect_to = ""
        self.response: ClientResponse | None = None
        self.body: Body | None = None

    @property
    def seen(self) -> tuple[str, ...]:
        return (self.url, *self.redirects)

    @property
    def settled(self) -> ClientResponse | None:
        """An answer of which the headers say it all: an error, or a redirect that is left to the caller.

        It stands even if its body is too large, cut or too slow.
        """
        has_said_all = self.response is not None and (self.response.status >= 400 or bool(self.redirect_to))
        return self.response if has_said_all else None

    def go_on(self, target: str) -> None:
        """Leave the answer that redirects, and turn to where it leads."""
        self.leave()
        self.response = None
        self.final_url = target
        self.redirects += (target,)

    def leave(self) -> None:
        """Give up the connection, unless all has been read and it has gone back to the pool."""
        if self.response is not None and self.response.connection is not None:
            self.response.close()


def _target(trip: _Trip, response: ClientResponse) -> str:
    """Where a redirect leads; empty where it does not say."""
    location = response.headers.get("Location", "")
    if not location:
        return ""
    if not location.isascii():  # bytes as they were sent, which aiohttp has read as UTF-8 or kept aside
        location = quote(location.encode("utf-8", "surrogateescape"), safe=_PRINTABLE)
    target = canonical(location, trip.final_url)
    if target is None or not _SENDABLE.fullmatch(target):
        raise refused(trip.url, "bad redirect", f"is redirected to {location[:200]!r}, which cannot be asked for")
    if target in trip.seen:
        raise refused(trip.url, "redirect loop", f"is redirected in a circle, by way of {target}")
    return target


def _address(url: str) -> URL:
    try:
        address = URL(url, encoded=True)
        is_usable = bool(address.host and address.port)  # a port that is none is told when it is read
    except ValueError as error:
        raise refused(url, "not http", str(error)) from error
    if not is_usable:
        raise refused(url, "not http", "names no host that could be asked")
    return address
