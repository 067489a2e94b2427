"""The demo must notice when a promise is not kept, or its exit code would mean nothing."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from holdfast.ops import cli, demo, flaky_server
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.testing import no_wait


def test_a_breaker_that_never_opens_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def never_opens(name: str, **settings: object) -> CircuitBreaker:
        return CircuitBreaker(name, failure_threshold=10**9)

    monkeypatch.setattr(demo, "CircuitBreaker", never_opens)
    monkeypatch.setattr(demo, "CUSTOMERS", 3)
    monkeypatch.setattr(demo, "RECOVERY_S", 0.0)
    with no_wait():
        result = CliRunner().invoke(cli.main, ["demo"])
    assert result.exit_code == 1
    assert "Not as promised: the breaker is open" in result.stderr
    assert "Every promise was kept." not in result.stdout


def test_the_flaky_server_answers_as_told_and_is_gone_afterwards() -> None:
    with flaky_server.FlakyServer() as service:
        service.answer_next(flaky_server.Mood.DOWN)
        assert [service.take_mood(), service.take_mood()] == [flaky_server.Mood.DOWN, flaky_server.Mood.WELL]
        assert service.requests == 2
