"""The flaky service of the demo, asked over HTTP as the demo asks it."""

from __future__ import annotations

import socket
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from holdfast.ops.flaky_server import FlakyServer, Mood


def ask(service: FlakyServer) -> tuple[int, str | None]:
    """The status of the answer, and the wait it asks for."""
    try:
        with urlopen(service.url, timeout=30) as answer:
            assert answer.read() == b"ok"
            return answer.status, answer.headers["Retry-After"]
    except HTTPError as error:
        with error:
            return error.code, error.headers["Retry-After"]


def connect(service: FlakyServer) -> socket.socket:
    parts = urlsplit(service.url)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


@pytest.mark.parametrize(
    ("mood", "answer"),
    [
        (Mood.WELL, (200, None)),
        (Mood.BUSY, (429, "1")),
        (Mood.REJECTING, (422, None)),
        (Mood.DOWN, (503, None)),
    ],
)
def test_each_mood_has_its_answer(mood: Mood, answer: tuple[int, str | None]) -> None:
    with FlakyServer() as service:
        service.mood = mood
        assert [ask(service), ask(service)] == [answer, answer]
        assert service.requests == 2


def test_a_connection_is_really_reset_and_not_just_closed() -> None:
    with FlakyServer() as service:
        service.mood = Mood.RESETTING
        with connect(service) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
        with pytest.raises(ConnectionResetError):
            urlopen(service.url, timeout=30)
        assert service.requests == 2


def test_moods_that_were_set_for_the_next_requests_are_used_up_in_order() -> None:
    with FlakyServer() as service:
        service.mood = Mood.DOWN
        service.answer_next(Mood.BUSY, Mood.WELL)
        assert [ask(service)[0] for _ in range(4)] == [429, 200, 503, 503]


def test_its_port_is_closed_when_the_block_is_left() -> None:
    with FlakyServer() as service:
        connect(service).close()
    with pytest.raises(ConnectionRefusedError):
        connect(service)
