"""Programs that run for as long as something is measured, and what the kernel says about them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, json

from tests.faults.workers import CLOCK, ROOT, doing, hold_still, poll

_ENDS_WITHIN_S: Final = 60.0
_UP_WITHIN_S: Final = 60.0
_MIB: Final = 1024.0
_LOG_SHOWN: Final = 3_000


class Usage(Struct, frozen=True, kw_only=True):
    """What processes take, all of them together."""

    rss_mib: float = 0.0
    """What they share is counted in each."""
    pss_mib: float = 0.0
    """What they share is counted once."""
    fds: int = 0
    threads: int = 0


def usage(pids: Iterable[int]) -> Usage:
    """What these processes take now; those that have gone take nothing."""
    found = [one for pid in pids if (one := _usage(pid)) is not None]
    return Usage(
        rss_mib=sum(one.rss_mib for one in found),
        pss_mib=sum(one.pss_mib for one in found),
        fds=sum(one.fds for one in found),
        threads=sum(one.threads for one in found),
    )


def _usage(pid: int) -> Usage | None:
    folder = Path(f"/proc/{pid}")
    with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        kib = _kib_by_name((folder / "smaps_rollup").read_text())
        return Usage(
            rss_mib=kib["Rss"] / _MIB,
            pss_mib=kib["Pss"] / _MIB,
            fds=sum(1 for _ in (folder / "fd").iterdir()),
            threads=sum(1 for _ in (folder / "task").iterdir()),
        )
    return None


def _kib_by_name(text: str) -> dict[str, int]:
    words = [line.split() for line in text.splitlines()[1:]]
    return {name.rstrip(":"): int(kib) for name, kib, *_ in words}


class Programs:
    """Processes with logs of their own. Leaving the block ends all that are left, and they end when this process does.

    Each has a session of its own: a terminal's Ctrl-C is for the one who started them.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = {**os.environ, **env, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, module: str, *arguments: str) -> int:
        """Run a module as a program under this name; its process id."""
        assert name not in self._processes, f"{name} runs already"
        guard = [found, "--pdeathsig", "TERM", "--"] if (found := shutil.which("setpriv")) else []
        with (self._folder / f"{name}.log").open("wb") as log, (self._folder / f"{name}.out").open("wb") as out:
            self._processes[name] = subprocess.Popen(
                [*guard, sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=self._env,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        return self._processes[name].pid

    def start_server(self, target: str) -> int:
        """`holdfast serve` on a free port, under the name server; its process id."""
        return self.start("server", "holdfast", "serve", target, "--port", "0", "--json")

    def server_url(self) -> str:
        """The address of the server, once it listens there."""
        out = self._folder / "server.out"
        poll(lambda: b"\n" in out.read_bytes() or self.ended("server") is not None, _UP_WITHIN_S, "the server starts")
        assert self.ended("server") is None, self.log("server")[-_LOG_SHOWN:]
        url: str = json.decode(out.read_bytes().splitlines()[0])["url"]
        return url.rstrip("/")

    def pid(self, name: str) -> int:
        """Its process id."""
        return self._processes[name].pid

    def ended(self, name: str) -> int | None:
        """The exit code of one that has ended."""
        return self._processes[name].poll()

    def log(self, name: str) -> str:
        """What it has written to its standard error."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def stop(self, name: str) -> int:
        """Ask it to end, and wait for that; its exit code."""
        process = self._processes[name]
        process.terminate()
        try:
            code = process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            log = self.log(name)[-_LOG_SHOWN:]
            raise AssertionError(f"{name} did not end within {_ENDS_WITHIN_S:g} s of SIGTERM: {log}") from None
        del self._processes[name]
        return code

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes.values():
            process.terminate()  # a supervisor ends its workers
        for process in self._processes.values():
            try:
                process.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def strike(pid: int, is_amid: Callable[[], bool], within_s: float) -> tuple[float, float]:
    """SIGKILL to a process in the middle of something, or at last anyway; since when it stood still, and its end.

    It is held still to be looked at. It is another's child, so it is gone when its parent has noticed.
    """
    began_s = CLOCK.monotonic()
    while True:
        at = CLOCK.monotonic()
        hold_still(pid)
        if is_amid() or at - began_s > within_s:
            break
        os.kill(pid, signal.SIGCONT)
        CLOCK.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    poll(lambda: doing(Path(f"/proc/{pid}")) in {"", "Z"}, 10, f"process {pid} is gone")
    return at, CLOCK.monotonic()


def lived_s(pid: int) -> float:
    """How long ago a process was begun; 0 when it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        begun = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return float(Path("/proc/uptime").read_text().split()[0]) - begun
    return 0.0


def worker_words(
    target: str, *, processes: int, concurrency: int, threads: int, lease_s: float, queues: Sequence[str] = ()
) -> list[str]:
    """The arguments of `python -m holdfast` for a supervisor."""
    words = ["worker", target, "--processes", str(processes), "--concurrency", str(concurrency)]
    words += ["--threads", str(threads), "--isolates", "1", "--lease", f"{lease_s:g}s"]
    return words + (["--queues", ",".join(queues)] if queues else [])
