"""Row 58: several people replay the whole inbox at once, click twice, and the server and a worker die on the way."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import Final

import httpx

from holdfast.clock import new_token
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.runtime.replay import BATCH, Replay, ReplayState
from holdfast.types import Change, JobState
from tests.faults import checker
from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.conftest import small_on, waits
from tests.faults.engines import Engine, PostgresEngine, RedisEngine, SqliteEngine
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, ROOT, Fleet, poll

pytestmark = waits
OPERATORS: Final = ("operator", "admin")
ONCE_MORE: Final = 20
"""One of so many fails as before when it is run again, and is a dead letter once more."""


async def buried(arena: Arena, count: int) -> None:
    """So many dead letters, given up by a worker that has left."""
    store = arena.app.store
    for start in range(0, count, 500):
        some = min(500, count - start)
        await store.heartbeat(WorkerRecord(id="first", lease_s=600.0))
        reply = await store.exchange(Exchange(claim=Claim(worker="first", token=new_token(), limit=some)))
        assert len(reply.deliveries) == some
        ends = [Settlement(id=one.id, token=one.token, change=Change.BURY, reason="x") for one in reply.deliveries]
        assert all((await store.exchange(Exchange(settlements=ends))).settled)
    await store.heartbeat(WorkerRecord(id="first", lease_s=0.0))


class Inbox:
    """The dead letters of an arena, and everybody who replays them."""

    def __init__(self, arena: Arena, server: ApiProcess, rate: float) -> None:
        self._arena = arena
        self._server = server
        self.rate = rate
        self.asked = 0

    def click(self, replay_id: str, caller: str = "operator") -> str:
        """Replay everything, over HTTP; the id of the replay that there is then."""
        body = {"filter": {}, "rate": self.rate, "replay_id": replay_id}
        self.asked += 1
        with self._server.client(caller) as client:
            return str(client.post("/replays", json=body).raise_for_status().json()["id"])

    def command(self) -> str:
        """The same, by the command line."""
        self.asked += 1
        words = ["dlq", "replay", "--all", "--rate", f"{self.rate:g}/second", "--url", self._arena.engine.url, "--json"]
        ran = subprocess.run(
            [sys.executable, "-m", "holdfast", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        return "by command"

    def click_into_the_void(self, replay_id: str) -> None:
        """Ask, and kill the server before it has answered: nobody knows whether there is a replay now."""
        self.asked += 1
        client = httpx.Client(base_url=self._server.url, headers=self._server.bearer("operator"), timeout=30)
        with client, ThreadPoolExecutor(1) as beside:
            asking = beside.submit(client.post, "/replays", json={"rate": self.rate, "replay_id": replay_id})
            self._server.kill()
            with suppress(httpx.TransportError):
                asking.result(30)

    def replays(self) -> Sequence[Replay]:
        return self._arena.app.dead_letters.replays()

    def sent(self) -> int:
        return sum(one.sent for one in self.replays())

    def check_rates(self) -> None:
        """No replay has sent more than its rate allows, with a burst of one second."""
        found = self.replays()
        now = self._arena.stats().now
        for one in found:
            assert one.sent <= self.rate * (now - one.created_at + 1.0) + 1.0, f"{one.id} is faster than its rate"


def at_once(*calls: Callable[[], str]) -> list[str]:
    """Let all of these begin at the same instant; what each of them says."""
    start = Barrier(len(calls))

    def run(call: Callable[[], str]) -> str:
        start.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [one.result(90) for one in [pool.submit(run, call) for call in calls]]


def sendings(arena: Arena) -> int:
    """How many replays the records of all jobs know of."""
    return sum(record.replays for record in arena.records().values())


def sent_by(engine: Engine) -> Counter[tuple[str, str]]:
    """How often each replay has sent each job, by the store's own account."""
    if isinstance(engine, RedisEngine):
        with engine.server.client() as client:
            return Counter(
                (key.decode().rpartition(":more:")[2], field.decode().removeprefix("replay:"))
                for key in client.scan_iter(match="*:more:*", count=1_000)
                for field in client.hkeys(key)
                if field.startswith(b"replay:")
            )
    assert isinstance(engine, SqliteEngine | PostgresEngine)
    return Counter(map(tuple, engine.sql("SELECT id, replay FROM holdfast_replays JOIN holdfast_jobs USING (seq)")))


def kill_worker(fleet: Fleet, inbox: Inbox, count: int) -> None:
    # Not held still to be looked at: one that stands still as it writes to a file keeps everybody out of it.
    fleet.kill(fleet.running[0])
    assert inbox.sent() < count, "everything was sent before the kill: this run shows nothing"
    fleet.start()


@small_on("sqlite")
def test_an_inbox_replayed_by_many_at_once_is_replayed_once(
    arena: Arena, tmp_path: Path, is_full: bool, report: Report
) -> None:
    count = 10_000 if is_full else 120
    calls = [arena.call("work", number, failures=99 if number % ONCE_MORE == 0 else 0) for number in range(count)]
    ids = arena.enqueue(calls, at_once=500)
    arena.app.bridge.run(buried(arena, count))
    assert arena.states(ids[:500]) == {"dead_letter": min(count, 500)}

    server = ApiProcess(tmp_path, arena.engine.url)
    # Slow enough that it is on its way for seconds: it must not be over before the server is killed.
    inbox = Inbox(arena, server, rate=count / 40 if is_full else count / 12)
    with arena.fleet() as fleet, server:
        inbox.click_into_the_void("first")
        server.start()
        said = at_once(
            *[lambda who=who: inbox.click("first", who) for who in OPERATORS],
            lambda: inbox.click("second", "admin"),
            inbox.command,
        )
        assert said == ["first", "first", "second", "by command"]
        assert len(inbox.replays()) == 3, "a click made a replay of its own"

        for _ in range(2):
            fleet.start()
        poll(lambda: 0 < inbox.sent() < count, 30, "the replays are on their way")
        server.kill()
        assert inbox.sent() < count, "everything was sent before the kill: this run shows nothing"
        if is_full:
            kill_worker(fleet, inbox, count)
        server.start()
        assert [inbox.click(one) for one in ("first", "second", "first")] == ["first", "second", "first"]

        def is_over() -> bool:
            inbox.check_rates()
            return all(one.state is ReplayState.DONE for one in inbox.replays())

        poll(is_over, 150 if is_full else 30, "the replays are done")
        arena.quiesce(90 if is_full else 30)
        # Once more, as somebody does who does not know that all is done: those that are dead again are not sent again.
        before = (inbox.replays(), arena.started(), sendings(arena))
        assert inbox.click("first") == "first"
        CLOCK.sleep(1.5)  # workers take a step of every replay each second
        arena.quiesce(30)
        assert (inbox.replays(), arena.started(), sendings(arena)) == before, "the last click has sent something"
        fleet.stop()
        evidence = arena.evidence(fleet)

    replays = {one.id: one for one in inbox.replays()}
    assert len(replays) == 3
    times = Counter(record.replays for record in evidence.jobs.values() if record.state is JobState.COMPLETED)
    again = Counter(record.replays for record in evidence.jobs.values() if record.state is JobState.DEAD_LETTER)
    assert times == {1: count - count // ONCE_MORE}, "replays per job"
    # What died again is another's to send that had it on its list already; by one replay nothing is sent twice.
    assert set(again) <= {1, 2, 3}
    names = sent_by(arena.engine)
    assert max(names.values()) == 1, "a job twice by one replay"
    assert {name for _, name in names} <= set(replays)
    times_sent = Counter(
        one.job for one in evidence.transitions if (one.before, one.after) == ("dead_letter", "queued")
    )
    assert times_sent == Counter(job for job, _ in names), "a job was sent that its replay does not know of"
    assert times_sent == {record.id: record.replays for record in evidence.jobs.values()}
    gone = sum(n * jobs for n, jobs in (times + again).items())
    told = sum(one.sent for one in replays.values())
    assert gone <= told <= gone + (BATCH if is_full else 0), "a batch of a killed worker counts as sent by whom it was"
    # Not I5, which is about a fleet with room; here all that was sent before stands in front of what a kill cut off.
    assert checker.check(evidence) == []
    assert sum(again.values()) == count // ONCE_MORE
    _report(report, evidence, replays, inbox, times + again, kills=3 if is_full else 2)


def _report(
    report: Report,
    evidence: checker.Evidence,
    replays: dict[str, Replay],
    inbox: Inbox,
    times: Counter[int],
    *,
    kills: int,
) -> None:
    shares = " + ".join(f"{one.sent:,}" for one in replays.values())
    report(
        f"the whole inbox replayed {inbox.asked} times at once: by two operators over HTTP, with double clicks and a "
        "request that the death of the server cut off, and by command; the server killed midway"
        + (", and a worker" if kills > 2 else ""),
        injected=kills,
        figures=figures_of(evidence),
        note=f"{sum(times.values()):,} dead jobs, none twice by one id, jobs by replays {dict(times)}, sent by 3 "
        f"replays {shares}, each at most {inbox.rate:g} a second",
    )
