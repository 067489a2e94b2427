"""`holdfast serve` and `holdfast dev` as a user runs them: real processes, a real port."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from holdfast.clock import SystemClock
from tests.servers import free_port

PATIENCE_S = 30.0
CLOCK = SystemClock()
SHOP = """
from holdfast import App, Permanent

app = App({url!r})

@app.task(name="charge")
def charge(order_id: int, cents: int = 5) -> str:
    if cents > 100:
        raise Permanent("declined")
    return f"charged {{cents}}"
"""


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address that it says it is at."""
    command = [sys.executable, "-m", "holdfast", *words, "--json"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        start = json.loads(process.stdout.readline() or "{}")
        assert start.get("kind") == "start", (folder / "log").read_text()
        yield process, start.get("url") or start["page"]
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def until(is_so: Callable[[], bool]) -> None:
    end_s = CLOCK.monotonic() + PATIENCE_S
    while not is_so():
        assert CLOCK.monotonic() < end_s, "it has not come to pass"
        CLOCK.sleep(0.05)


def answers(client: httpx.Client, path: str) -> bool:
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


def test_a_server_stops_at_once_however_many_listen(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP.format(url="sqlite:///shop.db"))
    with (
        running(tmp_path, "serve", "shop:app", "--port", "0") as (server, url),
        httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
        client.stream("GET", "/events") as one,
        client.stream("GET", "/events") as two,
    ):
        streams = [stream.iter_lines() for stream in (one, two)]
        for lines in streams:
            assert any(line == "event: overview" for line in lines)
        made = client.post("/jobs", json={"task": "charge", "arguments": {"order_id": 1}})
        assert made.status_code == 201
        for lines in streams:
            assert any('"queued":1' in line for line in lines)
        begun_s = CLOCK.monotonic()
        server.send_signal(signal.SIGTERM)
        assert all("event: closed" in list(lines) for lines in streams)
        assert server.wait(PATIENCE_S) == 0
        assert CLOCK.monotonic() - begun_s < 4.0
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_server_starts_while_its_store_is_away(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    (tmp_path / "shop.py").write_text(SHOP.format(url=url))
    with (
        running(tmp_path, "serve", "shop:app", "--port", "0") as (_, at),
        httpx.Client(base_url=at, timeout=PATIENCE_S) as client,
    ):
        assert client.get("/health/live").status_code == 200
        assert client.get("/health/ready").status_code == 503
        assert client.get("/health").status_code == 503
        away = client.get("/jobs")
        assert (away.status_code, away.headers["retry-after"]) == (503, "2")


def test_dev_has_a_worker_and_a_page_in_one_and_waits_for_a_broken_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    good = SHOP.format(url="memory://")
    file.write_text(good)
    port = str(free_port())
    with (
        running(tmp_path, "dev", "shop:app", "--port", port) as (dev, url),
        httpx.Client(base_url=url, timeout=PATIENCE_S) as client,
    ):
        until(lambda: answers(client, "/health/ready"))
        made = client.post("/jobs", json={"task": "charge", "arguments": {"order_id": 1}}).json()
        until(lambda: client.get(f"/jobs/{made['id']}").json()["state"] == "completed")
        file.write_text("def broken(:\n")
        until(lambda: "waiting for the next change" in (tmp_path / "log").read_text())
        assert not answers(client, "/health/live")
        file.write_text(good.replace('name="charge"', 'name="charge.again"'))
        until(lambda: answers(client, "/tasks"))
        assert [task["name"] for task in client.get("/tasks").json()["items"]] == ["charge.again"]
        dev.send_signal(signal.SIGINT)
        assert dev.wait(PATIENCE_S) == 0
        assert not answers(client, "/health/live")
    assert "SyntaxError" in (tmp_path / "log").read_text()


def test_dev_that_starts_with_a_broken_file_waits_for_the_next_save(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("def broken(:\n")
    port = str(free_port())
    command = [sys.executable, "-m", "holdfast", "dev", "shop:app", "--port", port]
    with (tmp_path / "log").open("w") as log:
        dev = subprocess.Popen(command, cwd=tmp_path, stderr=log, stdout=subprocess.DEVNULL)
    try:
        until(lambda: "waiting for the next change" in (tmp_path / "log").read_text())
        file.write_text(SHOP.format(url="memory://"))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client:
            until(lambda: answers(client, "/health/ready"))
    finally:
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(PATIENCE_S) == 0


def test_a_target_that_is_nowhere_is_told_at_once(tmp_path: Path) -> None:
    for command in ("serve", "dev"):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", command, "nowhere:app"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 2
        assert "No module named 'nowhere'" in done.stderr


@pytest.mark.parametrize("module", ["fastapi", "uvicorn", "prometheus_client", "opentelemetry", "pydantic"])
def test_importing_holdfast_loads_nothing_of_the_web(module: str) -> None:
    code = f"import sys, holdfast; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_S, check=False).returncode == 0
