"""The ledgers of a soak, which would fill a disk within hours: written line by line, and folded into bytes meanwhile.

Jobs are numbered from 0 in the order in which they are enqueued. Every process has files of its own, each line is one
write, and a file that was read to its end is removed once its process has begun another, or is gone.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from holdfast.clock import SystemClock
from tests.faults.checker import SETTLED_S

What = Literal["start", "end", "fail", "tick"]

SEGMENT_BYTES: Final = 1_000_000
_MOST: Final = 255
_ENDLESS: Final = float("inf")


class Recovery(Struct, frozen=True, kw_only=True):
    """A job that a kill cut off amid its run, until it ran again."""

    job: str
    lasted_s: float
    turn_s: float
    """Of these, how long the process in which it ran again had others first."""
    deaths: int
    """Of workers that had it, with the first."""

    @property
    def took_s(self) -> float:
        """For each death."""
        return self.lasted_s / self.deaths


class _Run(Struct, frozen=True):
    job: str
    at: float


class _Cut(Struct):
    """A job that was cut off, and does not run again yet."""

    job: str
    at: float
    died_s: float
    """When the last one died that had it."""
    deaths: int = 1


class EffectPen:
    """A handler's side: one line for each start and each end, in files of its process's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clock = SystemClock()
        self._lock = threading.Lock()
        self._pid = 0
        self._fd = -1
        self._segment = 0
        self._written = 0

    def write(self, number: int, what: What, *, wait_s: float = 0.0, note: str = "-") -> None:
        """Add a line. number: of the job. wait_s: for a start, how long after its due time the job was claimed."""
        line = f"{number} {what} {self._clock.monotonic():.4f} {wait_s:.4f} {note}\n".encode()
        with self._lock:
            if self._pid != os.getpid() or self._written >= SEGMENT_BYTES:
                self._begin()
            self._written += os.write(self._fd, line)

    def _begin(self) -> None:
        """The next file; nothing is written to the one before from here on."""
        if self._pid == os.getpid():
            os.close(self._fd)
            self._segment += 1
        else:  # this process has none yet: it is new, or was forked
            self._pid, self._segment = os.getpid(), 0
        path = self._folder / f"{self._pid}-{os.getppid()}-{self._segment}"
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._written = 0


class EffectBook:
    """The checker's side: what all handlers did, as a few bytes for each job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._starts = bytearray()
        self._ends = bytearray()
        self._fails = bytearray()
        self._excuses = bytearray()
        self._ended_s = array("f")
        self._failed_s = array("f")
        self._running: dict[int, dict[int, _Run]] = defaultdict(dict)
        self._recent: dict[int, deque[tuple[float, int]]] = defaultdict(deque)
        self._parents: dict[int, int] = {}
        self._cut: dict[int, _Cut] = {}
        self._isolated: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.done = 0
        """Jobs whose handler has come to its end."""
        self.done_by = Counter[int]()
        """Such ends by process."""
        self.waits_s: list[float] = []
        """From due to claimed, of every start; whoever reads them may clear them."""
        self.recoveries: list[Recovery] = []
        """What kills cut off, and ran again."""
        self.ticks: set[str] = set()
        """The jobs of schedules that have run."""

    # ---- reading

    def fold(self) -> None:
        """Read what was written since, and remove what is not written to any more."""
        by_process: dict[int, list[tuple[int, int, Path]]] = defaultdict(list)
        for path in self._folder.iterdir():
            pid, parent, segment = map(int, path.name.split("-"))
            by_process[pid].append((segment, parent, path))
        for pid, found in by_process.items():
            found.sort()
            for segment, parent, path in found:
                self._parents[pid] = parent
                self._fold(pid, path)
                if segment < found[-1][0]:  # it was there when the next one was: so it was whole by now
                    path.unlink()
                    self._read.pop(path, None)

    def _fold(self, pid: int, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + whole
        for line in data[:whole].decode().splitlines():
            number, what, at, wait_s, note = line.split(" ")
            self._add(pid, int(number), what, float(at), float(wait_s), note)

    def _add(self, pid: int, number: int, what: str, at: float, wait_s: float, note: str) -> None:
        if what == "tick":
            self.ticks.add(note)
            return
        self._make_room(number)
        if what == "start":
            _count(self._starts, number)
            self._running[pid][number] = _Run(note, at)
            self.waits_s.append(wait_s)
            if (cut := self._cut.pop(number, None)) is not None:
                turn_s = sum(max(0.0, end_s - max(start_s, cut.at)) for start_s, end_s in self._isolated[pid])
                self.recoveries.append(Recovery(job=note, lasted_s=at - cut.at, turn_s=turn_s, deaths=cut.deaths))
            return
        run = self._running[pid].pop(number, None)
        if run is not None and self._parents[pid] in self._parents:  # one of those that were cut off: it ran by itself
            self._isolated[pid].append((run.at, at))
        recent = self._recent[pid]
        recent.append((at, number))
        while recent[0][0] < at - SETTLED_S:
            recent.popleft()
        if what == "end":
            self.done += self._ends[number] == 0
            self.done_by[pid] += 1
            _count(self._ends, number)
            self._ended_s[number] = at
        else:
            _count(self._fails, number)
            self._failed_s[number] = at

    def _make_room(self, number: int) -> None:
        if (more := number + 1 - len(self._starts)) > 0:
            more = max(more, len(self._starts) // 4)
            for one in (self._starts, self._ends, self._fails, self._excuses):
                one.extend(bytes(more))
            for times in (self._ended_s, self._failed_s):
                times.extend([0.0] * more)

    # ---- faults

    def is_amid(self, pid: int) -> bool:
        """Whether a process, which stands still, is in the middle of a job."""
        self.fold()
        return bool(self._running.get(pid))

    def excuse(self, pid: int, at: float) -> int:
        """A process was killed then: what it had begun, or ended shortly before, may run again; how many were cut off.

        What it ran in processes of their own was hit with it.
        """
        self.fold()
        cut = 0
        for one in [pid, *(child for child, parent in self._parents.items() if parent == pid)]:
            running = self._running.pop(one, {})
            ended = {number for ended_s, number in self._recent.pop(one, ()) if ended_s >= at - SETTLED_S}
            for number in running.keys() | ended:
                _count(self._excuses, number)
            self._cut.update({number: _Cut(run.job, at, at) for number, run in running.items()})
            cut += len(running)
            for path in self._folder.glob(f"{one}-*"):
                path.unlink()
                self._read.pop(path, None)
            self._parents.pop(one, None)
            self._isolated.pop(one, None)
        return cut

    def cut_off(self) -> dict[str, float]:
        """The jobs that kills have cut off and that do not run again yet; when the last one died that had it."""
        return {one.job: one.died_s for one in self._cut.values()}

    def bereave(self, died_s: Mapping[str, float]) -> None:
        """Who had taken these back died then, before it had begun them."""
        for one in self._cut.values():
            if one.job in died_s:
                one.deaths += 1
                one.died_s = died_s[one.job]

    # ---- judging

    @property
    def recoveries_s(self) -> list[float]:
        """From each kill until what it cut off ran again, for each death."""
        return [one.took_s for one in self.recoveries]

    def has_ended(self, number: int) -> bool:
        """Whether its handler has come to its end."""
        return number < len(self._ends) and self._ends[number] > 0

    def has_failed(self, number: int) -> bool:
        """Whether an attempt has failed."""
        return number < len(self._fails) and self._fails[number] > 0

    def ended_s(self, number: int) -> float:
        """When it came to its last end, in monotonic time; never, if it did not."""
        return self._ended_s[number] if self.has_ended(number) else _ENDLESS

    def failed_s(self, number: int) -> float:
        """When an attempt failed last, in monotonic time; never, if none did."""
        return self._failed_s[number] if self.has_failed(number) else _ENDLESS

    def is_excused(self, number: int) -> bool:
        """Whether a kill may have hit it, amid its run or before its end could be settled."""
        return number < len(self._excuses) and self._excuses[number] > 0

    @property
    def twice(self) -> int:
        """Ends beyond the first of each job."""
        return sum(n - 1 for n in self._ends if n > 1)

    def unexcused(self) -> list[int]:
        """The jobs that ran more often than failures and kills explain."""
        rows = zip(self._starts, self._fails, self._excuses, strict=True)
        return [number for number, (starts, fails, excuses) in enumerate(rows) if starts > 1 + fails + excuses]


def _count(counts: bytearray, number: int) -> None:
    counts[number] = min(_MOST, counts[number] + 1)


class ClientPen:
    """A producer's side: `attempt FIRST END` before it sends these numbers, `acked FIRST END` after the reply."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, word: Literal["attempt", "acked", "refused"], first: int, end: int) -> None:
        """Add a line, in one write."""
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{word} {first} {end}\n".encode())


class ClientBook:
    """What producers were promised. They number their jobs without gaps, so it is two numbers."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self.attempted = 0
        self.acked = 0
        self.refused = 0
        """How often a producer was told no, and went on asking."""

    def fold(self) -> None:
        """Read what was written since."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read += whole
        for line in data[:whole].decode().splitlines():
            word, first, end = line.split(" ")
            if word == "refused":
                self.refused += 1
                continue
            known = self.attempted if word == "attempt" else self.acked
            if int(first) != known:
                raise AssertionError(f"the producer's numbers have a gap: {line}, after {known}")
            if word == "attempt":
                self.attempted = int(end)
            else:
                self.acked = int(end)
