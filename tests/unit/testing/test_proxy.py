"""The fault proxy between a plain socket and an echo server that counts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from holdfast.clock import SystemClock
from holdfast.testing import FaultProxy, ScriptedRng

CLOCK = SystemClock()
SOON_S = 5.0
QUIET_S = 0.15


class Echo:
    """Sends back what it gets, and remembers it."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.heard = b""
        self.ends: list[str] = []
        """How each connection came to its end."""
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._echo, args=(peer,), daemon=True))
            self._threads[-1].start()

    def _echo(self, peer: socket.socket) -> None:
        with peer:
            try:
                while data := peer.recv(65_536):
                    self.heard += data
                    peer.sendall(data)
            except ConnectionError:
                self.ends.append("reset")
            else:
                self.ends.append("closed")

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(SOON_S)


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as echo:
        yield echo


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", echo.port) as proxy:
        yield proxy


def call(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), SOON_S)


def ask(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    return hear(client, len(data))


def hear(client: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = client.recv(size - len(got))
        if not more:
            return got
        got += more
    return got


def hears_nothing(client: socket.socket) -> bool:
    client.settimeout(QUIET_S)
    try:
        return client.recv(1) == b"?"
    except TimeoutError:
        return True
    finally:
        client.settimeout(SOON_S)


def until(condition: object) -> None:
    assert callable(condition)
    began_s = CLOCK.monotonic()
    while not condition():
        assert CLOCK.monotonic() - began_s < SOON_S
        CLOCK.sleep(0.005)


def test_without_a_fault_everything_passes_and_is_counted(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        assert ask(client, b"x" * 300_000) == b"x" * 300_000
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""

    until(lambda: echo.ends == ["closed"])
    traffic = proxy.traffic
    assert (traffic.connections, traffic.requests_bytes, traffic.replies_bytes) == (1, 300_000, 300_000)
    assert (traffic.resets, traffic.replies_dropped) == (0, 0)


def test_latency_is_added_both_ways(proxy: FaultProxy) -> None:
    with call(proxy) as client:
        ask(client, b"warm")
        proxy.latency_s = 0.1
        began_s = CLOCK.monotonic()
        ask(client, b"ping")
        assert CLOCK.monotonic() - began_s >= 0.2


def test_several_chunks_are_under_way_at_once(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        ask(client, b"warm")
        proxy.latency_s = 0.3
        began_s = CLOCK.monotonic()
        for n in range(1, 6):
            client.sendall(b"x")
            until(lambda n=n: CLOCK.monotonic() - began_s > 0.02 * n)  # so that each is a chunk of its own
        until(lambda: echo.heard == b"warm" + 5 * b"x")
        assert 0.3 <= CLOCK.monotonic() - began_s < 5 * 0.3


def test_jitter_is_drawn_for_each_chunk(echo: Echo) -> None:
    with FaultProxy("127.0.0.1", echo.port, rng=ScriptedRng([0.5])) as proxy, call(proxy) as client:
        proxy.jitter_s = 0.2
        began_s = CLOCK.monotonic()
        ask(client, b"ping")
        assert CLOCK.monotonic() - began_s >= 0.2


def test_a_slow_link_passes_so_many_bytes_a_second(proxy: FaultProxy) -> None:
    proxy.bytes_per_second = 10_000
    with call(proxy) as client:
        began_s = CLOCK.monotonic()
        assert ask(client, b"x" * 2_000) == b"x" * 2_000
        assert CLOCK.monotonic() - began_s >= 0.2


def test_reset_cuts_both_sides_of_every_connection(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as one, call(proxy) as two:
        ask(one, b"a")
        ask(two, b"b")
        proxy.reset()
        for client in (one, two):
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        until(lambda: echo.ends == ["reset", "reset"])
        assert proxy.traffic.resets == 2
    with call(proxy) as client:
        assert ask(client, b"again") == b"again"


def test_resets_may_come_by_chance(echo: Echo) -> None:
    # Two draws for each chunk, of jitter and of reset: the second reply is the one that is cut.
    with FaultProxy("127.0.0.1", echo.port, rng=ScriptedRng([0.9] * 7 + [0.0])) as proxy, call(proxy) as client:
        proxy.reset_probability = 0.5
        assert ask(client, b"a") == b"a"
        client.sendall(b"b")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        until(lambda: echo.heard == b"ab")


def test_refusing_keeps_open_connections_and_the_port(proxy: FaultProxy) -> None:
    with call(proxy) as client:
        ask(client, b"a")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            call(proxy)
        assert ask(client, b"b") == b"b"
    proxy.heal()
    with call(proxy) as client:
        assert ask(client, b"c") == b"c"


def test_a_black_hole_tells_nobody_and_delivers_after_all(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as old:
        ask(old, b"a")
        proxy.blackhole()
        old.sendall(b"b")
        with call(proxy) as new:
            new.sendall(b"c")
            assert hears_nothing(old)
            assert hears_nothing(new)
            assert echo.heard == b"a"
            proxy.heal()
            assert (hear(old, 1), hear(new, 1)) == (b"b", b"c")


def test_a_black_hole_for_replies_lets_requests_through(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        proxy.blackhole("replies")
        client.sendall(b"a")
        until(lambda: echo.heard == b"a")
        assert hears_nothing(client)
        proxy.heal()
        assert hear(client, 1) == b"a"


def test_a_black_hole_for_requests_lets_replies_through(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        ask(client, b"a")
        proxy.blackhole("requests")
        client.sendall(b"b")
        assert hears_nothing(client)
        assert echo.heard == b"a"


def test_the_server_does_not_learn_of_an_end_in_a_black_hole(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        ask(client, b"a")
        proxy.blackhole()
    CLOCK.sleep(QUIET_S)
    assert echo.ends == []
    proxy.heal()
    until(lambda: echo.ends == ["closed"])


def test_the_nth_reply_is_lost_and_its_connection_cut(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        proxy.drop_reply(2)
        assert ask(client, b"a") == b"a"
        client.sendall(b"b")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.heard == b"ab"
    assert proxy.traffic.replies_dropped == 1
    with call(proxy) as client:
        assert ask(client, b"c") == b"c"


def test_the_reply_to_a_pattern_is_lost_also_when_it_comes_in_pieces(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        proxy.drop_reply(to=b"COMMIT")
        assert ask(client, b"BEGIN") == b"BEGIN"
        assert ask(client, b"COM") == b"COM"
        client.sendall(b"MIT")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert echo.heard == b"BEGINCOMMIT"


def test_only_the_nth_match_counts(proxy: FaultProxy) -> None:
    with call(proxy) as client:
        proxy.drop_reply(2, to=b"set")
        assert ask(client, b"set 1") == b"set 1"
        assert ask(client, b"get 1") == b"get 1"
        client.sendall(b"set 2")
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_after_a_lost_reply_there_may_be_silence_until_it_is_healed(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        proxy.drop_reply(then="silence")
        client.sendall(b"a")
        assert hears_nothing(client)
        client.sendall(b"b")
        assert hears_nothing(client)
        assert echo.heard == b"a"
        proxy.heal()
        with pytest.raises(ConnectionResetError):  # bytes are missing: nobody could make sense of the rest
            client.recv(1)


def test_the_server_does_not_learn_of_the_end_of_a_silent_connection(proxy: FaultProxy, echo: Echo) -> None:
    with call(proxy) as client:
        proxy.drop_reply(then="silence")
        client.sendall(b"a")
        assert hears_nothing(client)
    CLOCK.sleep(QUIET_S)
    assert echo.ends == []
    proxy.heal()
    until(lambda: echo.ends == ["reset"])


def test_replies_are_counted_from_one(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="nth=0"):
        proxy.drop_reply(0)


def test_a_server_that_is_not_there_cuts_the_connection(proxy: FaultProxy, echo: Echo) -> None:
    echo.close()
    with pytest.raises(ConnectionResetError), call(proxy) as client:  # perhaps before the call has returned
        client.recv(1)


def test_new_connections_go_to_a_new_server(proxy: FaultProxy, echo: Echo) -> None:
    with closing(Echo()) as other, call(proxy) as old:
        ask(old, b"a")
        proxy.upstream = ("127.0.0.1", other.port)
        with call(proxy) as new:
            ask(new, b"b")
        ask(old, b"c")
        assert (echo.heard, other.heard) == (b"ac", b"b")


def test_closing_cuts_what_is_open_and_may_be_done_twice(echo: Echo) -> None:
    proxy = FaultProxy("127.0.0.1", echo.port)
    with call(proxy) as client:
        ask(client, b"a")
        proxy.close()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    proxy.close()
    with pytest.raises(ConnectionRefusedError):
        call(proxy)
