"""Row 11: there are no more file descriptors, for a worker or for the server. Both go on, and recover by themselves."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import small_on, waits
from tests.faults.report import Report, figures_of
from tests.faults.rough_shop import TARGET, add_rough_tasks
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll

pytestmark = waits
ROOM = replace(SETTINGS, room=Room(concurrency=8, threads=2, isolates=2))
ROUTES = ("/health/live", "/health/ready", "/jobs", "/dead-letters", "/breakers", "/", "/metrics")


@small_on("sqlite")
def test_a_worker_without_descriptors_goes_on_and_holds_it_against_no_job(
    arena: Arena, is_full: bool, report: Report
) -> None:
    add_rough_tasks(arena.app, arena.folder / "effects")
    times = 3 if is_full else 1
    took: list[float] = []
    ended: set[int] = set()
    with arena.fleet() as fleet:
        for _ in range(times):
            # Each has begun no process for isolated jobs yet; from the start there are few descriptors, but enough.
            prefix = ("prlimit", "--nofile=64")
            worker = fleet.run("holdfast.runtime.process", TARGET, msgspec.json.encode(ROOM).decode(), prefix=prefix)
            arena.enqueue([arena.call(task, *args) for task, *args in (("work", 0), ("toil", 0), ("opener",))])
            arena.quiesce(30)  # its ledgers are open
            with _no_more_descriptors(worker):
                apart = arena.enqueue([arena.call("apart", n) for n in range(4)])
                opening = arena.enqueue([arena.call("opener") for _ in range(2)])
                plain = arena.enqueue([arena.call(("work", "toil")[n % 2], n) for n in range(20)])
                poll(lambda ids=plain: arena.states(ids) == {"completed": 20}, 30, "others are run")  # type: ignore[misc]
                poll(lambda ids=opening: _have_failed(arena, ids), 20, "these have failed")  # type: ignore[misc]
                poll(lambda pid=worker: "no process can be started" in fleet.log(pid), 20, "nor a process")  # type: ignore[misc]
                assert "completed" not in arena.states([*apart, *opening]), "there was room: this run shows nothing"
            took.append(arena.quiesce(30))
            assert all(len(job.attempts) <= 1 for job in arena.get(apart)), "a job was blamed for the machine"
            ended |= {worker} - set(fleet.running)
            assert ended == set(), fleet.log()
            fleet.stop()
        evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    assert {job.state.value for job in evidence.jobs.values()} == {"completed"}
    failed = sum(one.what == "fail" for one in evidence.effects)
    report(
        "a worker has no descriptor left (prlimit --nofile): for files of jobs, for processes of their own",
        injected=times,
        figures=figures_of(evidence),
        note=f"workers that ended {len(ended)}, jobs that need one failed {failed} times and were retried, all was "
        f"done {max(took):.1f} s after there were some again",
    )


def _have_failed(arena: Arena, ids: Sequence[str]) -> bool:
    return all(len(job.attempts) > 0 for job in arena.get(ids))


@small_on()
def test_a_server_without_descriptors_answers_or_asks_to_wait_and_comes_back(
    arena: Arena, is_full: bool, report: Report
) -> None:
    clients, times = (400, 20) if is_full else (40, 1)
    statuses: list[int] = []
    with arena.fleet() as fleet:
        server = fleet.run("holdfast", "serve", "tests.faults.shop:app", "--json", "--port", "0")
        url = _url_of(fleet, server)
        with httpx.Client(base_url=url, timeout=20) as kept, ExitStack() as opened:
            assert kept.get("/health/live").status_code == 200
            with _no_more_descriptors(server):  # before it has opened its store, and all else that it opens once
                statuses += _ask_all(arena, kept)
            assert _ask_all(arena, kept) == [200] * len(ROUTES) + [201]
            with _no_more_descriptors(server):
                for _ in range(times):
                    statuses += _ask_all(arena, kept)
                # The kernel takes these, and the server cannot: it drops who waits for nothing, and they wait in line.
                sockets = [opened.enter_context(socket.create_connection(_place(url), 20)) for _ in range(clients)]
                for one in sockets:
                    one.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                CLOCK.sleep(0.5)
            began_s = CLOCK.monotonic()
            answers = [_answer(one) for one in sockets]
            assert set(answers) <= {b"HTTP/1.1 200", b""}, answers
        with httpx.Client(base_url=url, timeout=20) as client:
            assert _ask_all(arena, client) == [200] * len(ROUTES) + [201]
        recovery_s = CLOCK.monotonic() - began_s
        assert set(statuses) <= {200, 201, 503, 507}, statuses
        assert fleet.running == [server], fleet.log()
        told = fleet.log(server).count("\n")
        acked = len(arena.client.acked)
        fleet.start(ROOM)
        arena.quiesce(30)
        fleet.stop()
        evidence = arena.evidence(fleet)
    evidence = replace(evidence, attempted=list(evidence.jobs))  # one that was not acked may be there all the same

    assert told < 60 + 2 * len(statuses), fleet.log(server)[:2000]
    assert checker.no_loss(evidence) == []
    assert {200, 201, 503} <= set(statuses), "nothing was refused, or everything: this run shows nothing"
    refused = sum(status >= 500 for status in statuses)
    report(
        f"the server has no descriptor left while {clients} clients connect",
        injected=2,
        figures=figures_of(evidence),
        note=f"of {len(statuses)} requests on an open connection {refused} refused with 503 or 507; jobs accepted "
        f"{acked}; of those in line {answers.count(b'')} dropped, all others answered {recovery_s:.1f} s after there "
        f"were some again; it never ended, and said {told} lines",
    )


@contextmanager
def _no_more_descriptors(pid: int) -> Iterator[None]:
    """While it lasts the process can open nothing."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_first_free(pid), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def _first_free(pid: int) -> int:
    """The lowest number that is not taken: those above, if there are any, stay open."""
    taken = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
    return next(n for n in range(len(taken) + 1) if n not in taken)


def _url_of(fleet: Fleet, pid: int) -> str:
    def line() -> str:
        return next((one for one in fleet.log(pid).splitlines() if '"url"' in one and one.endswith("}")), "")

    poll(lambda: bool(line()), 30, "the server answers")
    return str(msgspec.json.decode(line())["url"])


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def _answer(one: socket.socket) -> bytes:
    """The beginning of what is said to a client; nothing where it was dropped to make room."""
    try:
        return one.recv(12)
    except ConnectionResetError:
        return b""


def _ask_all(arena: Arena, client: httpx.Client) -> list[int]:
    """What each route answers, and a new job."""
    answer = client.post("/jobs", json={"task": "work", "arguments": {"number": 1}})
    if answer.status_code == 201:
        arena.client.ack([answer.json()["id"]])
    return [*(client.get(route).status_code for route in ROUTES), answer.status_code]
