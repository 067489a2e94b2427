"""Jobs in processes of their own: real ones, which crash, hang, remember and are used again."""

from __future__ import annotations

import asyncio
import errno
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app import App
from holdfast.clock import SystemClock, new_id, new_token
from holdfast.errors import TimeLimitExceeded, WorkerDied
from holdfast.ports import Claim, Delivery, Exchange, Note, WorkerRecord
from holdfast.runtime.isolates import Isolates, NoProcess
from holdfast.runtime.worker import WorkerSettings
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import Change, FailureType, JobRecord, JobState, Notes

SHOP = """
import asyncio, contextvars, os, sys, threading
from pathlib import Path
from holdfast import App, Discard, Invalid, JobContext, RetryPolicy, Snooze, Transient
from holdfast.clock import SystemClock

app = App("memory://")
var = contextvars.ContextVar("var", default="clean")
RETRY = RetryPolicy(max_retries=1, initial_delay=3.0, jitter=False)

@app.task(name="pid", isolate="process")
def pid() -> int:
    return os.getpid()

@app.task(name="limited", isolate="process", breaker=None, rate="1/1s")
def limited() -> float:
    return SystemClock().monotonic()

@app.task(name="leak", isolate="process")
def leak(text: str) -> str:
    seen = var.get()
    var.set(text)
    return seen

@app.task(name="aleak", isolate="process")
async def aleak(text: str) -> str:
    seen = var.get()
    var.set(text)
    return seen

@app.task(name="end", isolate="process", retry=RETRY)
def end(how: str) -> object:
    if how == "abort":
        os.abort()
    if how == "_exit":
        os._exit(3)
    if how == "exit":
        sys.exit(3)
    if how == "invalid":
        raise Invalid("no such order")
    if how == "transient":
        raise Transient("busy")
    if how == "snooze":
        return Snooze(7.0)
    if how == "discard":
        return Discard("sold out")
    if how == "half a discard":
        return Discard("sold \\ud800 out")
    if how == "half an error":
        raise Transient("name \\ud800 unknown")
    if how == "odd":
        return object()
    return how

@app.task(name="hang", isolate="process", timeout=0.3, retry=RETRY)
def hang() -> None:
    threading.Event().wait()

@app.task(name="notes", isolate="process")
def notes(job: JobContext) -> object:
    job.checkpoint({"page": 1})
    job.progress(0.5)
    return [job.step("pay", lambda: "paid"), job.last_checkpoint, job.attempt]

@app.task(name="anotes", isolate="process")
async def anotes(job: JobContext) -> object:
    async def pay() -> str:
        return "paid"
    await job.acheckpoint({"page": 1})
    await job.aprogress(0.5)
    return [await job.astep("pay", pay), job.last_checkpoint, job.attempt]

@app.task(name="transacts", isolate="process", retry=RETRY)
def transacts(job: JobContext) -> None:
    with job.transaction():
        pass

@app.task(name="innocent", retry=RetryPolicy(max_retries=0))
async def innocent() -> int:
    return os.getpid()

@app.task(name="killer", retry=RetryPolicy(max_retries=1, initial_delay=1.0))
def killer(worker: int) -> None:
    if os.getpid() != worker:
        os.abort()
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    return imported(SHOP, tmp_path, monkeypatch)


def imported(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """The app of a module with this text, which other processes can import too."""
    name = f"shop_{new_id()[-8:]}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, module)
    app = module.app
    assert isinstance(app, App)
    assert app.target == f"{name}:app"
    return app


class Lines:
    """What a worker has beside the processes: its notes."""

    def __init__(self, isolates: Isolates, notes: list[Note]) -> None:
        self.isolates = isolates
        self.notes = notes
        self.starts = 0

    def _on_start(self) -> None:
        self.starts += 1

    async def run(
        self, task: str, payload: bytes = b"{}", timeout_s: float | None = 10.0, notes: Notes | None = None
    ) -> Any:
        delivery = Delivery(
            id=new_id(), task=task, queue="q", payload=payload, token=new_token(), attempt=1, notes=notes
        )
        return await self.isolates.run(delivery, timeout_s, self._on_start)


@pytest.fixture
async def lines(shop: App) -> AsyncIterator[Lines]:
    notes: list[Note] = []

    async def note(one: Note) -> bool:
        notes.append(one)
        return True

    isolates = Isolates(1, shop.target, note, SystemClock(), 7.5)
    yield Lines(isolates, notes)
    await isolates.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.005)


async def test_a_process_that_survives_its_job_is_used_again_and_leaks_nothing(lines: Lines) -> None:
    first = await lines.run("pid")
    for task in ("leak", "leak", "aleak", "aleak"):
        ended = await lines.run(task, b'{"text":"of another job"}')
        assert ended.result == b'"clean"'
    assert (await lines.run("pid")).result == first.result


async def test_every_outcome_comes_back_as_what_it_is(lines: Lines) -> None:
    async def end(how: str) -> Any:
        return await lines.run("end", b'{"how":"%s"}' % how.encode())

    assert (await end("fine")).result == b'"fine"'
    assert (await end("snooze")).snooze_s == 7.0
    assert (await end("discard")).discard == "sold out"
    odd = await end("odd")
    assert odd.result == b"null"
    assert "not kept" in odd.reason
    invalid = await end("invalid")
    assert (invalid.failure_type, invalid.delay_s, invalid.reason) == (FailureType.VALIDATION, None, "not retriable")
    assert invalid.texts["message"] == "no such order"
    assert "in end" in invalid.texts["traceback"]
    transient = await end("transient")
    assert (transient.failure_type, transient.delay_s) == (FailureType.TRANSIENT, 3.0)
    left = await end("exit")
    assert (left.failure_type, left.texts["error_name"]) == (FailureType.SYSTEM, "SystemExit")
    wrong = await lines.run("end", b'{"how":5}')
    assert wrong.failure_type is FailureType.VALIDATION
    assert "argument 'how'" in wrong.texts["message"]


@pytest.mark.parametrize(("how", "words"), [("abort", "ended by signal 6"), ("_exit", "exited with 3")])
async def test_a_crash_is_told_and_the_next_job_gets_a_new_process(lines: Lines, how: str, words: str) -> None:
    first = await lines.run("pid")
    with pytest.raises(WorkerDied, match=words):
        await lines.run("end", b'{"how":"%s"}' % how.encode())
    assert (await lines.run("pid")).result != first.result


async def test_a_job_is_killed_at_its_time_limit(lines: Lines) -> None:
    first = await lines.run("pid")
    with pytest.raises(TimeLimitExceeded):
        await lines.run("hang", timeout_s=0.05)
    await until(lambda: not is_there(first.result))


async def test_a_job_that_is_cancelled_takes_its_process_along(lines: Lines) -> None:
    first = await lines.run("pid")
    starts = lines.starts
    task = asyncio.create_task(lines.run("hang", timeout_s=None))
    await until(lambda: lines.starts == starts + 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_there(first.result)


async def test_a_store_without_transactions_is_no_passing_failure(lines: Lines) -> None:
    ended = await lines.run("transacts")
    assert (ended.failure_type, ended.delay_s) == (FailureType.PERMANENT, None)
    assert "has no transactions; sqlite:///" in ended.texts["message"]


@pytest.mark.parametrize("task", ["notes", "anotes"])
async def test_notes_cross_the_line(lines: Lines, task: str) -> None:
    ended = await lines.run(task)
    assert ended.result == b'["paid",{"page":1},1]'
    assert [(one.checkpoint, one.progress, one.step) for one in lines.notes] == [
        (b'{"page":1}', None, None),
        (None, 0.5, None),
        (None, None, ("pay", b'"paid"')),
    ]
    again = await lines.run(task, notes=Notes(steps={"pay": b'"paid before"'}))
    assert again.result == b'["paid before",{"page":1},1]'


async def test_an_app_that_cannot_be_loaded_says_so_and_leaves_no_process(tmp_path: Path) -> None:
    async def note(one: Note) -> bool:
        raise AssertionError(one)

    isolates = Isolates(1, f"{tmp_path}/nowhere.py:app", note, SystemClock(), 7.5)
    delivery = Delivery(id="1", task="t", queue="q", payload=b"{}", token=b"t", attempt=1)
    with pytest.raises(WorkerDied, match=r"could not load .*ModuleNotFoundError"):
        await isolates.run(delivery, 5.0, lambda: None)
    await isolates.close()


@pytest.mark.parametrize(
    ("number", "expected"),
    [(errno.EMFILE, NoProcess), (errno.EAGAIN, NoProcess), (errno.ENOENT, FileNotFoundError)],
)
async def test_a_process_is_waited_for_only_where_the_machine_may_have_one_later(
    monkeypatch: pytest.MonkeyPatch, number: int, expected: type[Exception]
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    async def note(one: Note) -> bool:
        raise AssertionError(one)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    isolates = Isolates(1, "shop:app", note, ManualClock(), 7.5)
    delivery = Delivery(id="1", task="t", queue="q", payload=b"{}", token=b"t", attempt=1)
    with pytest.raises(expected):
        await isolates.run(delivery, 5.0, lambda: None)
    await isolates.close()


async def test_what_is_cancelled_while_its_process_starts_leaves_none_behind(lines: Lines) -> None:
    before = children()
    task = asyncio.create_task(lines.run("pid"))
    await until(lambda: len(children()) > len(before))
    assert lines.starts == 1  # it is begun, as far as the worker is concerned: nobody gives it back for waiting
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: children() <= before)


async def test_texts_that_no_store_can_hold_cross_the_line_and_harm_no_process(lines: Lines) -> None:
    first = await lines.run("pid")
    assert (await lines.run("end", b'{"how":"half a discard"}')).discard == "sold ? out"
    failed = await lines.run("end", b'{"how":"half an error"}')
    assert (failed.failure_type, failed.delay_s) == (FailureType.TRANSIENT, 3.0)
    assert failed.texts["message"] == "name ? unknown"
    assert "name ? unknown" in failed.texts["traceback"]
    assert (await lines.run("pid")).result == first.result


async def test_a_process_that_died_while_idle_is_not_blamed_on_the_next_job(lines: Lines) -> None:
    first = await lines.run("pid")
    os.kill(int(first.result), signal.SIGKILL)
    await until(lambda: not is_there(first.result))
    second = await lines.run("pid")
    assert second.result not in (first.result, b"null")


@pytest.mark.parametrize(
    "hook", ["def start(): raise ZeroDivisionError('no pool')", "def start(): sys.exit('no pool')"]
)
async def test_a_startup_hook_that_fails_in_an_isolated_process_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    app = imported(f"{SHOP}\nif 'isolated' in sys.argv[0]:\n    @app.on_startup\n    {hook}\n", tmp_path, monkeypatch)
    job = await app.tasks["end"].aenqueue("fine")
    await app.arun_until_idle()
    record = await record_of(app, job.id)
    assert record.state is JobState.DEAD_LETTER
    assert ["a startup hook raised" in one.message for one in record.attempts] == [True, True]
    assert all("no pool" in one.message for one in record.attempts)


def is_there(pid: bytes) -> bool:
    return Path("/proc", pid.decode()).exists()


def children() -> set[str]:
    """The processes that this one has started."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


# ---------------------------------------------------------------- through a worker


async def record_of(app: App, job_id: str) -> JobRecord:
    (record,) = await app.store.get([job_id])
    assert record is not None
    return record


async def test_a_process_that_starts_slowly_lets_no_limit_be_passed(shop: App) -> None:
    jobs = [await shop.tasks["limited"].aenqueue() for _ in range(2)]
    worker = shop.worker()
    running = asyncio.create_task(worker.run())
    records = list[JobRecord]()
    async with asyncio.timeout(20):
        while not all(one.state is JobState.COMPLETED for one in records) or not records:
            await SystemClock().asleep(0.02)
            records = [await record_of(shop, job.id) for job in jobs]
    worker.stop()
    await running
    first, second = sorted(float(one.result or b"nan") for one in records)
    assert second - first >= 0.9


def test_a_process_whose_worker_is_gone_ends_without_a_word(shop: App) -> None:
    ours, theirs = socket.socketpair()
    command = [
        sys.executable,
        "-m",
        "holdfast.runtime.isolated",
        str(theirs.fileno()),
        shop.target,
        json.dumps(sys.path),
    ]
    with subprocess.Popen(command, pass_fds=(theirs.fileno(),), stderr=subprocess.PIPE) as process:
        theirs.close()
        ours.recv(1, socket.MSG_PEEK)  # it is ready, and that is never read: its line is reset
        ours.close()
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (0, b"")


async def test_a_crash_is_an_attempt_that_failed(shop: App) -> None:
    job = await shop.tasks["end"].aenqueue("abort")
    await shop.arun_until_idle()
    record = await record_of(shop, job.id)
    assert (record.state, record.reason) == (JobState.DEAD_LETTER, "retries used up")
    assert [(one.failure_type, one.error_name.rpartition(".")[2]) for one in record.attempts] == [
        (FailureType.SYSTEM, "WorkerDied")
    ] * 2


async def test_a_job_beyond_its_limit_is_killed_and_retried(shop: App) -> None:
    job = await shop.tasks["hang"].aenqueue()
    await shop.arun_until_idle()
    record = await record_of(shop, job.id)
    assert [one.error_name.rpartition(".")[2] for one in record.attempts] == ["TimeLimitExceeded"] * 2
    assert record.state is JobState.DEAD_LETTER


async def died_with(shop: App, *jobs: Any) -> None:
    """A worker claims these jobs, and dies with them in its hands."""
    await shop.store.heartbeat(WorkerRecord(id="dead", lease_s=30.0))
    claim = Claim(worker="dead", token=new_token(), limit=10)
    assert len((await shop.store.exchange(Exchange(claim=claim))).deliveries) == len(jobs)
    assert isinstance(shop.store, MemoryStore)
    shop.store.clock_offset_s += 31.0


async def test_after_a_death_the_suspects_run_alone_and_only_the_killer_is_charged(shop: App) -> None:
    innocent = await shop.tasks["innocent"].aenqueue()
    killer = await shop.tasks["killer"].aenqueue(os.getpid())
    await died_with(shop, innocent, killer)
    await shop.arun_until_idle()
    record = await record_of(shop, innocent.id)
    assert record.state is JobState.COMPLETED
    assert [(one.number, one.outcome) for one in record.attempts] == [(1, Change.RELEASE), (1, Change.COMPLETE)]
    assert int(record.result or b"0") not in (0, os.getpid())
    killed = await record_of(shop, killer.id)
    assert [(one.number, one.outcome) for one in killed.attempts[:2]] == [(1, Change.RELEASE), (1, Change.RETRY)]


async def test_a_suspect_that_died_alone_is_retried_alone(shop: App) -> None:
    killer = await shop.tasks["killer"].aenqueue(os.getpid())
    await died_with(shop, killer)
    await shop.arun_until_idle()
    record = await record_of(shop, killer.id)
    assert {one.error_name.rpartition(".")[2] for one in record.attempts} == {"WorkerDied"}
    assert [one.outcome for one in record.attempts] == [Change.RELEASE, Change.RETRY, Change.BURY]
    assert record.state is JobState.DEAD_LETTER


async def test_half_characters_are_judged_as_what_they_are_and_harm_no_neighbour(shop: App) -> None:
    end, innocent = shop.tasks["end"], shop.tasks["innocent"]
    jobs = [await end.aenqueue("half a discard"), await end.aenqueue("half an error"), await innocent.aenqueue()]
    await shop.arun_until_idle()
    discarded, failed, fine = [await record_of(shop, job.id) for job in jobs]
    assert (discarded.state, discarded.reason) == (JobState.CANCELLED, "sold ? out")
    assert (failed.state, failed.reason) == (JobState.DEAD_LETTER, "retries used up")
    assert [(one.failure_type, one.message) for one in failed.attempts] == [
        (FailureType.TRANSIENT, "name ? unknown")
    ] * 2
    assert fine.state is JobState.COMPLETED


# ---------------------------------------------------------------- a worker process

BOX = """
import os
from pathlib import Path
from holdfast import App

class Box:
    app = App("memory://")

@Box.app.task(isolate="process")
def who() -> None:
    Path("who.part").write_text(f"{os.getpid()} {os.getppid()}")
    os.rename("who.part", "who")

@Box.app.on_startup
async def start() -> None:
    if not Path("begun").exists():
        Path("begun").touch()
        await who.aenqueue()
"""


def test_an_app_inside_something_else_isolates_too(tmp_path: Path) -> None:
    (tmp_path / "boxed.py").write_text(BOX)
    settings = msgspec.json.encode(WorkerSettings()).decode()
    command = [sys.executable, "-m", "holdfast.runtime.process", "boxed:Box.app", settings]
    with (tmp_path / "errors").open("wb") as errors:
        worker = subprocess.Popen(command, cwd=tmp_path, stderr=errors)
    try:
        deadline_s = SystemClock().monotonic() + 30.0
        while not (tmp_path / "who").exists():
            assert worker.poll() is None, (tmp_path / "errors").read_text()
            assert SystemClock().monotonic() < deadline_s, (tmp_path / "errors").read_text()
            SystemClock().sleep(0.01)
    finally:
        worker.terminate()
        code = worker.wait(15)
    pid, parent = (int(one) for one in (tmp_path / "who").read_text().split())
    assert (pid != worker.pid, parent, code) == (True, worker.pid, 0)
