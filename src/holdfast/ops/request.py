"""One HTTP request to one address: no redirects, no proxies, and bounds on how long and how much."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from holdfast.addresses import AddressGuard, Place
from holdfast.errors import Transient

LARGEST_ANSWER: Final = 65_536
"""Bytes of an answer's body that are read; what follows is left."""


class Answer(Struct, frozen=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """By name in small letters."""
    body: bytes


class Request:
    """A request that another thread may cut short.

    guard: asked for the addresses, when the request is sent [any address will do].
    idle_s: how long to wait for a connection, and for each piece of the answer. A server that sends its answer drop by
        drop is stopped by `cut`.
    """

    def __init__(
        self,
        place: Place,
        *,
        method: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        guard: AddressGuard | None = None,
        context: ssl.SSLContext | None = None,
        idle_s: float = 5.0,
    ) -> None:
        self._place = place
        self._method = method
        self._body = body
        self._headers = {"User-Agent": "holdfast", "Connection": "close", **(headers or {})}
        self._guard = guard
        self._context = context
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    def send(self) -> Answer:
        """Send it and read the answer; this blocks. What goes wrong on the way is raised as OSError or Transient."""
        place = self._place
        hosts = [place.host] if self._guard is None else self._guard.addresses(place)
        connection = _Connection(place, partial(self._connected, hosts))
        try:
            connection.request(self._method, place.path, body=self._body, headers=self._headers)
            with connection.getresponse() as answer:
                body = answer.read(LARGEST_ANSWER)
                return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)
        except http.client.HTTPException as error:
            raise Transient(f"{place.shown} gave no proper answer: {type(error).__name__}") from error
        finally:
            connection.close()

    def cut(self) -> None:
        """End it now, wherever it stands; a look-up of the name goes on to its own end, and nothing follows it."""
        with self._lock:
            self._is_cut = True
            if self._socket is not None:
                try:
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # without TLS's farewell, which may wait
                except OSError:
                    return  # it has ended already

    def _connected(self, hosts: list[str]) -> socket.socket:
        """A connection to the first of these that takes it."""
        place, last = self._place, OSError(f"{self._place.shown} could not be reached")
        for host in hosts:
            if self._is_cut:
                raise self._given_up()
            try:
                made = socket.create_connection((host, place.port), timeout=self._idle_s)
            except OSError as error:
                last = error
            else:
                return self._secured(made)
        raise last

    def _secured(self, made: socket.socket) -> socket.socket:
        """The connection as it is used, from here on within the reach of `cut`."""
        place = self._place
        try:
            if place.scheme == "https":
                context = ssl.create_default_context() if self._context is None else self._context
                made = context.wrap_socket(made, server_hostname=place.host, do_handshake_on_connect=False)
            with self._lock:
                self._socket = made
                if self._is_cut:
                    raise self._given_up()
            if isinstance(made, ssl.SSLSocket):
                made.do_handshake()
        except BaseException:
            made.close()
            raise
        return made

    def _given_up(self) -> TimeoutError:
        return TimeoutError(f"{self._place.shown}: the request was given up")


class _Connection(http.client.HTTPConnection):
    """A connection whose socket is made by us; the Host header is that of the place."""

    def __init__(self, place: Place, connected: Callable[[], socket.socket]) -> None:
        super().__init__(place.host, place.port)
        self.default_port = 443 if place.scheme == "https" else 80
        self._connected = connected

    def connect(self) -> None:
        """Connect."""
        self.sock = self._connected()
