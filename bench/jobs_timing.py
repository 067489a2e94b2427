"""How a queue is timed: every figure in processes of its own, on a real disk, a drain watched from outside.

A figure's process calls one function of a bench module (jobs_call.py) and prints what it returns.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PYTHON = Path(sys.executable)
BATCH = 1_000
CHILD_LIMIT_S = 600.0
POLL_S = 0.003
POLL_SPARES = 10
"""Where counting is slow it is done less often, so that it takes no more than a tenth of the time."""
PATIENCE_S = 120.0
"""A drain that makes no progress for so long has failed."""
ENDS_WITHIN_S = 10.0
"""Workers that take longer to end are killed; nothing is measured after that."""
LOG_SHOWN = 2_000
PAGE = b"\xa5" * 4096
IN_MEMORY = {"tmpfs", "ramfs"}

Worker = subprocess.Popen[bytes]


class Failed(Exception):
    """A subject could not be measured, and why."""


# ---- the machine


def fsync_times_us(folder: Path, writes: int = 100) -> list[float]:
    """Microseconds for each of so many appended pages of 4 KiB to reach the disk."""
    times = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(writes):
            began = time.perf_counter()
            file.write(PAGE)
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - began) * 1e6)
    return times


def busy_share(seconds: float = 1.0) -> float:
    """The part of all processors that was in use while this process slept; 0 where /proc is not."""
    before = _ticks()
    time.sleep(seconds)
    busy, total = (now - then for now, then in zip(_ticks(), before, strict=True))
    return busy / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Ticks of the processors since the boot: in use, and all."""
    try:
        user, nice, system, idle, waiting, *rest = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        )
    except OSError:
        return 0, 0
    busy = user + nice + system + sum(rest[:3])
    return busy, busy + idle + waiting


def filesystem(folder: Path) -> tuple[str, str]:
    """The type and the mount point of the file system that a folder is on; unknown where /proc is not."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown", "/"
    above = {str(one) for one in (folder.resolve(), *folder.resolve().parents)}
    found = [(mount, kind) for _, mount, kind, *_ in mounts if mount in above]
    mount, kind = max(found, key=lambda pair: len(pair[0]))  # of equally long ones the first; they are the same place
    return kind, mount


def real_disk() -> Path:
    """The usual place for temporary files, or where that is no disk, another one."""
    places = (Path(tempfile.gettempdir()), Path("/var/tmp"))
    return next((place for place in places if filesystem(place)[0] not in IN_MEMORY), Path.cwd())


@contextmanager
def workplace(parent: Path) -> Iterator[Path]:
    """A folder of our own in that one, on a real disk or not at all; removed in the end."""
    kind, mount = filesystem(parent)
    if kind in IN_MEMORY:
        sys.exit(f"{parent} is on {mount}, which is {kind}: nothing is durable there. Name another place with --dir.")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=parent))
    folder.chmod(0o755)  # a server with a user of its own must reach what is in it
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# ---- processes


def run(module: str, function: str, environment: Mapping[str, str], python: Path = PYTHON, **arguments: object) -> Any:
    """What the function of that bench module returns, in a process of its own."""
    command = [str(python), "-m", "jobs_call", module, function, json.dumps(arguments)]
    done = subprocess.run(
        command,
        env=_environment(environment),
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
        timeout=CHILD_LIMIT_S,
    )
    if done.returncode:
        raise Failed(f"{module}.{function} ended with {done.returncode}: {done.stderr[-LOG_SHOWN:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE), **environment}


@contextmanager
def started(
    command: Sequence[str], environment: Mapping[str, str], log: Path, *, is_killed: bool = False
) -> Iterator[Worker]:
    """A process that runs inside the block; what it says goes to the log. is_killed: it is not asked to end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=_environment(environment), cwd=HERE, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            try:
                if not is_killed:
                    process.send_signal(signal.SIGTERM)
                    process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                is_killed = True
            if is_killed:
                kill_tree(process)


def kill_tree(process: Worker) -> None:
    """SIGKILL to a process and all below it, and wait for it."""
    family = [process.pid, *children_of(process.pid)]
    for pid in family:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def cpu_s(pid: int) -> float:
    """Seconds of processor time that a process and its living children have used."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for one in [pid, *children_of(pid)]:
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def peak_mb(pid: int) -> float:
    """The most memory that a process and its living children have had, in MB, each at its own peak."""
    total = 0.0
    for one in [pid, *children_of(pid)]:
        lines = Path(f"/proc/{one}/status").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024 / 1e6
    return total


def children_of(pid: int) -> list[int]:
    """All processes below one, however deep."""
    try:
        children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has gone by itself
        return []
    return [*children, *(below for child in children for below in children_of(child))]


# ---- rates and drains


def rate_of(count: int, work: Callable[[], object]) -> float:
    """So many a second, when the work does so many."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


async def async_rate_of(count: int, work: Callable[[], Awaitable[object]]) -> float:
    """The same for work that is awaited."""
    began = time.perf_counter()
    await work()
    return count / (time.perf_counter() - began)


def drain_rate(count_done: Callable[[], int], total: int, workers: Sequence[Worker], log: Path) -> float:
    """Jobs a second from the first completion seen to the last; the start of the worker is left out."""
    first = _wait_for(count_done, 1, workers, log)
    began = time.perf_counter()
    _wait_for(count_done, total, workers, log)
    return (total - first) / (time.perf_counter() - began)


def _wait_for(count_done: Callable[[], int], least: int, workers: Sequence[Worker], log: Path) -> int:
    last, seen_at = 0, time.monotonic()
    while True:
        asked_at = time.monotonic()
        done = count_done()
        if done >= least:
            return done
        now = time.monotonic()
        if done > last:
            last, seen_at = done, now
        ended = [worker.returncode for worker in workers if worker.poll() is not None]
        if ended or now - seen_at > PATIENCE_S:
            why = f"the worker ended with {ended[0]}" if ended else f"nothing happened for {PATIENCE_S:.0f} s"
            raise Failed(f"{done} of {least} jobs, then {why}: {log.read_text(errors='replace')[-LOG_SHOWN:]}")
        time.sleep(max(POLL_S, (now - asked_at) * POLL_SPARES))


def pauses(count: int) -> Iterator[float]:
    """So many instants to send a job at, each after a pause of 20 to 80 ms, or of a second every tenth time."""
    chance = random.Random(0)
    for turn in range(count):
        time.sleep(1.0 if turn % 10 == 9 else chance.uniform(0.02, 0.08))
        yield time.monotonic()


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
