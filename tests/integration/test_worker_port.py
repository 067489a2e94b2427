"""`holdfast worker --metrics-port`: a real worker, asked over HTTP while it works and while it drains; it logs JSON."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from holdfast.clock import SystemClock

SHOP = """
import logging, threading, os
from pathlib import Path
import holdfast

app = holdfast.App("sqlite:///shop.db")
log = logging.getLogger("shop")

@app.task
def mail(n: int) -> None:
    log.info("mailing", extra={"n": n, "password": "hunter2"})
    if n < 0:
        raise ValueError("no such mail")

@app.task(isolate="process")
def crunch() -> None:
    log.warning("crunching in %d", os.getpid())

@app.task
def long() -> None:
    while not Path("go").exists():
        threading.Event().wait(0.01)
"""


def ask(netloc: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(netloc, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until(is_so: Callable[[], bool], limit_s: float = 30.0) -> None:
    clock = SystemClock()
    end_s = clock.monotonic() + limit_s
    while not is_so():
        assert clock.monotonic() < end_s
        clock.sleep(0.05)


def numbers(netloc: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    families = text_string_to_metric_families(ask(netloc, "/metrics")[1])
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


def test_a_worker_tells_how_it_is_and_writes_json(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    enqueue = "import shop; shop.mail.enqueue(1); shop.mail.enqueue(-1); shop.crunch.enqueue(); shop.app.close()"
    subprocess.run([sys.executable, "-c", enqueue], cwd=tmp_path, check=True, timeout=60)
    command = [sys.executable, "-m", "holdfast", "worker", "shop:app", "--json", "--processes", "2"]
    with (tmp_path / "log").open("w") as log:
        worker = subprocess.Popen(
            [*command, "--metrics-port", "0", "--log-format", "json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert worker.stdout is not None
        assert json.loads(worker.stdout.readline())["kind"] == "start"
        at = urlsplit(json.loads(worker.stdout.readline())["metrics"]).netloc
        assert ask(at, "/health/live") == (200, "ok\n")
        until(lambda: ask(at, "/health/ready") == (200, "ok\n"))

        def total(outcome: str) -> float:
            return sum(
                n for key, n in numbers(at).items() if key[0] == "holdfast_worker_attempts_total" and outcome in key
            )

        until(lambda: total("completed") == 2 and total("failed") == 1)
        found = numbers(at)
        assert (found["holdfast_worker_up", "0"], found["holdfast_worker_up", "1"]) == (1, 1)
        assert sum(n for key, n in found.items() if key[0] == "holdfast_worker_failures_total") == 1
        subprocess.run(
            [sys.executable, "-c", "import shop; shop.long.enqueue(); shop.app.close()"],
            cwd=tmp_path,
            check=True,
            timeout=60,
        )
        until(lambda: sum(n for key, n in numbers(at).items() if key[0] == "holdfast_worker_jobs_running") == 1)
        worker.send_signal(signal.SIGTERM)
        until(lambda: ask(at, "/health/ready") == (503, "it is draining\n"))
        assert ask(at, "/health/live") == (200, "ok\n")
        (tmp_path / "go").touch()
        assert worker.wait(timeout=30) == 0
    finally:
        if worker.poll() is None:
            os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        if worker.stdout is not None:
            worker.stdout.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    mails = [line for line in lines if line["message"] == "mailing"]
    assert {(line["task"], line["n"], line["attempt"], line["password"]) for line in mails} == {
        ("shop.mail", 1, 1, "[redacted]"),
        ("shop.mail", -1, 1, "[redacted]"),
    }
    (failed,) = [line for line in lines if "no such mail" in line["message"]]
    ids = {line["n"]: line["job"] for line in mails}
    assert (failed["logger"], failed["task"], failed["job"]) == ("holdfast.worker", "shop.mail", ids[-1])
    (crunched,) = [line for line in lines if line["message"].startswith("crunching")]
    assert (crunched["task"], crunched["attempt"]) == ("shop.crunch", 1)
    assert (len(crunched["job"]), len(crunched["worker"])) == (36, 36)
