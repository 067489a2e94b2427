"""Keeps a number of worker processes running: starts them, replaces the dead, stops them in good order."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.ports import Clock
from holdfast.runtime.exposition import Metric
from holdfast.runtime.isolates import SCARCE
from holdfast.runtime.process import CANNOT_START, CHILD_OF
from holdfast.runtime.reports import REPORTS_TO, SILENT_S, Line, metrics_of
from holdfast.runtime.worker import Exit, WorkerSettings

_logger = logging.getLogger("holdfast.supervisor")

PROCESS = "holdfast.runtime.process"
"""What a worker process runs, unless it is told otherwise."""

_LOOK_S = 0.1
_RELOAD_LOOK_S = 0.5
_STOP_LOOK_S = 0.02
_LONGEST_PAUSE_S = 30.0
_DOUBLINGS = 10
_LIVED_S = 3.0
_KILL_AFTER_S = 10.0


class Supervisor:
    """Runs `count` worker processes until it is told to stop.

    A process that ends by itself is started again, after a pause that grows while starts keep failing. The first
    SIGTERM or SIGINT asks every process to drain; the second ends them at once. With `watch`, a change of a Python file
    below it restarts the processes. `module` is what each process runs, with the target, the settings and `arguments`.
    `is_probed` has them report how they are doing, for `metrics`, `why_not_live` and `why_not_ready`.
    """

    def __init__(
        self,
        target: str,
        settings: WorkerSettings,
        count: int,
        clock: Clock,
        *,
        watch: Path | None = None,
        module: str = PROCESS,
        arguments: Sequence[str] = (),
        is_probed: bool = False,
    ) -> None:
        self._command = [
            sys.executable,
            "-m",
            module,
            target,
            msgspec.json.encode(settings).decode(),
            *arguments,
        ]
        self._grace_s = settings.grace_s
        self._clock = clock
        self._places = [_Place(clock, is_probed=is_probed) for _ in range(count)]
        self._looked_s = clock.monotonic()
        self._signals: list[int] = []
        self._watch = watch
        self.restarts = 0

    def run(self) -> int:
        """Start the processes and look after them; the exit code says how they ended."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        stamps = self._stamps()
        looked_s = self._clock.monotonic()
        while not self._signals:
            code = self._start_missing()
            if code is not None:
                self._stop_all()
                return code
            self._clock.sleep(_LOOK_S)
            if self._watch is not None and self._clock.monotonic() - looked_s >= _RELOAD_LOOK_S:
                looked_s = self._clock.monotonic()
                if (now := self._stamps()) != stamps:
                    stamps = now
                    _logger.info("files changed: restarting")
                    self._reload()
        return self._stop_all()

    # ---- how they are doing; from any thread

    def metrics(self) -> list[Metric]:
        """What the processes have counted, and how they are."""
        return metrics_of([place.line for place in self._places], self.restarts)

    def why_not_live(self) -> str:
        """Why all of this should be started again: a process, or this one, that is there and does nothing any more."""
        silent_s = self._clock.monotonic() - self._looked_s
        if silent_s > SILENT_S:
            return f"the supervisor hangs for {silent_s:.0f} s now"
        return "; ".join(why for place in self._places if (why := place.line.why_not_live()))

    def why_not_ready(self) -> str:
        """Why none of the processes can claim jobs."""
        if self._signals:
            return "it is draining"
        reasons = [place.line.why_not_ready() for place in self._places]
        return "" if not all(reasons) else "; ".join(dict.fromkeys(reasons))

    # ---- inside

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals.append(number)  # no more: what takes a lock may find that the thread it has interrupted holds it

    def _start_missing(self) -> int | None:
        """Start what is not running; the exit code when that is hopeless."""
        self._hear()
        for place in self._places:
            code = place.look()
            if code is not None:
                self.restarts += 1
                if code == CANNOT_START and self._watch is None and not self._has_worked:
                    return code
                is_held = code == CANNOT_START and not self._has_worked
                _logger.warning("worker process %d %s", place.last_pid, _what_follows(code, is_held=is_held))
                if is_held:
                    place.hold()
            if place.is_due:
                self._start(place)
        return None

    def _start(self, place: _Place) -> None:
        """Start a process, or put it off while the machine has none to give: the others have work to do."""
        try:
            place.start(self._command)
        except OSError as error:
            if error.errno not in SCARCE:  # as when the program is gone: that does not pass
                raise
            _logger.error("no worker process can be started for now: %s", error)
            place.put_off()

    def _hear(self) -> None:
        self._looked_s = self._clock.monotonic()
        for place in self._places:
            place.line.hear()

    @property
    def _has_worked(self) -> bool:
        """Whether a process of this code has ever run for a while: one that cannot start then will start later."""
        return self._watch is None and any(place.has_lived for place in self._places)

    def _reload(self) -> None:
        self._stop_all()
        for place in self._places:
            place.release()

    def _stop_all(self) -> int:
        """Ask all to drain, and end those that do not within their grace time; the worst exit code."""
        for place in self._places:
            place.send(signal.SIGTERM)
        deadline_s = self._clock.monotonic() + self._grace_s + _KILL_AFTER_S
        while any(place.is_running for place in self._places):
            self._hear()
            is_second = len(self._signals) > 1
            if is_second or self._clock.monotonic() > deadline_s:
                for place in self._places:
                    place.send(signal.SIGKILL)
                for place in self._places:
                    place.wait()
                return 128 + self._signals[-1] if is_second else Exit.RELEASED
            self._clock.sleep(_STOP_LOOK_S)
        return max((place.code for place in self._places), default=0)

    def _stamps(self) -> dict[str, float]:
        if self._watch is None:
            return {}
        return dict(_python_files(self._watch))


def _what_follows(code: int, *, is_held: bool) -> str:
    if is_held:
        return "could not start: waiting for the next change"
    return "is replaced" if code == Exit.REPLACE else f"ended with {code} and is started again"


def _python_files(root: Path) -> Iterable[tuple[str, float]]:
    """Each with the time of its last change."""
    skipped = {"__pycache__", "node_modules", "venv"}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in skipped and not name.startswith(".")]
        for file in files:
            if file.endswith(".py"):
                path = Path(folder, file)
                with suppress(OSError):  # editors replace files: it may be gone by now
                    yield str(path), path.stat().st_mtime


class _Place:
    """One of the processes, over its lives."""

    def __init__(self, clock: Clock, *, is_probed: bool) -> None:
        self._clock = clock
        self.line = Line(clock, is_open=is_probed)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._due_s: float | None = 0.0
        self._failures = 0
        self.code = 0
        self.last_pid = 0
        self._has_lived = False

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        if self._process is not None and self._process.poll() is not None:
            # One that works hears of SIGTERM and ends by itself: one that the signal has ended had not begun to.
            is_young = self._clock.monotonic() - self._started_s < _LIVED_S
            is_unbegun = is_young and self._process.returncode == -signal.SIGTERM
            self.code, self._process = Exit.DRAINED if is_unbegun else _code(self._process), None
            self.line.close()
        return self._process is not None

    @property
    def has_lived(self) -> bool:
        """Whether a process has run here for a while, or does."""
        return self._has_lived or (self.is_alive and self._clock.monotonic() - self._started_s >= _LIVED_S)

    @property
    def is_alive(self) -> bool:
        """Whether there is a process that has not ended; unlike `is_running` it leaves one that has to `look`."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_due(self) -> bool:
        """Whether a process is to be started now."""
        # One that has just ended has to be looked at first: is_running would forget how it ended.
        return self._process is None and self._due_s is not None and self._clock.monotonic() >= self._due_s

    def start(self, command: list[str]) -> None:
        """Start a process, in a session of its own: a terminal's Ctrl-C is for the supervisor alone."""
        self.code = 0
        with self.line.opened() as fd:
            told = [f"{CHILD_OF}{os.getpid()}", *([] if fd is None else [f"{REPORTS_TO}{fd}"])]
            given = () if fd is None else (fd,)
            self._process = subprocess.Popen([*command, *told], start_new_session=True, pass_fds=given)  # noqa: S603
        self._started_s = self._clock.monotonic()
        self.last_pid = self._process.pid

    def look(self) -> int | None:
        """The exit code of a process that has ended since the last look; sets when the next one is due."""
        if self._process is None or self._process.poll() is None:
            return None
        code, self._process = _code(self._process), None
        self.line.close()
        now_s = self._clock.monotonic()
        # One that cannot start never began to work, however long it took to find out. Where one did, its end is nothing
        # against the next: pauses would leave its work to the others, which are killed the more often then.
        is_stable = code != CANNOT_START and now_s - self._started_s >= _LIVED_S
        self._has_lived = self._has_lived or is_stable
        self._failures = 0 if is_stable or code == Exit.REPLACE else self._failures + 1
        self._due_s = now_s + self._pause_s
        return code

    def put_off(self) -> None:
        """It could not be started."""
        self._failures += 1
        self._due_s = self._clock.monotonic() + self._pause_s

    @property
    def _pause_s(self) -> float:
        doublings = min(self._failures, _DOUBLINGS)  # a power of a day's failures is beyond what a float can hold
        return min(_LONGEST_PAUSE_S, 0.1 * 2**doublings) if doublings > 1 else 0.0

    def hold(self) -> None:
        """Do not start it again until released."""
        self._due_s = None

    def release(self) -> None:
        """Start it at once."""
        self._due_s, self._failures = 0.0, 0

    def send(self, number: int) -> None:
        """Send a signal, if there is a process."""
        if self.is_running and self._process is not None:
            self._process.send_signal(number)

    def wait(self) -> None:
        """Until it is gone."""
        if self._process is not None:
            self._process.wait()


def _code(process: subprocess.Popen[bytes]) -> int:
    """The exit code; a process ended by a signal has 128 and the signal's number, as in a shell."""
    return 128 - process.returncode if process.returncode < 0 else process.returncode
