from __future__ import annotations

import os
import subprocess
import sys

import pytest

from holdfast.runtime import this_process
from holdfast.runtime.this_process import is_gone, process_mark

MARK = "from holdfast.runtime.this_process import process_mark; print(process_mark(), flush=True); input()"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def test_a_process_that_lives_is_not_gone() -> None:
    assert process_mark()
    assert process_mark() == process_mark()
    assert not is_gone(process_mark())


def test_a_process_that_was_killed_is_gone_also_before_its_parent_has_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", MARK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    mark = child.stdout.readline().strip()
    assert not is_gone(mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
    assert is_gone(mark)
    child.communicate()
    assert is_gone(mark)


def test_another_process_that_was_given_the_same_number_is_another() -> None:
    place, _, start = process_mark().rpartition("/")
    assert is_gone(f"{place}/{int(start) + 1}")


@pytest.mark.parametrize("mark", ["", "/", "a/b/c/d", "no-boot/1/99999999/5", "///"])
def test_of_a_process_elsewhere_nobody_can_tell(mark: str) -> None:
    assert not is_gone(mark)


def test_where_the_machine_does_not_say_there_is_no_mark(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    from pathlib import Path

    mark = process_mark()
    monkeypatch.setattr(this_process, "_PROC", Path(str(tmp_path)))
    assert process_mark() == ""
    assert not is_gone(mark)
