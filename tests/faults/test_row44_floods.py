"""Row 44 at the size of the plan: 500 slow sockets, floods of requests, ten thousand who listen.

What is small enough for every day is in test_row44_slow_clients.py.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import json
from msgspec.structs import replace

from holdfast.ops.api.tokens import make_token
from holdfast.types import JobState
from tests.faults import checker
from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.checker import duplicates, quantile
from tests.faults.conftest import full_only
from tests.faults.flood import TOGETHER, Asked, Listened, Plan
from tests.faults.ledger import ClientLedger
from tests.faults.report import Report, figures_of
from tests.faults.test_row44_slow_clients import slow_clients
from tests.faults.workers import CLOCK, ROOT, SETTINGS, poll
from tests.servers import missing

pytestmark = full_only
TOKENS: Final = {
    name: make_token(name=name, role="operator") for name in ("writer a", "writer b", "reader", "listener", "other")
}
PATIENT: Final = replace(SETTINGS, lease_s=6.0)
SLOW: Final = 500
FLOOD_S: Final = 25.0
LATE_S: Final = PATIENT.lease_s / 2
"""No heartbeat may be later than this."""
ANSWERED_S: Final = 2.0
"""Others have their answers within this, all but one of a hundred."""
ANSWERED_AMONG_ALL_S: Final = 10.0
"""The same with twenty times as many who listen as a server lets in: all of them are told before the next answer."""
LISTENERS: Final = 10_000
JOB: Final = '{"task": "work", "arguments": {"number": 1}}'


class Watch:
    """Looks at the heartbeats of the workers from beside, until it is stopped."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch")
        self.gaps: list[float] = []
        """Seconds since the last heartbeat of a worker, at every look."""

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join(30)

    def _look(self) -> None:
        while not self._is_over.wait(0.05):
            stats = self._arena.stats()
            self.gaps += [stats.now - worker.seen_at for worker in stats.workers]

    @property
    def delay_s(self) -> float:
        """How much later than it was due a heartbeat was: of a hundred looks the second worst."""
        assert len(self.gaps) > 50, "nobody looked: this run shows nothing"
        return max(0.0, quantile(self.gaps, 0.99) - PATIENT.beat_s)


@contextmanager
def program(what: str, plan: Plan) -> Iterator[subprocess.Popen[bytes]]:
    """A client without manners, as a process of its own."""
    words = [sys.executable, "-m", "tests.faults.flood", what, json.encode(plan).decode()]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[bytes], kind: type[Any]) -> Any:
    assert process.stdout is not None
    return json.decode(process.stdout.readline(), type=kind)


def test_a_flood_beside_slow_clients_delays_no_heartbeat_and_others_are_answered(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    answers: list[float] = []
    acked: list[str] = []
    with arena.fleet() as fleet, ApiProcess(tmp_path, arena.engine.url, tokens=TOKENS) as server, ExitStack() as block:
        fleet.start(PATIENT)
        poll(lambda: len(arena.stats().workers) == 1, 30, "the worker is there")
        (worker,) = [one.id for one in arena.stats().workers]
        slow = block.enter_context(slow_clients(server.url, SLOW))
        plan = Plan(url=server.url, token="", connections=8, seconds=FLOOD_S)
        ledgers = [tmp_path / f"client {name}" for name in ("a", "b")]
        writers = [
            replace(plan, token=TOKENS[name].text, method="POST", path="/jobs", body=JOB, ledger=str(ledger))
            for name, ledger in zip(("writer a", "writer b"), ledgers, strict=True)
        ]
        reader = replace(plan, token=TOKENS["reader"].text, path="/tasks")
        floods = [block.enter_context(program("ask", one)) for one in (*writers, reader)]
        with Watch(arena) as watch, server.client("other") as client:
            while any(one.poll() is None for one in floods):
                began_s = CLOCK.monotonic()
                made = client.post("/jobs", json={"task": "echo", "arguments": {"value": 1}})
                answers.append(CLOCK.monotonic() - began_s)
                assert made.status_code == 201, made.text
                acked.append(made.json()["id"])
                CLOCK.sleep(0.1)
        found: list[Asked] = [said(one, Asked) for one in floods]
        assert len(slow) == SLOW
        memory_mb = server.most_mb
        arena.quiesce(120)
        assert [one.id for one in arena.stats().workers] == [worker], "the worker was given up"
        fleet.stop()
        evidence = arena.evidence(fleet)

    statuses = sum((Counter(one.statuses) for one in found), Counter[str]())
    acked += [one for path in ledgers for one in ClientLedger(path).acked]
    # The server gives the ids: whether one was asked for is known of those alone that were answered.
    evidence = replace(evidence, attempted=list(evidence.jobs), acked=acked)
    unanswered = len(evidence.jobs) - len(set(acked))
    assert set(statuses) <= {"200", "201", "429", "cut off"}, statuses
    assert statuses["429"] > 0, "nobody was asked to wait: this run shows nothing"
    assert sum(one.waits for one in found) == statuses["429"], "a 429 without a Retry-After"
    assert len(set(acked)) == len(acked) == statuses["201"] + len(answers), "an id was given twice"
    assert checker.no_loss(evidence) == []
    assert unanswered <= TOGETHER * statuses["cut off"], "there are jobs that nobody asked for"
    assert {job.state for job in evidence.jobs.values()} == {JobState.COMPLETED}
    assert duplicates(evidence) == 0, "a heartbeat was so late that a job ran twice"
    assert watch.delay_s <= LATE_S, "the flood delays heartbeats"
    assert quantile(answers, 0.99) <= ANSWERED_S, "the flood holds up others"
    assert memory_mb < 400
    reached = sum(statuses.values()) / FLOOD_S
    report(
        f"{SLOW} slow sockets, and three floods of requests for {FLOOD_S:g} s to one server process",
        injected=len(slow) + len(floods),
        figures=figures_of(evidence),
        note=f"{reached:,.0f} requests a second were all that this machine can send and answer (the plan has 5,000): "
        f"{dict(statuses)}, each 429 with Retry-After; others answered within p99 {quantile(answers, 0.99):.2f} s; "
        f"heartbeat delay p99 {watch.delay_s:.2f} s; at most {memory_mb:.0f} MB",
    )


def test_ten_thousand_listen_and_no_heartbeat_is_delayed(arena: Arena, tmp_path: Path, report: Report) -> None:
    settings = json.encode({"max_clients": 5 * LISTENERS, "read_rate": None}).decode()
    plan = Plan(url="", token=TOKENS["listener"].text, connections=LISTENERS, seconds=10.0)
    own = ApiProcess(tmp_path, arena.engine.url, tokens=TOKENS, program=("tests.faults.api_program", settings))
    answers: list[float] = []
    with _descriptors(LISTENERS + 1_000) as most, arena.fleet() as fleet, own as server:
        fleet.start(PATIENT)
        poll(lambda: len(arena.stats().workers) == 1, 30, "the worker is there")
        (worker,) = [one.id for one in arena.stats().workers]
        began_mb = server.most_mb
        if most < LISTENERS + 1_000:
            missing(f"THE LIMIT OF OPEN FILES, {most:,}, IS TOO LOW FOR {LISTENERS:,} WHO LISTEN")
        plan = replace(plan, url=server.url)
        with program("listen", plan) as listeners, Watch(arena) as watch:
            opened = said(listeners, dict[str, int])["opened"]
            arena.enqueue([arena.call("work", number) for number in range(50)])
            with server.client("other") as client:
                for _ in range(20):
                    began_s = CLOCK.monotonic()
                    assert client.get("/tasks").status_code == 200
                    answers.append(CLOCK.monotonic() - began_s)
                    CLOCK.sleep(0.1)
            found: Listened = said(listeners, Listened)
        memory_mb = server.most_mb
        assert [one.id for one in arena.stats().workers] == [worker], "the worker was given up"
        arena.quiesce(60)
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert found.opened == opened == plan.connections, found
    assert found.refused == {}
    assert found.kept == found.opened, "somebody was not told of what had changed"
    assert duplicates(evidence) == 0
    assert watch.delay_s <= LATE_S, "those who listen delay heartbeats"
    assert max(answers) <= ANSWERED_AMONG_ALL_S, "those who listen hold up others"
    each_kb = (memory_mb - began_mb) * 1024 / opened
    assert each_kb < 150
    report(
        "listeners of /events on one server process, with the limit raised by max_clients",
        injected=1,
        note=f"{opened:,} open in {found.opened_s:.0f} s, all told of a change; {each_kb:.0f} kB each, "
        f"{memory_mb:.0f} MB in all; others answered within {max(answers):.2f} s, heartbeat delay p99 "
        f"{watch.delay_s:.2f} s; open files ({most:,}) limit it",
    )


def test_as_it_is_set_up_the_server_keeps_500_who_listen_and_refuses_the_others(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    tokens = {str(number): make_token(name=f"listener {number}", role="viewer") for number in range(7)}
    with ApiProcess(tmp_path, arena.engine.url, tokens=tokens) as server, ExitStack() as block:
        # They stay until the block ends.
        plans = [Plan(url=server.url, token=one.text, connections=150, seconds=600.0) for one in tokens.values()]
        first = block.enter_context(program("listen", plans[0]))
        found = [Counter(said(first, dict[str, int]))]  # alone, so it comes to its own limit before that of all
        others = [block.enter_context(program("listen", plan)) for plan in plans[1:]]
        found += [Counter(said(one, dict[str, int])) for one in others]
        answers = []
        with server.client("0") as client:
            for number in range(20):
                arena.enqueue([arena.call("work", number)])  # so that all are told something
                began_s = CLOCK.monotonic()
                assert client.get("/jobs").status_code == 200
                answers.append(CLOCK.monotonic() - began_s)
                CLOCK.sleep(0.1)
        memory_mb = server.most_mb
    assert max(answers) <= ANSWERED_S, "those who listen hold up others"
    assert found[0] == {"opened": 100, "429": 50}
    most = max(one["opened"] for one in found)
    assert most == 100, "one token has more than a fifth"
    total = sum(found, Counter[str]())
    assert total["opened"] == 500
    assert total.keys() == {"opened", "429", "503"}
    assert total.total() == 7 * 150
    report(
        "1,050 who want to listen, of 7 tokens, as `holdfast serve` is set up",
        injected=1,
        note=f"{total['opened']} let in, at most {most} of a token, refused {total['429']} with 429 and "
        f"{total['503']} with 503; others answered within {max(answers):.2f} s; {memory_mb:.0f} MB",
    )


@contextmanager
def _descriptors(wanted: int) -> Iterator[int]:
    """So many and some more for this process and those that it starts, or as many as may be; how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, min(hard, wanted + 2_000))
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield most
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
