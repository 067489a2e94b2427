"""Three worker processes on one store, whichever it is: limits, breakers, schedules and replays are the fleet's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.types import JobRecord
from tests.integration import fleet
from tests.servers import PostgresServer, RedisServer

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]
CLOCK = SystemClock()


def until(is_so: Callable[[], bool]) -> None:
    end_s = CLOCK.monotonic() + PATIENCE_S
    while not is_so():
        assert CLOCK.monotonic() < end_s, "it has not come to pass"
        CLOCK.sleep(0.05)


class Fleet:
    def __init__(self, url: str, folder: Path) -> None:
        self.app: App = fleet.open_app(url)
        self.folder = folder
        self._effects = folder / "effects"
        self._runs: dict[str, int] = {}
        self._environment = os.environ | {"HOLDFAST_URL": url, fleet.EFFECTS: str(self._effects)}

    @contextmanager
    def workers(self, count: int = 3) -> Iterator[None]:
        command = [HOLDFAST, "worker", "tests.integration.fleet:app", "--processes", str(count)]
        log = self.folder / "log"
        with (
            log.open("wb") as file,
            subprocess.Popen(command, cwd=ROOT, env=self._environment, stdout=file, stderr=file) as process,
        ):
            try:
                until(lambda: log.read_bytes().count(b"INFO holdfast.process: worker process") == count)
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(PATIENCE_S)
        assert process.returncode == 0, log.read_text()
        assert b"Traceback" not in log.read_bytes(), log.read_text()
        assert {task: len(self.effects(task)) for task in self._runs} == self._runs, "something ran later on"

    def effects(self, task: str) -> list[tuple[str, ...]]:
        """Process, instant and words of everything that a task has said, in the order of the instants."""
        if not self._effects.exists():
            return []
        lines = [tuple(line.split()) for line in self._effects.read_text().splitlines()]
        return sorted((line for line in lines if line[2] == task), key=lambda line: float(line[1]))

    def has_run(self, task: str, times: int) -> bool:
        """Whether a task has run so often; it must not run again, up to the end of the workers."""
        self._runs[task] = times
        return len(self.effects(task)) == times

    def records(self, ids: list[str]) -> list[JobRecord]:
        found = self.app.bridge.run(self.app.store.get(ids))
        return [record for record in found if record is not None]

    def have_ended(self, ids: list[str]) -> bool:
        return all(record.state.is_terminal for record in self.records(ids))


@contextmanager
def place(store: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of an empty store, for as long as a module's tests last."""
    if store == "sqlite":
        yield f"sqlite:///{folder / 'shop.db'}"
    elif store == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        schema = postgres.fresh_schema()
        yield postgres.url(schema)
        postgres.drop_schema(schema)
    else:
        redis: RedisServer = request.getfixturevalue("redis_server")
        yield redis.url(redis.fresh_prefix())
        with redis.client() as client:
            client.flushall()


@pytest.fixture(scope="module", params=["sqlite", "postgres", "redis"])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Workers that run through all tests, each of which has a task of its own."""
    folder = tmp_path_factory.mktemp("fleet")
    with place(request.param, request, folder) as url:
        fleet = Fleet(url, folder)
        with fleet.workers():
            yield fleet
        fleet.app.close()


@pytest.fixture
def switch(tmp_path: Path) -> Path:
    """A file whose being there makes tasks succeed."""
    return tmp_path / "switch"


def most_in_a_second(starts: list[float]) -> int:
    """A permit has the date of its run's start, give or take a tenth of the window: more than that later it is not
    used. So what holds for the dates in a second holds for the starts in nine tenths of it.
    """
    return max(sum(1 for other in starts if one <= other < one + 0.9) for one in starts)


def test_a_rate_holds_over_all_processes(shop: Fleet) -> None:
    limited = shop.app.tasks["limited"]
    ids = [job.id for job in limited.enqueue_many([limited.bind(number) for number in range(25)])]
    until(lambda: shop.have_ended(ids))
    starts = [record.started_at for record in shop.records(ids) if record.started_at is not None]
    assert len(starts) == 25
    assert shop.has_run("limited", 25)
    assert most_in_a_second(starts) <= fleet.PER_SECOND


def test_a_rate_for_each_user_holds_over_all_processes_and_lets_others_pass(shop: Fleet) -> None:
    fair = shop.app.tasks["fair"]
    calls = [fair.options(user=f"user-{number % 3}").bind(number) for number in range(24)]
    ids = [job.id for job in fair.enqueue_many(calls)]
    until(lambda: shop.have_ended(ids))
    by_user: dict[str, list[float]] = {}
    for record in shop.records(ids):
        assert record.started_at is not None
        by_user.setdefault(record.user, []).append(record.started_at)
    assert {user: len(starts) for user, starts in by_user.items()} == {f"user-{n}": 8 for n in range(3)}
    assert shop.has_run("fair", 24)
    assert all(most_in_a_second(starts) <= fleet.PER_USER for starts in by_user.values())


def test_a_breaker_opens_for_all_processes_and_tries_no_more_than_it_may(shop: Fleet, switch: Path) -> None:
    call = shop.app.tasks["call"]
    ids = [job.id for job in call.enqueue_many([call.bind(str(switch)) for _ in range(40)])]
    until(lambda: [one.mode for one in shop.app.breakers.list() if one.key == "shaky"] == ["open"])
    opened_after = len([1 for effect in shop.effects("call") if effect[3] == "begin"])
    until(lambda: len([1 for effect in shop.effects("call") if effect[3] == "failed"]) >= opened_after + 2)
    switch.touch()
    until(lambda: shop.have_ended(ids))
    assert Counter(record.state.value for record in shop.records(ids)) == {"completed": 40}
    assert most_trials_at_once(shop.effects("call")) <= fleet.TRIALS


def most_trials_at_once(effects: list[tuple[str, ...]]) -> int:
    """How many ran side by side in the time in which the breaker let nothing but trials through.

    That is from the end of the first storm of failures, a pause of a recovery time, to the first success.
    """
    words = [(float(at), word) for _, at, _, word in effects]
    pause = next(place for place in range(1, len(words)) if words[place][0] - words[place - 1][0] > 0.4)
    running = most = 0
    for _, word in words[pause:]:
        if word == "done":
            break
        running += 1 if word == "begin" else -1
        most = max(most, running)
    return most


def test_a_schedule_fires_once_a_tick_however_many_processes_there_are(shop: Fleet) -> None:
    until(lambda: len(shop.effects("tick")) >= 4)
    ticks = shop.effects("tick")
    assert len({job for _, _, _, job in ticks}) == len(ticks)
    due_ms = sorted(UUID(job).int >> 80 for _, _, _, job in ticks)  # a tick's job has its time in its id
    assert all(later - earlier >= 1_000 for earlier, later in pairwise(due_ms))


def test_a_replay_takes_each_letter_once(shop: Fleet, switch: Path) -> None:
    doomed = shop.app.tasks["doomed"]
    ids = [job.id for job in doomed.enqueue_many([doomed.bind(str(switch)) for _ in range(20)])]
    until(lambda: shop.have_ended(ids))
    assert shop.app.dead_letters.stats().total == 20
    switch.touch()
    (group,) = shop.app.dead_letters.groups()
    shop.app.dead_letters.replay(group=group.fingerprint, canary=2)
    until(lambda: all(record.state == "completed" for record in shop.records(ids)))
    assert shop.has_run("doomed", 40)
    assert {record.replays for record in shop.records(ids)} == {1}
