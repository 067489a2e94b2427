"""Tells workers that something may have changed: one thread listens for what the scripts of any process publish."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any, Final

from redis import RedisError, exceptions

from holdfast.clock import chance
from holdfast.ports import Clock
from holdfast.stores.redis.connection import Address, new_wire
from holdfast.stores.signals import Signals

_LOOK_WITHIN_S: Final = 30.0
"""A line that is silent for so long is asked whether it still lives."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class News:
    """A connection that only listens, opened when a worker first claims. While it is away, waits end by themselves."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._channel = f"{{{address.prefix}}}:news"
        self._mutex = threading.Lock()
        self._signals = Signals()
        self._thread: threading.Thread | None = None
        self._wire: Any = None
        self._stopped = threading.Event()

    def look(self) -> None:
        """A worker of this loop is about to ask for work: what is published from now on is news to it."""
        if self._thread is None:
            self._start()
        with self._mutex:
            self._signals.look(asyncio.get_running_loop())

    async def wait(self, timeout_s: float) -> None:
        """Return when there was news since this loop looked last, or after so long."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._start()
        with self._mutex:
            news = self._signals.listen(loop)
        try:
            async with self._clock.timeout(timeout_s):
                await news
        except TimeoutError:
            return
        finally:
            with self._mutex:
                self._signals.leave(loop, news)

    def tell(self) -> None:
        """Wake everybody who waits in this process."""
        with self._mutex:
            self._signals.tell()

    def close(self) -> None:
        """Let nobody wait any more, and give the connection back."""
        with self._mutex:
            self._stopped.set()
            self._signals.tell()
            thread, wire = self._thread, self._wire
        if wire is not None:
            _hang_up(wire)
        if thread is not None:
            thread.join()

    # ---------------------------------------------------------------- the thread

    def _start(self) -> None:
        with self._mutex:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._listen, name="holdfast-news", daemon=True)
                self._thread.start()

    def _listen(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopped.is_set():
            try:
                wire = self._subscribe()
                pause_s = _FIRST_PAUSE_S
                self.tell()  # there may have been news that nobody heard
                self._hear(wire)
            except (RedisError, OSError):  # workers are told what is wrong by their own calls
                self._clock.wait(self._stopped, pause_s * (0.5 + chance()))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            finally:
                with self._mutex:
                    wire, self._wire = self._wire, None
                if wire is not None:
                    _hang_up(wire)

    def _subscribe(self) -> Any:
        wire = new_wire(self._address)
        with self._mutex:
            self._wire = wire  # before it is connected: who closes us hangs up, and does not wait for a silent server
        wire.connect()
        if not self._stopped.is_set():
            wire.send_command("SUBSCRIBE", self._channel, check_health=False)
            wire.read_response()
        return wire

    def _hear(self, wire: Any) -> None:
        is_asked = False
        while not self._stopped.is_set():
            try:
                kind = wire.read_response(timeout=_LOOK_WITHIN_S, disconnect_on_error=False)[0]
            except exceptions.TimeoutError:
                if is_asked:
                    raise
                wire.send_command("PING", check_health=False)
                is_asked = True
                continue
            is_asked = False
            if kind == b"message":
                self.tell()


def _hang_up(wire: Any) -> None:
    with suppress(RedisError, OSError):
        wire.disconnect()
