"""What the fault tests share: how large they are, where they run, and the report that `make faults` prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests.faults.arena import Arena

Report = Callable[[str], None]
_REPORT = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def is_full() -> bool:
    """HOLDFAST_FAULTS=full is the size of the fault plan; without it everything is small enough for the suite."""
    size = os.environ.get("HOLDFAST_FAULTS", "small")
    assert size in {"small", "full"}, f"HOLDFAST_FAULTS={size}: small or full"
    return size == "full"


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Arena]:
    """A store of its own, with an audit trail."""
    arena = Arena(tmp_path)
    yield arena
    arena.close()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Adds a line to the report."""
    lines = request.config.stash.setdefault(_REPORT, [])

    def add(line: str) -> None:
        lines.append(line)
        print(line)

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report where it was asked for."""
    if "HOLDFAST_FAULTS" in os.environ and (lines := config.stash.get(_REPORT, [])):
        terminalreporter.section("faults: what was injected, and what came of it")
        for line in lines:
            terminalreporter.write_line(line)


def missing(what: str) -> NoReturn:
    """Skip loudly, or fail when CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(what)
    pytest.skip(what)
