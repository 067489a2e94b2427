"""What every test may ask for."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator

import pytest

from holdfast.testing import ManualClock
from tests.kafka_mock import mock_kafka
from tests.kafka_server import kafka, kafka_numbers, kafka_topic, own_kafka
from tests.servers import NOT_INSTALLED, postgres_server, postgres_url, redis_server, redis_url

__all__ = [
    "anyio_backend",
    "clock",
    "in_background",
    "kafka",
    "kafka_numbers",
    "kafka_topic",
    "mock_kafka",
    "own_kafka",
    "postgres_server",
    "postgres_url",
    "redis_server",
    "redis_url",
]


def pytest_configure(config: pytest.Config) -> None:
    """The marks of this project."""
    config.addinivalue_line("markers", "waits: mostly waits, so that others that do may run beside it")
    config.addinivalue_line("markers", "busy: bounds no time, so that others that do not may run beside it")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests are found in two thirds of the time where nobody looks for garbage among them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def in_background() -> Iterator[None]:
    """SIGINT is ignored, as it is in a background job of a script; programs that are started here ignore it as well."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what could not be tested here."""
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    if lost := sum(NOT_INSTALLED in reason for reason in reasons):
        terminalreporter.section("NOT EVERYTHING WAS TESTED", red=True)
        terminalreporter.write_line(f"{lost} tests were skipped for want of a server or a tool: `make servers`")
