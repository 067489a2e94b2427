"""Real worker processes under a supervisor: replaced when they die, stopped in good order, restarted on changes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from holdfast.clock import SystemClock
from holdfast.runtime.supervisor import Supervisor
from holdfast.runtime.worker import WorkerSettings
from holdfast.testing import ManualClock

DRIVER = '''
import errno, logging, os, signal, subprocess, sys
from pathlib import Path
from holdfast.clock import SystemClock
from holdfast.runtime import supervisor as module
from holdfast.runtime.runner import Room
from holdfast.runtime.supervisor import Supervisor
from holdfast.runtime.worker import WorkerSettings

logging.basicConfig(level="INFO")
if "LIVED_S" in os.environ:
    module._LIVED_S = float(os.environ["LIVED_S"])

class Signalled(SystemClock):
    """SIGTERM comes at the worst moment of each wait: when the lock of what is waited for is held."""

    def wait(self, event, seconds):
        with event._cond:
            signal.raise_signal(signal.SIGTERM)
        return event.wait(seconds)

    def sleep(self, seconds):
        super().sleep(seconds)
        if Path("log").exists() and "stuck" in Path("log").read_text():
            signal.raise_signal(signal.SIGTERM)

class Scarce(subprocess.Popen):
    """The machine has no second process to give when it is asked for the first time."""

    asked = 0

    def __init__(self, *args, **kwargs):
        Scarce.asked += 1
        if Scarce.asked == 2:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        super().__init__(*args, **kwargs)

if "SCARCE" in os.environ:
    subprocess.Popen = Scarce
clock = Signalled() if "SIGNALLED" in os.environ else SystemClock()
count, grace_s, watch = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
settings = WorkerSettings(grace_s=grace_s, room=Room(threads=2), queues=("default",))
supervisor = Supervisor("shop:app", settings, count, clock, watch=Path(watch[0]) if watch else None)
sys.exit(supervisor.run())
'''

SHOP = """
import asyncio, os, threading
from pathlib import Path
from holdfast import App, StoreError

app = App("memory://")

def note(line):
    with open("log", "a") as file:
        file.write(line + "\\n")

@app.task
async def endless():
    note("endless")
    await asyncio.Event().wait()

@app.task
def stuck():
    note("stuck")
    threading.Event().wait()

@app.task(timeout=0.1)
def overdue():
    note("overdue")
    threading.Event().wait()

@app.on_startup
async def start():
    is_first = not Path("log").exists()
    note(f"started {os.getpid()}")
    %s

@app.on_shutdown
def stop():
    note(f"stopped {os.getpid()}")
"""


class Supervised:
    """A supervisor in a process of its own, and what its workers wrote down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def write(self, on_startup: str = "pass") -> None:
        (self.folder / "shop.py").write_text(SHOP % on_startup)

    def start(self, count: int = 1, grace_s: float = 5.0, *, watch: bool = False) -> None:
        (self.folder / "driver.py").write_text(DRIVER)
        command = [sys.executable, "driver.py", str(count), str(grace_s), *([str(self.folder)] if watch else [])]
        with (self.folder / "errors").open("wb") as errors:
            self.process = subprocess.Popen(command, cwd=self.folder, stderr=errors)

    def lines(self, word: str) -> list[str]:
        log = self.folder / "log"
        return [line for line in log.read_text().splitlines() if line.startswith(word)] if log.exists() else []

    def started(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines("started")]

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text()

    def until(self, is_so: Callable[[], bool]) -> None:
        clock = SystemClock()
        deadline_s = clock.monotonic() + 15.0
        while not is_so():
            assert clock.monotonic() < deadline_s, (self.errors, self.lines(""))
            assert self.process is not None
            clock.sleep(0.01)

    def send(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        return self.process.wait(15)


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    supervised = Supervised(tmp_path)
    supervised.write()
    yield supervised
    if supervised.process is not None and supervised.process.poll() is None:
        supervised.process.kill()
        supervised.process.wait(5)
    for pid in supervised.started():
        assert not is_alive(pid), supervised.errors


def is_alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended and waits to be noticed is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_dead_are_replaced_and_a_signal_drains_all(supervised: Supervised, number: signal.Signals) -> None:
    supervised.start(2)
    supervised.until(lambda: len(supervised.started()) == 2)
    first, second = supervised.started()
    os.kill(first, signal.SIGKILL)
    supervised.until(lambda: len(supervised.started()) == 3)
    supervised.send(number)
    assert supervised.wait() == 0
    third = supervised.started()[2]
    assert sorted(supervised.lines("stopped")) == sorted([f"stopped {second}", f"stopped {third}"])
    assert "ended with 137 and is started again" in supervised.errors


def test_what_does_not_end_within_the_grace_time_is_given_back_and_the_exit_code_says_so(
    supervised: Supervised,
) -> None:
    supervised.write("await endless.aenqueue()")
    supervised.start(1, grace_s=0.1)
    supervised.until(lambda: bool(supervised.lines("endless")))
    supervised.send()
    assert supervised.wait() == 3
    assert len(supervised.lines("stopped")) == 1


def test_a_second_signal_ends_everything_at_once(supervised: Supervised) -> None:
    supervised.write("await stuck.aenqueue()")
    supervised.start(1, grace_s=60.0)
    supervised.until(lambda: bool(supervised.lines("stuck")))
    supervised.send()
    SystemClock().sleep(0.3)  # two signals at once are one to the kernel
    assert supervised.process is not None
    assert supervised.process.poll() is None
    supervised.send()
    assert supervised.wait() == 128 + signal.SIGTERM
    assert supervised.lines("stopped") == []


def test_signals_that_come_in_the_middle_of_a_wait_are_heard(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNALLED", "1")
    supervised.write("await stuck.aenqueue()")  # or it might be gone when the second signal comes
    supervised.start(1, grace_s=60.0)
    assert supervised.wait() == 128 + signal.SIGTERM


def test_a_process_with_a_thread_that_hangs_is_replaced_at_once(supervised: Supervised) -> None:
    supervised.write("if is_first: await overdue.aenqueue()")
    supervised.start(1, grace_s=5.0)
    supervised.until(lambda: len(supervised.started()) == 2)
    supervised.send()
    assert supervised.wait() == 0
    assert "is replaced" in supervised.errors


@pytest.mark.parametrize("text", ["import nothing_of_the_kind", "from holdfast import App\nother = App('memory://')"])
def test_an_app_that_cannot_be_loaded_ends_the_supervisor_with_words(supervised: Supervised, text: str) -> None:
    (supervised.folder / "shop.py").write_text(text)
    supervised.start(2)
    assert supervised.wait() == 2
    assert "holdfast worker: " in supervised.errors


def test_a_process_that_cannot_start_later_on_does_not_stop_the_others(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVED_S", "0.1")  # less than any start takes
    supervised.start(2)
    supervised.until(lambda: len(supervised.started()) == 2)
    first, second = supervised.started()
    (supervised.folder / "shop.py").write_text("import nothing_of_the_kind")
    os.kill(first, signal.SIGKILL)
    supervised.until(lambda: "ended with 2 and is started again" in supervised.errors)
    assert supervised.process is not None
    assert (supervised.process.poll(), is_alive(second)) == (None, True)
    supervised.write()  # the deploy is complete
    supervised.until(lambda: len(supervised.started()) == 3)
    supervised.send()
    assert supervised.wait() == 0
    assert len(supervised.lines("stopped")) == 2


def test_a_process_that_is_slow_to_find_out_that_it_cannot_start_has_never_worked(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVED_S", "0.01")  # less than any failing start takes
    (supervised.folder / "shop.py").write_text("import nothing_of_the_kind")
    supervised.start(1)
    assert supervised.wait() == 2
    assert "started again" not in supervised.errors


def test_a_process_that_the_machine_cannot_give_is_started_later_and_the_others_go_on(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCARCE", "1")
    supervised.start(2)
    supervised.until(lambda: len(supervised.started()) == 2)
    supervised.send()
    assert supervised.wait() == 0
    assert len(supervised.lines("stopped")) == 2
    assert f"no worker process can be started for now: [Errno {errno.EAGAIN}]" in supervised.errors


class Night(ManualClock):
    """Each look of the supervisor is half a minute after the last one; then SIGTERM comes."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._left = looks

    def sleep(self, seconds: float) -> None:
        self._left -= 1
        if self._left == 0:
            signal.raise_signal(signal.SIGTERM)
        super().sleep(30.0)


@pytest.fixture
def signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_a_machine_without_processes_is_asked_for_one_for_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def none_left(*_: object, **__: object) -> NoReturn:
        asked.append(1)
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(subprocess, "Popen", none_left)
    assert Supervisor("shop:app", WorkerSettings(), 1, Night(looks=1_100)).run() == 0
    assert len(asked) == 1_100


@pytest.mark.usefixtures("signals")
def test_a_program_that_is_gone_ends_the_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nothing/of/the/kind")
    with pytest.raises(FileNotFoundError):
        Supervisor("shop:app", WorkerSettings(), 1, Night(looks=2)).run()


def test_processes_that_worked_are_replaced_at_once_however_often_they_are_killed(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIVED_S", "0.5")
    supervised.start()
    clock = SystemClock()
    supervised.until(lambda: len(supervised.started()) == 1)
    for n in range(2, 7):
        clock.sleep(0.6)
        os.kill(supervised.started()[-1], signal.SIGKILL)
        killed_s = clock.monotonic()
        supervised.until(lambda n=n: len(supervised.started()) == n)  # type: ignore[misc]
    assert clock.monotonic() - killed_s < 3.0
    supervised.send()
    assert supervised.wait() == 0


def test_an_error_of_the_store_at_work_is_no_reason_to_give_up(supervised: Supervised) -> None:
    supervised.write("if is_first: raise StoreError('no connection')")
    supervised.start(1)
    supervised.until(lambda: len(supervised.started()) == 2)
    supervised.send()
    assert supervised.wait() == 0


def test_a_change_of_a_file_restarts_the_processes(supervised: Supervised) -> None:
    supervised.start(1, watch=True)
    supervised.until(lambda: len(supervised.started()) == 1)
    supervised.write("note('changed')")
    supervised.until(lambda: len(supervised.started()) == 2 and bool(supervised.lines("changed")))
    assert len(supervised.lines("stopped")) == 1
    (supervised.folder / "shop.py").write_text("this is no Python")
    supervised.until(lambda: "SyntaxError" in supervised.errors)
    supervised.write()
    supervised.until(lambda: len(supervised.started()) == 3)
    supervised.send()
    assert supervised.wait() == 0


def test_a_second_signal_during_a_reload_ends_everything_at_once(supervised: Supervised) -> None:
    supervised.write("await stuck.aenqueue()")
    supervised.start(1, grace_s=60.0, watch=True)
    supervised.until(lambda: bool(supervised.lines("stuck")))
    supervised.write("await stuck.aenqueue(); note('changed')")
    supervised.until(lambda: "files changed" in supervised.errors)
    supervised.send()
    SystemClock().sleep(0.3)  # two signals at once are one to the kernel
    assert supervised.process is not None
    assert supervised.process.poll() is None
    supervised.send()
    assert supervised.wait() > 128
    assert (supervised.lines("changed"), supervised.lines("stopped")) == ([], [])


_SLOW_START = """
import os, sys, time
if "holdfast.runtime.process" in sys.orig_argv:
    with open("log", "a") as file:
        file.write(f"started {os.getpid()}\\n")
    while not os.path.exists("go"):
        time.sleep(0.01)
"""


def test_a_supervisor_that_is_killed_while_a_process_starts_leaves_no_orphan(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    (supervised.folder / "sitecustomize.py").write_text(_SLOW_START)
    monkeypatch.setenv("PYTHONPATH", str(supervised.folder), prepend=os.pathsep)
    supervised.start(1)
    supervised.until(lambda: len(supervised.started()) == 1)
    supervised.send(signal.SIGKILL)
    supervised.wait()
    (supervised.folder / "go").touch()
    (pid,) = supervised.started()
    supervised.until(lambda: not is_alive(pid))
    assert "the supervisor is gone" in supervised.errors


def test_a_stop_while_a_process_starts_is_a_stop_in_good_order(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    (supervised.folder / "sitecustomize.py").write_text(_SLOW_START)
    monkeypatch.setenv("PYTHONPATH", str(supervised.folder), prepend=os.pathsep)
    supervised.start(1)
    supervised.until(lambda: len(supervised.started()) == 1)
    supervised.send()
    assert supervised.wait() == 0, "it had begun nothing"
