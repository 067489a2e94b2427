"""Checkpoints in files: who is kept out, for how long, and what a fork or a death changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import CheckpointError
from holdfast.ring.checkpoint_file import FileCheckpoints
from holdfast.ring.checkpoints import Checkpoint, file_checkpoints, reset_file
from holdfast.testing import ManualClock

HUNDRED = Checkpoint(offset=100, batch=3, processed=90)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prices.checkpoint"


def opened(path: Path) -> FileCheckpoints:
    return file_checkpoints(path, ring="prices", consumer="parquet", clock=ManualClock())


def test_a_second_consumer_in_this_process_is_refused_until_the_first_has_closed(path: Path) -> None:
    first = opened(path)
    first.load()
    for act in (opened(path).load, lambda: opened(path).save(HUNDRED), opened(path).reset, lambda: reset_file(path)):
        path.touch()
        with pytest.raises(CheckpointError, match="is in use by this process, and every consumer needs a file of its"):
            act()
    path.unlink()
    first.close()
    first.close()
    assert opened(path).load() is None


def test_two_names_of_one_file_have_one_lock(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    first = opened(path)
    first.load()
    with pytest.raises(CheckpointError, match="is in use"):
        opened(link).load()


HOLD = """
import sys
from holdfast.clock import SystemClock
from holdfast.ring.checkpoints import file_checkpoints
one = file_checkpoints(sys.argv[1], ring="prices", consumer="parquet", clock=SystemClock())
one.load()
print("held", flush=True)
sys.stdin.read()
"""


def test_another_process_is_named_and_its_death_gives_the_lock_back(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(CheckpointError, match=f"is in use by process {other.pid}$"):
            opened(path).load()
        other.kill()
    mine = opened(path)
    assert mine.load() is None
    assert Path(f"{path}.lock").read_text() == str(os.getpid())


def test_a_forked_child_neither_has_the_lock_nor_gives_it_back(path: Path) -> None:
    parent = opened(path)
    parent.save(HUNDRED)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            parent.save(Checkpoint(offset=7, batch=7, processed=7))
        except CheckpointError as error:
            code = 0 if f"in use by process {os.getppid()}" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with pytest.raises(CheckpointError, match="is in use"):
        opened(path).load()
    found = parent.load()
    assert found is not None
    assert found.offset == 100


def test_the_lock_outlives_a_forked_child_only_as_long_as_its_parent_has_it(path: Path) -> None:
    parent = opened(path)
    parent.load()
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(opener)
        os.read(gate, 1)  # until the parent is done
        os._exit(0)
    os.close(gate)
    try:
        parent.close()
        assert opened(path).load() is None
    finally:
        os.close(opener)
        os.waitpid(pid, 0)


def test_a_lock_file_that_its_holder_removes_meanwhile_is_not_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, its holder may close: two could then hold one lock each."""
    first, second, third = opened(path), opened(path), opened(path)
    first.load()
    real = os.open

    def closing_first(file: str, flags: int, mode: int = 0o777) -> int:
        found = real(file, flags, mode)
        if file.endswith(".lock"):
            monkeypatch.setattr(os, "open", real)
            first.close()
        return found

    monkeypatch.setattr(os, "open", closing_first)
    second.load()
    with pytest.raises(CheckpointError, match="is in use"):
        third.load()


def test_one_that_was_dropped_without_a_close_keeps_nobody_out(path: Path) -> None:
    opened(path).load()
    assert opened(path).load() is None
