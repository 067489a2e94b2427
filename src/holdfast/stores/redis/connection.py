"""One connection to a server, which sends scripts: once again when an answer is lost, and never more often."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct as Layout
from typing import Any, Final, cast

import hiredis
from msgspec import Struct
from redis import ConnectionPool, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoScriptError, ResponseError
from redis.retry import Retry

from holdfast.clock import new_secret
from holdfast.errors import ConfigError, StoreAway, StoreError
from holdfast.stores.redis.call import Answer, Call
from holdfast.stores.redis.faults import LOST, is_for_another, translated

_CONNECT_WITHIN_S: Final = 3.0
_CLIENT_NAME: Final = "holdfast"
_READ_SIZE: Final = 1 << 18
_WAITED_S: Final = 3600
_TURNS: Final = 2
"""So often a call may be sent elsewhere: to the node that has our keys, and to it again with the scripts."""
_KEEPALIVE: Final = {
    getattr(socket, name): value
    for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items()
    if hasattr(socket, name)
}
_pack_times = Layout(">ddd").pack
_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


class Address(Struct, frozen=True, kw_only=True):
    """Where a server is, and how it is spoken to."""

    url: str
    location: str
    """The same for people, without the password."""
    prefix: str
    """Of every key: a hash tag, so that they are all in one slot of a cluster."""
    key_window_s: float
    answer_within_s: float
    wait_replicas: int = 0
    wait_s: float = 1.0


def check_url(url: str) -> None:
    """Refuse what redis-py cannot read."""
    try:
        _pool(url, 1.0).make_connection()
    except (ValueError, TypeError, RedisError) as error:
        raise ConfigError(f"url: {error}") from None


def new_wire(address: Address) -> Any:
    """A connection of redis-py's, not connected yet."""
    return _pool(address.url, address.answer_within_s).make_connection()


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
        health_check_interval=0,  # a lost connection is noticed when it is used, and the call sent on a new one
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

    def __init__(self, address: Address, offset_s: Callable[[], float], answer_within_s: float | None = None) -> None:
        self._address = address
        self._offset_s = offset_s
        self._pool = _pool(address.url, (answer_within_s or address.answer_within_s) + address.wait_s)
        self._key = f"{{{address.prefix}}}:".encode()
        self._name = new_secret().hex().encode()
        self._numbers = itertools.count(1)
        self._wire: Any = None
        self._wires = 0
        """How many there were."""
        self._node: tuple[str, int] | None = None
        """Of a cluster: the node that has our keys, which may be another than that of the URL."""

    def run(self, call: Call[Answer]) -> Answer:
        """Send one call, and answer or raise."""
        (answer,) = self.run_all([call])
        if isinstance(answer, StoreError):
            raise answer
        return cast("Answer", answer)

    def run_all(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Send calls in one go. Each has its answer, or the StoreError that is to be raised, in the same place."""
        try:
            try:
                replies = self._send(calls)
            except LOST:
                self._node = None  # another node may have our keys by now: the one that we know best is asked
                replies = self._send(calls)  # every call is safe to send twice: once more, on a new connection
            for _ in range(_TURNS):
                again = [place for place, reply in enumerate(replies) if _is_undone(reply)]
                if not again:
                    break
                self._turn_to(replies[again[0]])
                for place in again:
                    calls[place].number = 0  # no server has seen it: it comes after those that were done
                for place, reply in zip(again, self._send_undone([calls[place] for place in again]), strict=True):
                    replies[place] = reply
        except (RedisError, OSError) as error:
            raise translated(error, self._address.location) from error
        return [self._answer(call, reply) for call, reply in zip(calls, replies, strict=True)]

    def command(self, *words: str | bytes | int) -> Any:
        """The answer to a command that is no script."""
        try:
            try:
                return self._command(words)
            except LOST:
                return self._command(words)
        except (RedisError, OSError) as error:
            raise translated(error, self._address.location) from error

    def close(self) -> None:
        """Give the connection back; the next call opens another."""
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
            wire.connect()
            self._wire = wire
            self._wires += 1
        return self._wire

    def _command(self, words: tuple[str | bytes | int, ...]) -> Any:
        try:
            wire = self._connected()
            wire.send_command(*words, check_health=False)
            return wire.read_response()
        except ResponseError:
            raise
        except BaseException:
            self.close()
            raise

    def _send(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """The reply to each, or the error that the server answered with."""
        try:
            wire = self._connected()
            packed = [self._packed(call) for call in calls]
            is_awaited = self._address.wait_replicas > 0 and any(call.script.is_write for call in calls)
            if is_awaited:
                packed += self._packed_wait()
            wire.send_packed_command(packed, check_health=False)
            replies = [_read(wire) for _ in calls]
            return self._awaited(wire, calls, replies) if is_awaited else replies
        except BaseException:  # what is still to come on this connection is nobody's answer
            self.close()
            raise

    def _packed(self, call: Call[Any]) -> bytes:
        call.number = call.number or next(self._numbers)
        call.line = self._wires
        about = _pack_times(self._offset_s(), self._address.key_window_s, call.number) + self._name
        return _pack((b"EVALSHA", call.script.sha, b"1", self._key, call.words, about, *call.texts))

    def _packed_wait(self) -> list[bytes]:
        """Behind all calls: one WAIT is about every write before it on its connection.

        Since 7.2 it is about nothing where there was none. A call that is sent again may write nothing, as it did so on
        a connection that is gone: so there is a write in any case.
        """
        milliseconds = max(1, int(self._address.wait_s * 1000))  # 0 would be for ever
        return [
            _pack((b"SET", self._key + b"waited", b"", b"EX", _WAITED_S)),
            _pack((b"WAIT", self._address.wait_replicas, milliseconds)),
        ]

    def _awaited(self, wire: Any, calls: Sequence[Call[Any]], replies: list[Any]) -> list[Any]:
        """The replies, but for those writes that too few replicas have."""
        _read(wire)  # of the write that is there to be waited for, no more
        replicas = _read(wire)
        if isinstance(replicas, ResponseError):  # a replica takes no WAIT, and has refused the writes too
            replicas = 0
        if replicas >= self._address.wait_replicas:
            return replies
        return [
            self._not_replicated(replicas) if call.script.is_write and not isinstance(reply, ResponseError) else reply
            for call, reply in zip(calls, replies, strict=True)
        ]

    def _not_replicated(self, replicas: int) -> StoreAway:
        address = self._address
        return StoreAway(
            f"{address.location}: {replicas} of {address.wait_replicas} replicas have it after {address.wait_s:g} s; "
            "it is written, and may be lost in a failover: see that its replicas are connected, and send it again"
        )

    def _turn_to(self, reply: ResponseError) -> None:
        """Nothing was done: next is the node that has our keys, or whom the address leads to by now."""
        self.close()
        if isinstance(reply, MovedError):
            self._node = (reply.host or self._pool.connection_kwargs["host"], reply.port)

    def _send_undone(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """The server did not know the scripts, or is another one: load them, and send once more."""
        for script in {call.script.name: call.script for call in calls}.values():
            self._command(("SCRIPT", "LOAD", script.text))
        return self._send(calls)

    def _answer(self, call: Call[Any], reply: Any) -> Any:
        if isinstance(reply, ResponseError):
            told = translated(reply, self._address.location)
            told.__cause__ = reply
            return told
        return reply if isinstance(reply, StoreError) else call(reply)


def _read(wire: Any) -> Any:
    """The next reply; the error that the server answered with is one too."""
    try:
        return wire.read_response()
    except ResponseError as error:
        return error


def _is_undone(reply: Any) -> bool:
    return isinstance(reply, NoScriptError) or (isinstance(reply, ResponseError) and is_for_another(reply))
