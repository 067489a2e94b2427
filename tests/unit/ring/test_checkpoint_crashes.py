"""A process, a disk or the power that fails at any step of a save leaves the old checkpoint or the new one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import CheckpointError
from holdfast.ring import checkpoint_file, file_lock, whole_file
from holdfast.ring.checkpoint_file import FileCheckpoints
from holdfast.ring.checkpoints import Checkpoint, file_checkpoints, read_file
from holdfast.testing import ManualClock

OLD, NEW, NEXT = (Checkpoint(offset=n, batch=n, processed=n, saved_at=1e9) for n in (10, 20, 30))
STEPS: Final = "open write fsync close replace unlink fchmod fchown stat fstat mkdir ftruncate".split()
MODULES: Final = (whole_file, checkpoint_file, file_lock)
Fault = Callable[[int, str, Callable[[], Any], tuple[Any, ...]], Any]


class Killed(BaseException):
    """The process is gone: what it would have done next does not happen."""


@contextmanager
def faults(fault: Fault) -> Iterator[list[str]]:
    """Every step on the file system passes through `fault` with its number; answers the names of the steps."""
    taken: list[str] = []

    def passing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def step(*args: Any, **kwargs: Any) -> Any:
            taken.append(name)
            return fault(len(taken) - 1, name, lambda: real(*args, **kwargs), args)

        return step

    faulty = SimpleNamespace(**{**vars(os), **{name: passing(name) for name in STEPS}})
    with pytest.MonkeyPatch.context() as patch:
        for module in MODULES:
            patch.setattr(module, "os", faulty)
        yield taken


def opened(path: Path) -> FileCheckpoints:
    return file_checkpoints(path, ring="prices", consumer="parquet", clock=ManualClock())


def saved(path: Path, checkpoint: Checkpoint) -> None:
    checkpoints = opened(path)
    checkpoints.save(checkpoint)
    checkpoints.close()


def loaded(path: Path) -> Checkpoint | None:
    checkpoints = opened(path)
    try:
        return checkpoints.load()
    finally:
        checkpoints.close()


def killed_at(last: int, written: float = 0.0) -> Fault:
    """Killed before this step; in a write, after a part of it."""

    def fault(number: int, name: str, act: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        if number < last:
            return act()
        if number == last and name == "write":
            os.write(args[0], args[1][: int(len(args[1]) * written)])
        raise Killed

    return fault


def failing_at(step: int, code: int = errno.EIO) -> Fault:
    """This step alone fails, with an error of the disk."""

    def fault(number: int, name: str, act: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        if number != step:
            return act()
        if name == "close":
            act()  # a file whose close fails is closed nevertheless
        raise OSError(code, os.strerror(code))

    return fault


def steps_of_a_save(path: Path) -> list[str]:
    checkpoints = opened(path)
    checkpoints.save(OLD)
    with faults(lambda number, name, act, args: act()) as steps:
        checkpoints.save(NEW)
    checkpoints.close()
    return steps


def test_the_data_is_on_the_disk_before_the_name_and_the_name_before_the_return(tmp_path: Path) -> None:
    steps = [step for step in steps_of_a_save(tmp_path / "one") if step in {"write", "fsync", "replace"}]
    assert steps == ["write", "fsync", "replace", "fsync"]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(first=st.booleans(), written=st.floats(0, 1), data=st.data())
def test_killed_at_any_step_of_a_save_the_old_one_or_the_new_one_is_there(
    tmp_path_factory: pytest.TempPathFactory, first: bool, written: float, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    count = len(steps_of_a_save(folder / "count"))
    path = folder / "deep" / "checkpoint"
    before = None if first else OLD
    if before is not None:
        saved(path, before)
    dying = opened(path)
    dying.load()
    last = data.draw(st.integers(0, count))
    try:
        with faults(killed_at(last, written)) as steps:
            dying.save(NEW)
        was_done = True
    except Killed:
        was_done = False
    dying.close()  # the kernel does it: the lock of the dead is free
    assert loaded(path) in ({NEW} if was_done else {before, NEW})
    assert was_done == (last >= len(steps))
    saved(path, NEXT)
    assert loaded(path) == NEXT
    assert list(path.parent.iterdir()) == [path]


def test_killed_before_the_rename_it_is_the_old_one_and_after_it_the_new_one(tmp_path: Path) -> None:
    steps = steps_of_a_save(tmp_path / "count")
    found = []
    for last in range(len(steps)):
        path = tmp_path / str(last)
        saved(path, OLD)
        dying = opened(path)
        dying.load()
        with faults(killed_at(last)), pytest.raises(Killed):
            dying.save(NEW)
        dying.close()
        found.append(loaded(path))
    renamed = steps.index("replace") + 1
    assert found == [OLD] * renamed + [NEW] * (len(steps) - renamed)


def test_a_step_that_fails_is_told_and_the_next_save_works(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoints = opened(path)
    for step in range(len(steps_of_a_save(tmp_path / "count"))):
        checkpoints.save(OLD)
        with (
            faults(failing_at(step, errno.ENOSPC)),
            pytest.raises(CheckpointError, match=r"cannot be written: No space left on device$") as caught,
        ):
            checkpoints.save(NEW)
        assert not caught.value.is_fenced
        found = read_file(path)
        assert found is not None
        assert found.checkpoint in {OLD, NEW}
        checkpoints.save(NEXT)
        assert checkpoints.load() == NEXT


def test_a_write_that_takes_a_byte_at_a_time_is_whole_in_the_end(tmp_path: Path) -> None:
    def fault(number: int, name: str, act: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        return os.write(args[0], args[1][:1]) if name == "write" else act()

    checkpoints = opened(tmp_path / "checkpoint")
    checkpoints.load()
    with faults(fault) as steps:
        checkpoints.save(NEW)
    assert steps.count("write") > 100
    assert checkpoints.load() == NEW


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_cannot_flush_folders_is_not_asked_to(tmp_path: Path, code: int) -> None:
    steps = steps_of_a_save(tmp_path / "count")
    last = len(steps) - 1 - steps[::-1].index("fsync")
    checkpoints = opened(tmp_path / "checkpoint")
    checkpoints.save(OLD)
    with faults(failing_at(last, code)):
        checkpoints.save(NEW)
    assert checkpoints.load() == NEW


@pytest.mark.parametrize("refusal", [None, PermissionError(), OSError(errno.EINVAL, "no such user here")])
def test_a_file_of_somebody_else_stays_theirs_where_that_is_allowed(tmp_path: Path, refusal: OSError | None) -> None:
    owners: list[tuple[int, int]] = []

    def fault(number: int, name: str, act: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        if name == "stat":
            return SimpleNamespace(st_uid=4321, st_gid=1234, st_mode=0o100640)
        if name != "fchown":
            return act()
        owners.append(args[1:])
        if refusal is not None:
            raise refusal
        return None

    path = tmp_path / "checkpoint"
    checkpoints = opened(path)
    checkpoints.save(OLD)
    with faults(fault):
        checkpoints.save(NEW)
    assert owners == [(4321, 1234)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert checkpoints.load() == NEW


def test_a_disk_that_cannot_be_read_is_no_new_beginning(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoints = opened(path)
    checkpoints.save(OLD)

    def fault(number: int, name: str, act: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        if name == "open" and args[0] == str(path):
            raise OSError(errno.EIO, "Input/output error")
        return act()

    with faults(fault), pytest.raises(CheckpointError, match="cannot be read: Input/output error; to begin anew"):
        checkpoints.load()


def test_a_disk_too_full_for_the_pid_still_gives_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoints = opened(path)

    def fault(number: int, name: str, act: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        if name == "write":
            raise OSError(errno.ENOSPC, "No space left on device")
        return act()

    with faults(fault):
        assert checkpoints.load() is None
    with pytest.raises(CheckpointError, match=r"is in use by another process$"):
        opened(path).load()
