"""The flaky services of the demo, asked over HTTP as the demo asks them."""

from __future__ import annotations

import socket
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from holdfast.ops.flaky_server import FlakyServer, Mood
from holdfast.testing import ScriptedRng


def ask(service: FlakyServer, order: int) -> int:
    try:
        with urlopen(f"{service.url}/{order}", timeout=30) as answer:
            assert answer.read() == b"ok"
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_it_answers_and_remembers_what_it_was_asked() -> None:
    with FlakyServer() as service:
        assert [ask(service, 1), ask(service, 2), ask(service, 1)] == [200, 200, 200]
        assert service.seen == {1: 2, 2: 1}
        assert service.requests == 3


def test_it_fails_the_share_that_it_is_told_to() -> None:
    with FlakyServer(ScriptedRng([0.05, 0.5])) as service:
        service.failing_share = 0.1
        assert [ask(service, 1), ask(service, 1)] == [503, 200]
        assert service.failures == 1


def test_while_it_is_down_nothing_is_done() -> None:
    with FlakyServer() as service:
        service.mood = Mood.DOWN
        assert ask(service, 1) == 503
        assert not service.seen
        assert service.requests == 1


def test_a_client_that_goes_away_says_nothing_on_the_terminal(capfd: object) -> None:
    with FlakyServer() as service:
        parts = urlsplit(service.url)
        for _ in range(5):
            with socket.create_connection((parts.hostname, parts.port or 0), timeout=30) as client:
                client.sendall(b"GET /1 HT")
        assert ask(service, 2) == 200
    assert capfd.readouterr().err == ""  # type: ignore[attr-defined]


def test_it_is_gone_when_the_block_is_left() -> None:
    with FlakyServer() as service:
        parts = urlsplit(service.url)
    with socket.socket() as probe:
        assert probe.connect_ex((parts.hostname or "", parts.port or 0)) != 0
