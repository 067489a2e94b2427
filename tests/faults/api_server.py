"""The real server, as a process of its own: `holdfast serve` of the shop, which a test may kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import httpx
from msgspec import json

from holdfast.ops.api.tokens import NewToken, lines_of
from tests.faults.shop import EFFECTS, TARGET
from tests.faults.web import CALLERS
from tests.faults.workers import ROOT

_GONE_WITHIN_S: Final = 20.0


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
