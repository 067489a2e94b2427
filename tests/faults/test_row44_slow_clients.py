"""Row 44: slow clients and floods. Others are answered meanwhile, and workers keep their heartbeats."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
from msgspec import json
from msgspec.structs import replace

from holdfast.ops.api.tokens import lines_of
from tests.faults.arena import Arena
from tests.faults.conftest import waits
from tests.faults.report import Report
from tests.faults.web import CALLERS, UNLIMITED, bearer, served
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, poll

PARTS: Final = (
    b"",
    b"GET /jobs HTT",
    b"GET /jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n"
    + f"Authorization: {bearer('admin')['Authorization']}\r\n\r\n".encode()
    + b'{"task": ',
)


@contextmanager
def slow_clients(url: str, count: int) -> Iterator[list[socket.socket]]:
    """So many sockets that have begun a request and do not go on."""
    place = (urlsplit(url).hostname, urlsplit(url).port)
    sockets = []
    try:
        for number in range(count):
            one = socket.create_connection(place, 10)
            sockets.append(one)
            one.sendall(PARTS[number % len(PARTS)])
        yield sockets
    finally:
        for one in sockets:
            one.close()


def test_slow_clients_hold_up_neither_others_nor_workers(arena: Arena, is_full: bool, report: Report) -> None:
    count = 500 if is_full else 240
    answers: list[float] = []
    gaps: list[float] = []
    with arena.fleet() as fleet, served(arena.app, UNLIMITED) as url:
        fleet.start()
        poll(lambda: len(arena.stats().workers) == 1, 20, "the worker is there")
        with slow_clients(url, count), httpx.Client(base_url=url, headers=bearer("operator"), timeout=10) as client:
            for number in range(40):
                began_s = CLOCK.monotonic()
                made = client.post("/jobs", json={"task": "work", "arguments": {"number": number}})
                answers.append(CLOCK.monotonic() - began_s)
                assert made.status_code == 201
                stats = arena.stats()
                gaps += [stats.now - worker.seen_at for worker in stats.workers]
                CLOCK.sleep(0.02)
            arena.quiesce(20)
        assert len(fleet.running) == 1
        fleet.stop()
    assert len(gaps) >= 40
    assert max(gaps) - SETTINGS.beat_s <= LEASE_S / 2, "the worker's heartbeats were late"
    assert sorted(answers)[len(answers) * 9 // 10] < 1.0
    report(
        "clients that send a request slowly, or never to its end",
        injected=count,
        note=f"worst answer to others {max(answers):.2f} s, worst heartbeat gap {max(gaps):.2f} s",
    )


SIGN_IN: Final = (
    b"POST /session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
)


@waits
def test_stalled_sign_ins_use_up_neither_the_descriptors_nor_the_log(tmp_path: Path, report: Report) -> None:
    (tmp_path / "little.py").write_text("from holdfast import App\napp = App('memory://')\n")
    (tmp_path / "tokens.toml").write_text(lines_of(CALLERS["admin"].token))
    (tmp_path / "tokens.toml").chmod(0o600)
    holdfast = str(Path(sys.executable).with_name("holdfast"))
    words = [holdfast, "serve", "little:app", "--json", "--port", "0", "--tokens", "tokens.toml"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            ["/bin/sh", "-c", 'ulimit -n 200 && exec "$@"', "sh", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            url = urlsplit(json.decode(server.stdout.readline())["url"])
            sockets = []
            with ExitStack() as opened:
                for _ in range(400):
                    one = opened.enter_context(socket.create_connection((url.hostname, url.port), 10))
                    one.sendall(SIGN_IN)
                    sockets.append(one)
                began_s = CLOCK.monotonic()
                live = httpx.get(f"{url.geturl()}health/live", timeout=10)
                jobs = httpx.get(f"{url.geturl()}jobs", headers=bearer("admin"), timeout=10)
                took_s = CLOCK.monotonic() - began_s
                used = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        finally:
            server.terminate()
            server.wait(20)
    assert (live.status_code, jobs.status_code) == (200, 200)
    assert used < 160
    text = (tmp_path / "log").read_text()
    assert text.count("\n") < 40, text[:2000]
    assert "out of system resource" not in text
    report(
        "stalled sign-ins at a server with 200 descriptors",
        injected=len(sockets),
        note=f"{used} descriptors used, others answered in {took_s:.2f} s",
        store="memory",
    )


def test_a_body_that_trickles_is_refused_in_time(arena: Arena) -> None:
    with served(arena.app, replace(UNLIMITED, body_s=0.2)) as url, slow_clients(url, 4) as sockets:
        sockets[3].settimeout(10)
        assert sockets[3].recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_large_body_is_refused_before_it_is_sent(arena: Arena) -> None:
    head = (
        b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"Authorization: {bearer('admin')['Authorization']}\r\n".encode()
    )
    with served(arena.app, UNLIMITED) as url:
        place = (urlsplit(url).hostname, urlsplit(url).port)
        with socket.create_connection(place, 10) as one:
            one.sendall(head + b"Content-Length: 64000000\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 413 ")
        with socket.create_connection(place, 10) as one:
            one.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
            for _ in range(17):
                one.sendall(chunk)
            assert one.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_flood_is_asked_to_wait_and_another_token_is_not(arena: Arena) -> None:
    settings = replace(UNLIMITED, submit_rate="20/minute", read_rate="20/minute")
    body = {"task": "echo", "arguments": {"value": 1}}
    with served(arena.app, settings) as url, httpx.Client(base_url=url, timeout=10) as client:
        for method in ("POST", "GET"):
            flood = [client.request(method, "/jobs", headers=bearer("admin"), json=body) for _ in range(30)]
            refused = [answer for answer in flood if answer.status_code == 429]
            assert len(refused) == 10
            assert all(1 <= int(answer.headers["Retry-After"]) <= 60 for answer in refused)
            assert client.request(method, "/jobs", headers=bearer("operator"), json=body).is_success


def test_only_so_many_may_listen_and_one_who_leaves_makes_room(arena: Arena) -> None:
    with served(arena.app, replace(UNLIMITED, max_clients=3)) as url, httpx.Client(base_url=url, timeout=10) as client:
        headers = bearer("viewer")
        with ExitStack() as open_streams:
            bodies = []
            for _ in range(3):
                answer = open_streams.enter_context(client.stream("GET", "/events", headers=headers))
                assert answer.status_code == 200
                bodies.append(answer.iter_bytes())
                next(bodies[-1])
            refused = client.get("/events", headers=headers)
            assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)

        def is_let_in() -> bool:
            with client.stream("GET", "/events", headers=headers) as again:
                return again.status_code == 200

        poll(is_let_in, 10, "there is room again")
