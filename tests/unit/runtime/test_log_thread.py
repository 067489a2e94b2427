"""What must not stand still says its lines in order, and loses none of them but what is beyond the limit."""

from __future__ import annotations

import logging
import threading
from typing import Final

import pytest

from holdfast.runtime.log_thread import LogThread

ENOUGH_S: Final = 20.0


class Lines(logging.Handler):
    """Keeps what is written; while it is shut it takes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.is_asked = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.is_asked.set()
        assert self.is_open.wait(ENOUGH_S)
        self.said.append(record.getMessage())


@pytest.fixture
def lines() -> Lines:
    """What is written by the logger."""
    return Lines()


@pytest.fixture
def logger(lines: Lines) -> logging.Logger:
    """A logger that no other test has."""
    logger = logging.Logger("shop")
    logger.addHandler(lines)
    return logger


def test_lines_are_written_in_order(lines: Lines, logger: logging.Logger) -> None:
    log = LogThread(logger)
    for number in range(50):
        log.log(logging.INFO, "%d", number)
    log.wait(ENOUGH_S)
    assert lines.said == [str(number) for number in range(50)]


def test_a_log_that_takes_nothing_holds_nobody_up_and_has_its_lines_later(lines: Lines, logger: logging.Logger) -> None:
    log = LogThread(logger)
    lines.is_open.clear()
    log.log(logging.INFO, "%d", 0)
    assert lines.is_asked.wait(ENOUGH_S)
    for number in range(1, 151):
        log.log(logging.INFO, "%d", number)
    log.wait(0.0)
    assert lines.said == []
    lines.is_open.set()
    log.wait(ENOUGH_S)
    assert lines.said == [str(number) for number in range(101)], "a hundred wait, beside the one under way"


def test_a_line_that_cannot_be_written_keeps_no_other(
    lines: Lines, logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(record: logging.LogRecord) -> bool:
        if record.levelno == logging.ERROR:
            raise ValueError("no errors here")
        return True

    logger.addFilter(refuse)
    log = LogThread(logger)
    log.log(logging.ERROR, "first")
    log.log(logging.INFO, "second")
    log.wait(ENOUGH_S)
    assert lines.said == ["second"]
    assert "no errors here" in capsys.readouterr().err


def test_what_found_no_thread_is_written_with_the_next_line(
    lines: Lines, logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    log = LogThread(logger)
    with monkeypatch.context() as machine:
        machine.setattr(threading.Thread, "start", refuse)
        log.log(logging.INFO, "first")
    assert lines.said == []
    log.log(logging.INFO, "second")
    log.wait(ENOUGH_S)
    assert lines.said == ["first", "second"]
