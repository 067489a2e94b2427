"""A worker process whose store has gone is gone with its lease, and one that has drained ends, whatever its jobs do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.runtime.process import CANNOT_START
from holdfast.runtime.worker import Exit, WorkerSettings

SHOP = """
import asyncio, contextlib, ctypes, os, pathlib, signal, threading, time
from holdfast import App
from holdfast.testing.faulty import FaultyStore

app = App("memory://")
app._store = store = FaultyStore(app.store)

def cut_off():
    store.fail(fault="hang")

@app.task
async def stubborn():
    cut_off()
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

@app.task
async def blocking():
    cut_off()
    threading.Event().wait()

@app.task
def on_a_thread():
    cut_off()
    threading.Event().wait()

@app.task
async def on_a_thread_of_its_own():
    cut_off()
    await asyncio.to_thread(threading.Event().wait)

@app.task
def unread():
    log = os.open("/proc/self/fd/2", os.O_WRONLY | os.O_NONBLOCK)
    with open(log, "wb", buffering=0) as log:
        for size in (4096, 1):
            while log.write(b"x" * size):
                pass
    cut_off()
    pathlib.Path("cut").write_text(str(time.monotonic()))
    threading.Event().wait()

@app.task
def crash():
    ctypes.string_at(0)

left = []

def leave(stray):
    left.append(asyncio.ensure_future(stray))
    os.kill(os.getpid(), signal.SIGTERM)

@app.task
async def leaves_a_thread():
    leave(asyncio.to_thread(threading.Event().wait))

@app.task
async def leaves_a_task():
    async def stray():
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
    leave(stray())

@app.task
async def leaves_a_task_that_blocks():
    async def stray():
        try:
            await asyncio.Event().wait()
        finally:
            threading.Event().wait()
    leave(stray())

@app.task
async def leaves_a_task_that_cleans_up():
    async def stray():
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(print, "cleaned up")
    leave(stray())

@app.task
async def prints():
    print("paid")
    os.kill(os.getpid(), signal.SIGTERM)

@app.on_startup
async def begin():
    await %s.aenqueue()

@app.on_shutdown
async def end():
    %s
"""
LEFT = ["leaves_a_thread", "leaves_a_task", "leaves_a_task_that_blocks"]
ENDLESS = ["stubborn", "blocking", "on_a_thread", "on_a_thread_of_its_own"]


def ended(folder: Path, task: str, on_shutdown: str = "pass") -> tuple[int, str]:
    """How a process ended by itself, and what it said."""
    (folder / "shop.py").write_text(SHOP % (task, on_shutdown))
    settings = msgspec.json.encode(WorkerSettings(lease_s=1.0, grace_s=600.0)).decode()
    process = subprocess.run(
        [sys.executable, "-m", "holdfast.runtime.process", "shop:app", settings],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return process.returncode, process.stdout + process.stderr


@pytest.mark.parametrize("task", ENDLESS)
def test_a_job_that_cannot_be_stopped_ends_with_its_process_when_the_lease_is_over(tmp_path: Path, task: str) -> None:
    code, said = ended(tmp_path, task)
    assert "its lease could not be renewed" in said or task == "blocking"
    assert code == Exit.REPLACE


def test_a_log_that_nobody_reads_keeps_no_job_beyond_its_lease(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP % ("unread", "pass"))
    settings = msgspec.json.encode(WorkerSettings(lease_s=1.0, grace_s=600.0)).decode()
    command = [sys.executable, "-m", "holdfast.runtime.process", "shop:app", settings]
    reader, writer = os.pipe()
    try:
        ended = subprocess.run(command, cwd=tmp_path, stderr=writer, timeout=20, check=False)
    finally:
        os.close(reader)
        os.close(writer)
    took_s = SystemClock().monotonic() - float((tmp_path / "cut").read_text())
    assert ended.returncode == Exit.REPLACE
    assert took_s < 1.0 + 2.0, "a lease, and what a busy machine may add"


def test_a_process_that_crashes_in_native_code_says_where(tmp_path: Path) -> None:
    code, said = ended(tmp_path, "crash")
    assert code == -signal.SIGSEGV
    assert "Segmentation fault" in said
    assert "in crash" in said


def test_a_hook_that_does_not_end_keeps_no_job_beyond_its_lease(tmp_path: Path) -> None:
    code, _ = ended(tmp_path, "on_a_thread", on_shutdown="await asyncio.Event().wait()")
    assert code == Exit.REPLACE


@pytest.mark.parametrize("task", LEFT)
def test_a_process_that_has_drained_ends_whatever_a_job_has_left_behind(tmp_path: Path, task: str) -> None:
    code, said = ended(tmp_path, task)
    assert code == Exit.DRAINED
    assert "does not end" in said


def test_what_a_job_has_left_behind_may_clean_up_when_the_process_has_drained(tmp_path: Path) -> None:
    code, said = ended(tmp_path, "leaves_a_task_that_cleans_up")
    assert code == Exit.DRAINED
    assert "cleaned up" in said
    assert "does not end" not in said


def test_a_process_whose_startup_hook_fails_ends_whatever_the_hook_has_left_behind(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("""
import asyncio, threading
from holdfast import App

app = App("memory://")

@app.on_startup
async def begin():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    raise RuntimeError("no luck")
""")
    command = [sys.executable, "-m", "holdfast.runtime.process", "shop:app", "{}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert "RuntimeError: no luck" in ended.stderr


def test_a_process_whose_output_nobody_reads_any_more_ends_as_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is printed is written at the end
    (tmp_path / "shop.py").write_text(SHOP % ("prints", "pass"))
    command = [sys.executable, "-m", "holdfast.runtime.process", "shop:app", "{}"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(command, cwd=tmp_path, stdout=writer, timeout=20, check=False)
    finally:
        os.close(writer)
    assert ended.returncode == Exit.DRAINED


def test_a_process_that_is_stopped_before_it_has_begun_has_drained(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import threading; print('here', flush=True); threading.Event().wait()")
    command = [sys.executable, "-m", "holdfast.runtime.process", "shop:app", "{}"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.terminate()
        assert process.wait(20) == Exit.DRAINED


def test_a_process_whose_supervisor_died_while_it_was_starting_ends(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("import threading; threading.Event().wait()")
    command = [sys.executable, "-m", "holdfast.runtime.process", "shop:app", "{}", f"--child-of={os.getpid() + 1}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stderr) == (Exit.DRAINED, "holdfast worker: the supervisor is gone\n")


def test_a_process_without_the_package_of_a_stream_cannot_start_and_says_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("""
import sys
sys.modules["confluent_kafka"] = None
from holdfast import App

app = App("memory://")

@app.stream("kafka://host/orders", group="billing")
def bill(order: dict[str, int]) -> None: ...
""")
    command = [sys.executable, "-m", "holdfast.runtime.process", "shop:app", "{}"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False)
    line = "needs a package that is missing (confluent_kafka): pip install 'holdfast[kafka]', or in a checkout"
    assert ended.returncode == CANNOT_START
    assert ended.stderr.startswith(f"holdfast worker: ConfigError: url='kafka://host/orders': {line}")
    assert ended.stderr.count("\n") == 1
