"""What the fault tests share: how large they are, where they run, and the report that `make faults` prints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.faults.arena import Arena
from tests.faults.engines import Engine, PostgresEngine, RedisEngine, SqliteEngine
from tests.servers import RedisServer

Report = Callable[[str], None]
AUDITED: Final = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0"}
"""A Redis server whose append-only file keeps every write."""
_REPORT = pytest.StashKey[list[str]]()


def on(*names: str) -> pytest.MarkDecorator:
    """The test runs once on each of these stores."""
    return pytest.mark.parametrize("engine", names, indirect=True)


every_store: Final = on("sqlite", "postgres", "redis")
waits: Final = pytest.mark.waits
"""The test waits for leases and limits most of the time, and keeps no processor busy."""


@pytest.fixture(scope="session")
def is_full() -> bool:
    """HOLDFAST_FAULTS=full is the size of the fault plan; without it everything is small enough for the suite."""
    size = os.environ.get("HOLDFAST_FAULTS", "small")
    assert size in {"small", "full"}, f"HOLDFAST_FAULTS={size}: small or full"
    return size == "full"


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty store: a SQLite file, unless the test is marked with `on` for others."""
    name = getattr(request, "param", "sqlite")
    if name == "sqlite":
        yield SqliteEngine(tmp_path)
    elif name == "postgres":
        with closing(PostgresEngine(request.getfixturevalue("postgres_server"))) as engine:
            yield engine
    else:
        with RedisServer(AUDITED) as server, closing(RedisEngine(server)) as engine:
            yield engine


@pytest.fixture
def arena(tmp_path: Path, engine: Engine) -> Iterator[Arena]:
    """A store of its own, with an audit trail."""
    with closing(Arena(tmp_path, engine)) as arena:
        yield arena


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Adds a line to the report."""
    lines = request.config.stash.setdefault(_REPORT, [])
    callspec = getattr(request.node, "callspec", None)
    name = callspec.params.get("engine") if callspec else None
    name = name or getattr(request.module, "STORE", "sqlite")

    def add(line: str) -> None:
        line = f"{name:8} {line}"
        lines.append(line)
        print(line)

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report where it was asked for."""
    if "HOLDFAST_FAULTS" in os.environ and (lines := config.stash.get(_REPORT, [])):
        terminalreporter.section("faults: what was injected, and what came of it")
        for line in lines:
            terminalreporter.write_line(line)
