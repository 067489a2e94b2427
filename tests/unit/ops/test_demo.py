"""The demo must notice when a promise is not kept, or its exit code would mean nothing."""

from __future__ import annotations

import pytest

from holdfast.ops.demo import Demo
from holdfast.ops.flaky_server import FlakyServer


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def __call__(self, kind: str, line: str) -> None:
        self.lines.append((kind, line))

    def of(self, kind: str) -> str:
        return "\n".join(line for one, line in self.lines if one == kind)


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo sets these for its worker; they are put back afterwards."""
    monkeypatch.setenv("HOLDFAST_URL", "")
    monkeypatch.setenv("HOLDFAST_DEMO", "{}")


def test_a_fix_that_fixes_nothing_and_an_order_that_never_reaches_a_service_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings, take = Demo._settings, FlakyServer.take

    def forgetful(self: FlakyServer, order: int) -> int:
        status = take(self, order)
        self.seen.pop(7, None)
        return status

    monkeypatch.setattr(Demo, "_settings", lambda self, version: settings(self, "1"))
    monkeypatch.setattr(FlakyServer, "take", forgetful)
    told = Told()
    one = Demo(told, orders=50, patience_s=4.0)

    assert not one.run()
    assert any("mail: not done" in surprise for surprise in one.surprises)
    assert "canaries passed" not in told.of("result")
    assert "every order is charged" in one.surprises
