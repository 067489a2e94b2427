"""The API on a port: uvicorn with our limits, and the app's alerts beside it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn

from holdfast.app import App
from holdfast.errors import ConfigError
from holdfast.ops.alerts import AlertLoop
from holdfast.ops.api.build import build_api
from holdfast.ops.api.connections import out_of_descriptors, server_options
from holdfast.ops.api.server import Server
from holdfast.ops.api.settings import ApiSettings
from holdfast.runtime.worker import Worker

STOP_WITHIN_S: Final = 5
"""Seconds for the requests that are under way when the server is told to stop; streams are ended at once."""


class ApiServer:
    """Answers on a socket until it is told to stop. worker: one of the same process, which is to be ready too."""

    def __init__(
        self, app: App, settings: ApiSettings, listening: socket.socket, *, worker: Worker | None = None
    ) -> None:
        api = build_api(app, settings)
        self._server: Server = api.state.holdfast
        self._server.worker = worker
        self._alerts = AlertLoop(app)
        self._socket = listening
        options = server_options()
        self._protocol = options["http"]
        config = uvicorn.Config(
            api,
            **options,
            lifespan="on",
            log_config=None,
            log_level="warning",
            timeout_graceful_shutdown=STOP_WITHIN_S,
        )
        self._uvicorn = _Uvicorn(config)

    async def run(self, on_started: Callable[[], None] = lambda: None) -> None:
        """Serve, and look at the alerts, until `stop`. on_started is called once requests are answered."""
        self._uvicorn.on_started = on_started
        alerts = asyncio.create_task(self._alerts.run())
        try:
            with out_of_descriptors(self._protocol):
                await self._uvicorn.serve(sockets=[self._socket])
        finally:
            alerts.cancel()
            with suppress(asyncio.CancelledError):
                await alerts

    def stop(self) -> None:
        """Answer what is under way, and end; open streams are ended at once."""
        self._server.stop()
        self._uvicorn.should_exit = True


class _Uvicorn(uvicorn.Server):
    """Leaves signals to whoever runs it, and says when it answers."""

    on_started: Callable[[], None] = staticmethod(lambda: None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None are."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        if self.started:
            self.on_started()


def listen(host: str, port: int) -> socket.socket:
    """A socket at this address; ConfigError where that cannot be, as when somebody else has the port."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # With its protocol named, asyncio switches Nagle off; else every answer waits 40 ms for an acknowledgement.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {why}; --port gives another one, 0 a free one"
        ) from error
    return listening


def address_of(host: str, listening: socket.socket) -> str:
    """The URL at which a socket is reached from this machine."""
    port = listening.getsockname()[1]
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it stands for
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"
