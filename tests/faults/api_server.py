"""The real server, as a process of its own: `holdfast serve` of the shop, which a test may kill and start again.

And those who enqueue through it, and do not take no for an answer.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import httpx
from msgspec import json
from msgspec.structs import replace

from holdfast.ops.api.tokens import NewToken, lines_of
from tests.faults.checker import Evidence
from tests.faults.ledger import ClientLedger
from tests.faults.shop import EFFECTS, TARGET
from tests.faults.web import CALLERS
from tests.faults.workers import CLOCK, ROOT, poll

DROPPED: Final = 0
"""In the place of a status: there was no answer."""
REFUSALS: Final = frozenset({503, 507, DROPPED})
"""What one is told while the store is away, or full: it is worth sending again."""
_GONE_WITHIN_S: Final = 20.0
_INSIST_S: Final = 60.0


class ApiProcess:
    """A server on a free port of loopback. Leaving the block ends it.

    tokens: who may ask [the callers of web.py]. program: the module to run in the place of `holdfast serve`, with the
    path of the tokens file as its first argument.
    """

    def __init__(
        self,
        folder: Path,
        store: str,
        *,
        tokens: Mapping[str, NewToken] = CALLERS,
        target: str = TARGET,
        options: Sequence[str] = (),
        program: Sequence[str] = (),
    ) -> None:
        path = folder / "tokens.toml"
        path.write_text("".join(lines_of(made.token) for made in tokens.values()))
        path.chmod(0o600)
        self._tokens = tokens
        self._log = folder / "server.log"
        serve = ["holdfast", "serve", target, "--json", "--port", "0", "--tokens", str(path), *options]
        self._words = [sys.executable, "-m", *([program[0], str(path), *program[1:]] if program else serve)]
        # What the handlers would note is nobody's here: a server runs none.
        self._environment = {**os.environ, "HOLDFAST_URL": store, EFFECTS: os.devnull, "PYTHONPATH": str(ROOT)}
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        """Where it is, without a slash at its end; another port after each start."""

    # ---- its life

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, cwd=ROOT, env=self._environment, stdout=subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the server did not start: {self.log}"
        self.url = json.decode(line)["url"].rstrip("/")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and wait for its end; it must end by itself, and well."""
        code = self._end(signal.SIGTERM)
        assert code == 0, f"the server ended with {code}: {self.log}"

    def _end(self, number: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            process.communicate(timeout=_GONE_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return process.returncode

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self.stop() if kind is None else self.kill()

    # ---- looking

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def log(self) -> str:
        """What it has said to stderr."""
        return self._log.read_text(errors="replace")

    @property
    def most_mb(self) -> float:
        """The largest memory that it has ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmHWM: the process is gone")

    def bearer(self, caller: str) -> dict[str, str]:
        """The header of one who may ask."""
        return {"Authorization": f"Bearer {self._tokens[caller].text}"}

    def client(self, caller: str = "", **options: Any) -> httpx.Client:
        """Somebody who asks; without a name, nobody."""
        headers = self.bearer(caller) if caller else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, **options)


class Posters:
    """Several clients that `POST /jobs` at once, each job under an idempotency key of its own, until each is acked.

    The client ledger has keys in the place of ids, which the server gives. over_s: they take at least so long, evenly.
    """

    def __init__(
        self,
        server: ApiProcess,
        ledger: ClientLedger,
        arguments: Sequence[Mapping[str, Any]],
        *,
        clients: int = 4,
        over_s: float = 0.0,
    ) -> None:
        self._server = server
        self._ledger = ledger
        self._left = [(f"key {number}", one) for number, one in enumerate(arguments)][::-1]
        self._pause_s = over_s * clients / len(arguments)
        self._lock = threading.Lock()
        self._ids: dict[str, str] = {}
        self._failures: list[Exception] = []
        self._is_over = False
        self._threads = [threading.Thread(target=self._run, name=f"poster {n}") for n in range(clients)]
        self.answers: Counter[int] = Counter()
        """How often each status was answered."""
        self.acked_s = 0.0
        """When one was told yes the last time."""
        self.refusal = ""
        """The latest, in the server's words."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    @property
    def are_busy(self) -> bool:
        """Whether there is something left to send."""
        return bool(self._left)

    def join(self, within_s: float) -> None:
        """Wait until everything is acked; nothing was answered but yes and what is worth sending again."""
        until_s = CLOCK.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - CLOCK.monotonic()))
            assert not thread.is_alive(), f"{thread.name} hangs: {self.told}, such as {self.refusal}"
        assert self._failures == []

    @property
    def refused(self) -> int:
        """How often one was told to send it again, or nothing."""
        return sum(n for status, n in self.answers.items() if status in REFUSALS)

    @property
    def told(self) -> str:
        """What they were answered, in words."""
        return ", ".join(f"{n:,}× {status or 'none'}" for status, n in sorted(self.answers.items()))

    def explain(self, evidence: Evidence) -> Evidence:
        """The same with ids in the place of keys: those that were answered, and those that the store has."""
        made: dict[str | None, list[str]] = {}
        for job in evidence.jobs.values():
            made.setdefault(job.idempotency_key, []).append(job.id)
        attempted = [one for key in evidence.attempted for one in made.get(key, ())]
        return replace(evidence, attempted=attempted, acked=[self._ids[key] for key in evidence.acked])

    # ---- one of them

    def _run(self) -> None:
        try:
            with httpx.Client(headers=self._server.bearer("operator"), timeout=30) as client:
                while not self._is_over and (body := self._next()):
                    poll(partial(self._is_taken, client, body), _INSIST_S, f"{body['idempotency_key']} is acked")
                    CLOCK.sleep(self._pause_s)
        except Exception as error:
            self._failures.append(error)

    def _next(self) -> dict[str, Any]:
        with self._lock:
            if not self._left:
                return {}
            key, arguments = self._left.pop()
            self._ledger.attempt([key])
        return {"task": "work", "arguments": arguments, "idempotency_key": key}

    def _is_taken(self, client: httpx.Client, body: Mapping[str, Any]) -> bool:
        """Whether nothing is left to do about it: it is acked, or the block was left."""
        try:
            answer = client.post(f"{self._server.url}/jobs", json=body)
            status, words = answer.status_code, answer.text
        except httpx.TransportError as error:
            status, words = DROPPED, str(error)
        with self._lock:
            self.answers[status] += 1
            if status in REFUSALS:
                self.refusal = words
                return self._is_over
            assert status in {200, 201}, f"{status}: {words}"
            self._ids[body["idempotency_key"]] = json.decode(words)["id"]
            self._ledger.ack([body["idempotency_key"]])
            self.acked_s = CLOCK.monotonic()
        return True
