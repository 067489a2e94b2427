"""One connection to a server: commands go together, once again when an answer is lost, and never more often.

A command that may take something, as a read of a group does, goes once.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import hiredis
from redis import ConnectionPool, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from holdfast.streams.redis_streams.address import Address
from holdfast.streams.redis_streams.faults import LOST, AnswerLost, is_for_another, translated
from holdfast.streams.redis_streams.scripts import TEXTS, Word

Words = tuple[Word, ...]
_CONNECT_WITHIN_S: Final = 3.0
_READ_SIZE: Final = 1 << 18
_CLIENT_NAME: Final = "holdfast"
_TURNS: Final = 2
"""So often a command may be sent elsewhere: to the node that has our keys, and to it again with the scripts."""
_AGAIN_S: Final = 0.005
"""How long after a vain try to end a wait comes the next: the wait was just about to begin, or to end."""
_KEEPALIVE: Final = {
    getattr(socket, name): value
    for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items()
    if hasattr(socket, name)
}
_ABOUT: Final = re.compile(rb"id=(\d+) addr=(\S+)")
_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


def _pool(url: str, answer_within_s: float) -> ConnectionPool:
    """Only makes connections. Its own retries are off: by default redis-py sends a write up to ten times more."""
    keepalive = {} if url.startswith("unix:") else {"socket_keepalive": True, "socket_keepalive_options": _KEEPALIVE}
    return ConnectionPool.from_url(
        url,
        protocol=2,
        decode_responses=False,
        socket_timeout=answer_within_s,
        socket_connect_timeout=min(_CONNECT_WITHIN_S, answer_within_s),
        socket_read_size=_READ_SIZE,
        health_check_interval=0,  # a lost connection is noticed when it is used, and the command sent on a new one
        retry=Retry(NoBackoff(), 0),
        retry_on_error=[],
        redis_connect_func=_introduce,
        max_connections=2**31 - 1,  # it counts those that were made and are long closed; 100 by default
        **keepalive,
    )


def _introduce(wire: Any) -> None:
    """Log in as redis-py does, and give the connection a name for people, unless the URL has given it one."""
    wire.on_connect()
    if not wire.client_name:
        wire.send_command("CLIENT", "SETNAME", _CLIENT_NAME, check_health=False)
        with suppress(ResponseError):  # a user that may not have one goes without
            wire.read_response()


class Connection:
    """A connection, opened when it is needed and anew after an error. It is used by one thread at a time."""

    def __init__(self, address: Address, answer_within_s: float, *, takes: bool = False) -> None:
        self._location = address.location
        self._takes = takes
        """Whether it is for commands that take something, of which none may come late."""
        self._answer_within_s = answer_within_s
        self._pool = _pool(address.url, answer_within_s)
        self._wire: Any = None
        self._node: tuple[str, int] | None = None
        """Of a cluster: the node that has our keys, which may be another than that of the URL."""
        self._is_hung_up = False
        self._client: tuple[bytes, bytes] | None = None
        """How the server calls this connection: an id, and where it comes from."""
        self._stale: list[tuple[bytes, bytes]] = []
        """Connections that an answer was lost on: the server may not have read yet what was asked there."""
        self.can_wake = True
        """Whether a wait can be ended: the server has told this connection's id, and we may use it."""
        self.losses = 0
        """How often an answer was lost: what the server has done then is not known."""

    def ask(self, *commands: Words) -> list[Any]:
        """Send commands in one go, and answer; the first error is raised."""
        replies = self.try_all(*commands)
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise translated(reply, self._location) from reply
        return replies

    def try_all(self, *commands: Words) -> list[Any]:
        """Send commands in one go. Each has its reply, or the server's error, in the same place."""
        try:
            try:
                replies = self._send(commands)
            except LOST:
                self.losses += 1
                if self._is_hung_up:
                    raise
                self._node = None  # another node may have our keys by now: the one that we know best is asked
                replies = self._send(commands)  # every command is safe to send twice: once more, on a new connection
            for _ in range(_TURNS):
                again = [place for place, reply in enumerate(replies) if _is_undone(reply)]
                if not again:
                    break
                self._turn_to(replies[again[0]])
                for place, reply in zip(again, self._send_undone([commands[place] for place in again]), strict=True):
                    replies[place] = reply
        except (RedisError, OSError) as error:
            self.losses += isinstance(error, LOST)
            raise translated(error, self._location) from error
        return replies

    def ask_once(self, command: Words) -> Any:
        """Send a command that must not be done twice, and answer; AnswerLost when nobody knows whether it was done."""
        return self._once(command, lambda: self._send((command,))[0])

    def wait(self, command: Words, wait_s: float, bell: socket.socket, wake: Callable[[bytes], None]) -> Any:
        """The reply to a command that may wait in the server for so long, and must not be done twice.

        While there is something to read from `bell`, `wake` is called with the id of this connection's client, to end
        the wait. AnswerLost as with `ask_once`.
        """
        return self._once(command, lambda: self._wait(command, wait_s, bell, wake))

    def follow(self, other: Connection) -> None:
        """Go to the same node of a cluster as another one."""
        if self._node != other._node:
            self.close()
            self._node = other._node

    def hang_up(self) -> None:
        """From another thread: end whatever this connection is waiting for, with an error, and wait no more."""
        self._is_hung_up = True
        wire = self._wire
        found = getattr(wire, "_sock", None)
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back; the next command opens another."""
        wire, self._wire = self._wire, None
        if wire is not None:
            with suppress(RedisError, OSError):
                wire.disconnect()

    # ---------------------------------------------------------------- inside

    def _connected(self) -> Any:
        if self._wire is None:
            wire: Any = self._pool.make_connection()
            if self._node is not None:
                wire.host, wire.port = self._node
            self._wire = wire
            wire.connect()
            if self._takes:
                self._get_known(wire)
        return self._wire

    def _get_known(self, wire: Any) -> None:
        """Learn how the server calls this connection, and have it close those before, so that nothing comes late."""
        wire.send_command("CLIENT", "INFO", check_health=False)
        reply = _read(wire)
        found = None if isinstance(reply, Exception) else _ABOUT.match(reply)
        self._client = None if found is None else (found[1], found[2])
        self.can_wake = found is not None
        for number, place in self._stale:
            wire.send_command("CLIENT", "KILL", "ID", number, "ADDR", place, check_health=False)
            _read(wire)  # an error where this user may not do it: nothing can be done about that
        self._stale.clear()

    def _once(self, command: Words, send: Callable[[], Any]) -> Any:
        try:
            self._connected()
            for _ in range(_TURNS + 1):
                reply = self._answer(send)
                if not _is_undone(reply):
                    break
                self._turn_to(reply)
                self._load([command])
        except (RedisError, OSError) as error:  # of connecting: nothing was asked yet
            self.close()
            self._node = None
            raise translated(error, self._location) from error
        if isinstance(reply, ResponseError):
            raise translated(reply, self._location) from reply
        return reply

    def _answer(self, send: Callable[[], Any]) -> Any:
        try:
            return send()
        except (RedisError, OSError) as error:
            self.losses += 1
            if self._client is not None:
                self._stale.append(self._client)
            raise AnswerLost(str(translated(error, self._location))) from error

    def _send(self, commands: Sequence[Words]) -> list[Any]:
        try:
            wire = self._connected()
            wire.send_packed_command([_pack(command) for command in commands], check_health=False)
            return [_read(wire) for _ in commands]
        except BaseException:  # what is still to come on this connection is nobody's answer
            self.close()
            raise

    def _wait(self, command: Words, wait_s: float, bell: socket.socket, wake: Callable[[bytes], None]) -> Any:
        try:
            wire = self._connected()
            wire.send_packed_command([_pack(command)], check_health=False)
            self._await_reply(wire, wait_s, bell, wake)
            return _read(wire)
        except BaseException:  # what is still to come on this connection is nobody's answer
            self.close()
            raise

    def _await_reply(self, wire: Any, wait_s: float, bell: socket.socket, wake: Callable[[bytes], None]) -> None:
        """Return when there is something to read."""
        sock = wire._sock
        is_rung = False
        for_s = wait_s + self._answer_within_s
        while True:
            ready, _, _ = select.select([sock] if is_rung else [sock, bell], [], [], _AGAIN_S if is_rung else for_s)
            if sock in ready:
                return
            if not ready and not is_rung:
                raise RedisTimeoutError("no answer in time")
            is_rung = True
            for_s -= _AGAIN_S
            if for_s < 0:
                raise RedisTimeoutError("no answer in time")
            if self.can_wake and self._client is not None:
                wake(self._client[0])

    def _turn_to(self, reply: ResponseError) -> None:
        """Nothing was done: next is the node that has our keys, or whom the address leads to by now."""
        if not isinstance(reply, NoScriptError):
            self.close()
        if isinstance(reply, MovedError):
            self._node = (reply.host or self._pool.connection_kwargs["host"], reply.port)

    def _send_undone(self, commands: Sequence[Words]) -> list[Any]:
        """The server did not know the scripts, or is another one: load them, and send once more."""
        self._load(commands)
        return self._send(commands)

    def _load(self, commands: Sequence[Words]) -> None:
        texts = {words[1]: TEXTS[words[1]] for words in commands if words[0] == b"EVALSHA" and words[1] in TEXTS}
        if texts:
            self._send([(b"SCRIPT", b"LOAD", text) for text in texts.values()])


def _read(wire: Any) -> Any:
    """The next reply; the error that the server answered with is one too."""
    try:
        return wire.read_response()
    except ResponseError as error:
        return error


def _is_undone(reply: Any) -> bool:
    return isinstance(reply, NoScriptError) or (isinstance(reply, ResponseError) and is_for_another(reply))
