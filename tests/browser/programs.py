"""The programs that a user starts, as processes of their own, and a client for what the tests need done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx

from holdfast.clock import SystemClock
from tests.browser.shop import SWITCHES
from tests.servers import free_port

ROOT: Final = Path(__file__).parents[2]
PATIENCE_S: Final = 60.0
CLOCK: Final = SystemClock()


def until(is_so: Callable[[], bool], what: str) -> None:
    """Look until something has come to pass."""
    end_s = CLOCK.monotonic() + PATIENCE_S
    while not is_so():
        assert CLOCK.monotonic() < end_s, f"it has not come to pass: {what}"
        CLOCK.sleep(0.03)


class Program:
    """`python -m …` in the repository, with a folder for its store and its log; ended by its own process id."""

    def __init__(
        self, folder: Path, words: Sequence[str], url: str, *, is_silent: bool = False, within: Path = ROOT
    ) -> None:
        self._words = [sys.executable, "-m", *words]
        self._within = within
        self._log = folder / f"{words[1] if len(words) > 1 else words[0]}.log"
        self._environment = {**os.environ, "HOLDFAST_URL": url, "PYTHONPATH": str(ROOT), SWITCHES: str(folder)}
        self._is_silent = is_silent
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """Start it; the first line that it prints, unless it is one that prints none."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._words, cwd=self._within, env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        if self._is_silent:
            return ""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.stop()
            raise AssertionError(f"{' '.join(self._words)} did not start: {self._log.read_text()}")
        return line

    def stop(self) -> None:
        """SIGTERM, and wait for its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=PATIENCE_S)
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Served(Program):
    """`holdfast serve` of the shop."""

    def __init__(self, folder: Path, url: str, *options: str, port: int = 0) -> None:
        words = ["holdfast", "serve", "tests.browser.shop:app", "--json", "--port", str(port), *options]
        super().__init__(folder, words, url)
        self.at = ""
        """Where the page is."""

    def start(self) -> str:
        """Start it, and learn where it is."""
        line = super().start()
        self.at = str(json.loads(line)["url"]).rstrip("/")
        return line


class Mill(Program):
    """`holdfast dev` of the mill: one process has its topics in memory, and serves the page beside its work.

    It runs in its own folder, since it starts anew whenever a file of its folder changes.
    """

    def __init__(self, folder: Path) -> None:
        self.at = f"http://127.0.0.1:{free_port()}"
        words = ["holdfast", "dev", "tests.browser.mill:app", "--json", "--grace", "0s"]
        super().__init__(
            folder, [*words, "--port", self.at.rpartition(":")[2]], f"sqlite:///{folder}/mill.db", within=folder
        )

    def start(self) -> str:
        """Start it, and wait for its page."""
        line = super().start()
        try:
            until(self._is_there, "the page of the mill is there")
        except AssertionError:
            self.stop()
            raise
        return line

    def _is_there(self) -> bool:
        try:
            return httpx.get(f"{self.at}/session", timeout=PATIENCE_S).is_success
        except httpx.TransportError:
            return False


class Shop:
    """A store with a server and a worker, and what tests do with them over HTTP."""

    def __init__(self, folder: Path, url: str, at: str) -> None:
        self.folder = folder
        self.url = url
        self.at = at
        self.client = httpx.Client(base_url=at, timeout=PATIENCE_S)

    def get(self, path: str, **query: Any) -> Any:
        """What the API answers."""
        return self.client.get(path, params=query).raise_for_status().json()

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """What the API answers to a change."""
        return self.client.post(path, json=body).raise_for_status().json()

    def enqueue(self, task: str, arguments: Mapping[str, Any] | None = None, **options: Any) -> str:
        """A job; its id."""
        made = self.post("/jobs", {"task": task, "arguments": dict(arguments or {}), **options})
        return str(made["id"])

    def state_of(self, job_id: str) -> str:
        """Where a job stands now."""
        return str(self.get(f"/jobs/{job_id}")["state"])

    def until_state(self, job_id: str, state: str) -> None:
        """Wait until a job is there."""
        until(lambda: self.state_of(job_id) == state, f"{job_id} is {state}")

    def letters(self, task: str, many: int, arguments: Mapping[str, Any] | None = None, **options: Any) -> list[str]:
        """Jobs that have failed for good by now; `order_id` counts up."""
        ids = [self.enqueue(task, {"order_id": n, **(arguments or {})}, **options) for n in range(many)]
        for job_id in ids:
            self.until_state(job_id, "dead_letter")
        return ids

    def replay(self, replay_id: str) -> Any:
        """How far a replay is."""
        return next(one for one in self.get("/replays")["items"] if one["id"] == replay_id)

    def mend(self, name: str) -> None:
        """Take away what tasks of this name stumble over."""
        (self.folder / name).touch()
