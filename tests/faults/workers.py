"""Real worker processes: started, killed, paused and stopped by their process ids, with a list of what was done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.clock import SystemClock
from holdfast.runtime.outage import AGAIN
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import WorkerSettings
from tests.faults.checker import Fault
from tests.faults.shop import EFFECTS, TARGET

ROOT: Final = Path(__file__).parents[2]
CLOCK: Final = SystemClock()
LEASE_S: Final = 2.0
SWEEP_S: Final = 0.5
SETTINGS: Final = WorkerSettings(
    room=Room(concurrency=8, threads=4, isolates=2), lease_s=LEASE_S, heartbeat_s=0.5, sweep_s=SWEEP_S, grace_s=10.0
)
"""Times scaled down: what takes minutes in production takes seconds here."""

_GONE_WITHIN_S = 20.0


def recovery_bound(
    lease_s: float = LEASE_S,
    *,
    start_s: float = 0.0,
    in_turn: int = 1,
    at_once: float = 1.0,
    away_s: float = 0.0,
    blocked_s: float = 0.0,
    sweeps: int = 1,
    sweep_s: float = SWEEP_S,
) -> float:
    """I5: by then what a fault cut off runs again: a lease, a sweep and a second. There is more time for these alone.

    start_s: what a process needs to start, here and now: what was cut off is suspect, and runs in one of its own.
    in_turn: so many start one after the other, as a worker where none is left, and then a process for its suspects.
    at_once: so many times as much is going on meanwhile as when start_s was measured.
    away_s: so long nobody reached the store, which may have renewed the lease with the last that it heard, or the first
        it hears again; and those who ask again pause for up to 5 s.
    blocked_s: so long nobody could do anything, though nobody pauses after it.
    sweeps: so many have to come by, where one finds only that the clock was set; sweep_s: the time between two.
    """
    lost_s = away_s + max(lease_s, AGAIN.max_delay) if away_s else lease_s
    return lost_s + blocked_s + sweeps * sweep_s + max(1.0, in_turn * at_once * start_s)


def poll(condition: Callable[[], bool], within_s: float, what: str) -> float:
    """Wait until it holds and say how long that took; fail when it does not in time."""
    began_s = CLOCK.monotonic()
    while not condition():
        if CLOCK.monotonic() - began_s > within_s:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        CLOCK.sleep(0.02)
    return CLOCK.monotonic() - began_s


def hold_still(pid: int) -> None:
    """Stop a process, and wait until every thread stands still: until then one of them may go on."""
    threads = Path(f"/proc/{pid}/task")
    os.kill(pid, signal.SIGSTOP)
    poll(lambda: all(doing(one) in {"T", ""} for one in threads.iterdir()), 5, f"process {pid} stands still")


def doing(folder: Path) -> str:
    """The letter for what a process or a thread of /proc is doing; none when it is gone."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_traced(pid: int) -> bool:
    """Whether each thread of a process has a tracer, such as strace."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return all("\nTracerPid:\t0\n" not in (one / "status").read_text() for one in threads)
    except OSError:
        return False


class Fleet:
    """Worker processes on one store. Leaving the block ends all that are left."""

    def __init__(self, url: str, effects: Path, folder: Path, *, source: Path | None = None) -> None:
        self._folder = folder
        path = f"{source}{os.pathsep}{ROOT}" if source else str(ROOT)
        self._env = {**os.environ, "HOLDFAST_URL": url, EFFECTS: str(effects), "PYTHONPATH": path}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._logs: dict[int, Path] = {}
        self.faults: list[Fault] = []

    # ---- starting

    def start(self, settings: WorkerSettings = SETTINGS, *, url: str = "", env: Mapping[str, str] = {}) -> int:
        """Another worker process, perhaps with another way to the store; its id."""
        arguments = (TARGET, msgspec.json.encode(settings).decode())
        return self.run("holdfast.runtime.process", *arguments, env={**env, "HOLDFAST_URL": url} if url else env)

    def supervise(self, count: int, settings: WorkerSettings = SETTINGS) -> int:
        """A supervisor with so many worker processes; its id."""
        return self.run("tests.faults.supervise", msgspec.json.encode(settings).decode(), str(count))

    def run(self, module: str, *arguments: str, prefix: tuple[str, ...] = (), env: Mapping[str, str] = {}) -> int:
        """Start a module as a program, its output in a log of its own; its id."""
        log = self._folder / f"{module.rpartition('.')[2]}-{len(self._logs)}.log"
        command = [*prefix, sys.executable, "-m", module, *arguments]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=ROOT, env={**self._env, **env}, stdout=file, stderr=subprocess.STDOUT
            )
        self._processes[process.pid] = process
        self._logs[process.pid] = log
        return process.pid

    # ---- faults

    def kill(self, pid: int) -> None:
        """SIGKILL, and wait until it is gone."""
        with self._fault("kill", pid):
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)

    def kill_amid(self, pid: int, is_amid: Callable[[], bool], within_s: float) -> bool:
        """SIGKILL in the middle of something, or at last anyway; whether it was. It is held still to be looked at."""
        began_s = CLOCK.monotonic()
        while True:
            assert pid in self.running, f"process {pid} ended by itself: {self.log(pid)}"
            at = CLOCK.monotonic()
            hold_still(pid)
            is_hit = is_amid()
            if is_hit or at - began_s > within_s:
                break
            os.kill(pid, signal.SIGCONT)
            CLOCK.sleep(0.02)
        self.kill(pid)
        self.faults[-1] = replace(self.faults[-1], at=at)
        return is_hit

    def pause(self, pid: int) -> None:
        """SIGSTOP."""
        with self._fault("pause", pid):
            hold_still(pid)

    def resume(self, pid: int) -> None:
        """SIGCONT."""
        os.kill(pid, signal.SIGCONT)

    def cut(self, pid: int, number: int) -> int:
        """A signal that ends it before its jobs have ended; its exit code."""
        with self._fault(signal.Signals(number).name, pid):
            os.kill(pid, number)
            return self.wait(pid)

    def send(self, pid: int, number: int) -> None:
        """A signal that is no fault: it may explain nothing."""
        os.kill(pid, number)

    @contextmanager
    def _fault(self, kind: str, pid: int) -> Iterator[None]:
        at = CLOCK.monotonic()
        yield
        self.faults.append(Fault(kind, pid, at, CLOCK.monotonic()))

    # ---- looking

    @property
    def running(self) -> list[int]:
        """The processes that have not ended."""
        return [pid for pid, process in self._processes.items() if process.poll() is None]

    def wait(self, pid: int, within_s: float = _GONE_WITHIN_S) -> int:
        """Its exit code, once it has ended; a signal's number is negative."""
        return self._processes[pid].wait(within_s)

    def log(self, pid: int | None = None) -> str:
        """What a process has printed, or all of them."""
        paths = self._logs.values() if pid is None else [self._logs[pid]]
        return "\n".join(path.read_text(errors="replace") for path in paths)

    # ---- the end

    def stop(self) -> None:
        """Ask all to drain, and wait for them."""
        pids = self.running
        for pid in pids:
            self.send(pid, signal.SIGTERM)
        for pid in pids:
            self.wait(pid)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self.running:
            self._processes[pid].send_signal(signal.SIGCONT)
            self._processes[pid].terminate() if "supervise" in self._logs[pid].name else self._processes[pid].kill()
        for process in self._processes.values():
            process.wait(_GONE_WITHIN_S)
