"""What the fault tests share: how large they are, where they run, and the report that `make faults` prints."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from tests.faults.arena import Arena
from tests.faults.engines import Engine, PostgresEngine, RedisEngine, SqliteEngine
from tests.faults.report import FINDINGS, Figures, Finding, Report, finding, keep, read, told
from tests.servers import RedisServer, program

AUDITED: Final = {"appendonly": "yes", "appendfsync": "no", "auto-aof-rewrite-percentage": "0"}
"""A Redis server whose append-only file keeps every write."""
_BEGUN: Final = pytest.StashKey[int]()
"""How many findings there were in the file before these tests."""
_HERE: Final = pytest.StashKey[list[Finding]]()
"""Those of this process."""
_NO_FIGURES: Final = Figures()
IS_FULL: Final = os.environ.get("HOLDFAST_FAULTS") == "full"
"""Whether every test runs on every store and stream; without, each of these is in some of them."""
_WHY: Final = 400
"""So much of what an assertion says: it begins with what is shortened, and goes on with what was found."""


def on(*names: str) -> pytest.MarkDecorator:
    """The test runs once on each of these stores."""
    return pytest.mark.parametrize("engine", names, indirect=True)


every_store: Final = on("sqlite", "postgres", "redis")
waits: Final = pytest.mark.waits
"""The test waits for leases and limits most of the time, and keeps no processor busy."""
busy: Final = pytest.mark.busy
"""The test keeps a processor busy and bounds no time, so that another one may run beside it."""
full_only: Final = pytest.mark.skipif(not IS_FULL, reason="full size only: make faults")
"""The test cannot be made small enough for the suite."""


def small_on(*names: str) -> pytest.MarkDecorator:
    """The test runs once on each store at full size, and otherwise on these alone."""
    stores = ("sqlite", "postgres", "redis")
    params = [pytest.param(one, marks=() if one in names else full_only) for one in stores]
    return pytest.mark.parametrize("engine", params, indirect=True)


@pytest.fixture(scope="session")
def is_full() -> bool:
    """HOLDFAST_FAULTS=full is the size of the fault plan; without it everything is small enough for the suite."""
    size = os.environ.get("HOLDFAST_FAULTS", "small")
    assert size in {"small", "full"}, f"HOLDFAST_FAULTS={size}: small or full"
    return size == "full"


@pytest.fixture
def strace() -> str:
    """The tracer."""
    return program("strace", "strace")


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
    """Adds a finding."""

    def add(
        fault: str,
        *,
        injected: int,
        figures: Figures = _NO_FIGURES,
        note: str = "",
        seed: str = "",
        row: str = "",
        store: str = "",
    ) -> None:
        one = finding(
            row=row or _row_of(request.node.path),
            store=store or _store_of(request.node),
            fault=fault,
            injected=injected,
            figures=figures,
            note=note,
            seed=seed,
        )
        _add(one, request.config)
        print(told(one))

    return add


def pytest_configure(config: pytest.Config) -> None:
    """Remember what was found before."""
    config.stash[_BEGUN] = len(_kept())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails is a promise that was not kept, and one that is skipped at full size was not tried."""
    result = yield
    if result.failed or (result.skipped and IS_FULL):
        words = " ".join(str(call.excinfo.value).split()) if call.excinfo else ""
        why = words[:_WHY] or ("it failed" if result.failed else "it was skipped")
        broken = _broken(item.name, why, row=_row_of(item.path), store=_store_of(item))
        _add(broken if result.failed else replace(broken, is_run=False), item.config)
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str) -> None:
    """So is one that takes its process with it; only where tests run in processes of their own is that survived."""
    path, _, name = crashitem.partition("::")
    keep(_broken(name, "the process of the test died", row=_row_of(Path(path)), store="none"))


def _broken(name: str, why: str, *, row: str, store: str) -> Finding:
    fault = name.removeprefix("test_").replace("_", " ")
    return Finding(row=row, store=store, fault=fault, injected=0, note=why, is_kept=False)


def _add(one: Finding, config: pytest.Config) -> None:
    keep(one)
    config.stash.setdefault(_HERE, []).append(one)


def _kept() -> list[Finding]:
    """All that is in the file; processes of xdist write there too."""
    path = os.environ.get(FINDINGS)
    return read(Path(path)) if path and Path(path).exists() else []


def _row_of(path: Path) -> str:
    """The number in the name of a test's file, or its first word: test_row36_kafka.py, test_crawl_kills.py."""
    word = path.stem.removeprefix("test_").partition("_")[0]
    return word.removeprefix("row").lstrip("0")


def _store_of(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    name = callspec.params.get("engine") if callspec else None
    return str(name or getattr(getattr(item, "module", None), "STORE", "sqlite"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report where it was asked for."""
    found = _kept()[config.stash[_BEGUN] :] if os.environ.get(FINDINGS) else config.stash.get(_HERE, [])
    if "HOLDFAST_FAULTS" in os.environ and found:
        terminalreporter.section("faults: what was injected, and what came of it")
        for one in found:
            terminalreporter.write_line(told(one))
