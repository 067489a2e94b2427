"""Connections of a crawl: only to addresses that the guard allows, asked with the very address of the connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Final

from holdfast.addresses import AddressGuard
from holdfast.crawl.extras import wanted
from holdfast.errors import Transient

with wanted():
    from aiohttp import (
        ClientConnectionError,
        ClientConnectorError,
        ClientHandlerType,
        ClientOSError,
        ClientRequest,
        ClientResponse,
        ClientTimeout,
        ServerDisconnectedError,
        TCPConnector,
    )
    from aiohttp.abc import AbstractResolver, ResolveResult
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

NAMES_KEPT_S: Final = 60
"""How long the addresses of a name are used before it is looked up again."""
MOST_NAMES: Final = 10_000
MOST_IDLE: Final = 256
"""Connections without a request, over all domains; a crawl of a million domains must not run out of files."""
_LOOKUPS: Final = 64
"""Names that are looked up at a time. Each thread may wait half a minute for a name server that does not answer."""

_made: ContextVar[list[bool] | None] = ContextVar("made", default=None)
"""Where a request is told that it needed a new connection: what fails on one is no leftover of an earlier request."""


class NotAllowed(OSError):
    """An address that may not be connected to. An OSError, as aiohttp expects those of what makes its sockets."""


class GuardedConnector(TCPConnector):
    """A pool of kept connections, none of them to an address that the guard refuses.

    Names are looked up on threads of their own, and what is not allowed is left out there. Then each socket asks once
    more, with the address it is about to be connected to: an address that was never looked up is refused as well.
    """

    def __init__(self, guard: AddressGuard, *, connections: int, tls: bool | ssl.SSLContext) -> None:
        self._names = _GuardedResolver(guard)
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._guard = guard
        super().__init__(
            resolver=self._names,
            ttl_dns_cache=NAMES_KEPT_S,
            dns_cache_max_size=MOST_NAMES,
            socket_factory=self._socket_for,
            limit=connections,
            ssl=tls,
        )

    @property
    def is_crowded(self) -> bool:
        """Whether so many connections are open that none more should be kept for later."""
        return len(self._open) > self.limit + MOST_IDLE

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A new connection, or a kept one on which nothing came since its last answer.

        What came without being asked for would be taken for the answer to this request.
        """
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if _made.get() or protocol is None or not protocol.should_close:
                return connection
            connection.close()

    async def close(self, *, abort_ssl: bool = False) -> None:
        """Close every connection and end the look-ups; one that is under way goes on to its own end, unused."""
        await super().close(abort_ssl=abort_ssl)
        await self._names.close()

    def _socket_for(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self._guard.allows(address[0]):
            raise NotAllowed(f"{address[0]} may not be connected to unless allow_private says so")
        if (made := _made.get()) is not None:
            made.append(True)
        opened = socket.socket(family, kind, protocol)
        self._open.add(opened)
        return opened


async def sent_once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Keep aiohttp from sending a request twice, unless it was sent on a kept connection."""
    made: list[bool] = []
    token = _made.set(made)
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        if made:
            raise ClientConnectionError(str(error) or "the connection was closed") from error
        raise
    finally:
        _made.reset(token)


class _GuardedResolver(AbstractResolver):
    """Looks names up as the guard does, and leaves out what may not be connected to."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        # Not the event loop's own threads: a name server that does not answer would hold up whatever else needs them.
        self._threads = ThreadPoolExecutor(_LOOKUPS, thread_name_prefix="holdfast-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name that may be connected to; OSError where there are none."""
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, self._guard.resolve, host, port)
        try:
            found = await lookup
        except Transient as error:
            raise OSError(str(error)) from error
        allowed = [address for address in found if self._guard.allows(address)]
        if not allowed:
            raise NotAllowed(
                f"{host} is {', '.join(found) or 'nowhere'}, which may not be connected to unless allow_private says so"
            )
        return [_result(host, port, address) for address in allowed]

    async def close(self) -> None:
        """Look nothing up any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _result(host: str, port: int, address: str) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=socket.AF_INET6 if ":" in address else socket.AF_INET,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
