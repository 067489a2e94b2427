"""Whom bench-streams measures: a consumer in a process of its own, and where its messages are."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from jobs_timing import LOG_SHOWN, PYTHON, Failed, Worker, started
from streams_tally import FIRST, HANDLED, noted

Size = Literal["many", "some", "few"]
LOOK_S = 0.004
PATIENCE_S = 60.0
"""A consumer that has not had all its messages after so long has failed."""
COMMITTED_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Subject:
    """One line of a table."""

    name: str
    module: str
    """Its function `consume` takes the arguments, and goes on until it is killed."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    size: Size = "some"
    """How many messages it gets: enough to measure it, and not so many that all others wait for it."""
    python: Path = PYTHON
    setting: str = ""
    """How it commits, and what else matters, for people."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, or a stream, that was filled once."""

    name: str
    count: int
    address: str
    """Of its server."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second, from the first one in the hands of the handler."""

    handled: float
    """To the last one in its hands."""
    committed: float
    """To when the server knows that all of them are finished."""


@contextmanager
def consumer(subject: Subject, topic: Topic, group: str, folder: Path) -> Iterator[Worker]:
    """The process of a subject, with an empty folder of its own; it is killed in the end."""
    folder.mkdir()
    environment = {
        "STREAMS_ADDRESS": topic.address,
        "STREAMS_TOPIC": topic.name,
        "STREAMS_GROUP": group,
        "STREAMS_TOTAL": str(topic.count),
        "STREAMS_FOLDER": str(folder),
    }
    command = [str(subject.python), "-m", "jobs_call", subject.module, "consume", json.dumps(dict(subject.arguments))]
    try:
        with started(command, environment, folder / "log", is_killed=True) as process:
            yield process
    finally:
        shutil.rmtree(folder)


def measure(subject: Subject, topic: Topic, group: str, folder: Path, left: Callable[[str, Topic], int]) -> Rates:
    """left: how many messages a group has not finished, as the server says; asked only after the last was handled."""
    with consumer(subject, topic, group, folder) as process:
        times = wait_until_handled(process, folder)
        until = times[HANDLED] + COMMITTED_WITHIN_S
        while (open_ := left(group, topic)) and time.monotonic() < until:
            time.sleep(LOOK_S)
        if open_:
            raise Failed(f"{open_} of {topic.count} messages were handled, and not committed: {said(folder)}")
        now = time.monotonic()
    handled_s, committed_s = times[HANDLED] - times[FIRST], now - times[FIRST]
    return Rates(topic.count / handled_s, topic.count / committed_s)


def wait_until_handled(process: Worker, folder: Path) -> dict[str, float]:
    """When it had its first message, and when its last."""
    began = time.monotonic()
    while HANDLED not in (times := noted(folder)):
        if process.poll() is not None:
            raise Failed(f"it ended with {process.returncode}: {said(folder)}")
        if time.monotonic() - began > PATIENCE_S:
            raise Failed(f"it had not all messages within {PATIENCE_S:.0f} s: {said(folder)}")
        time.sleep(LOOK_S)
    return times


def said(folder: Path) -> str:
    """The end of its log."""
    path = folder / "log"
    return path.read_text(errors="replace")[-LOG_SHOWN:] if path.exists() else ""
