"""A job that forks: the child is nobody's worker, however it comes back from the task."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import msgspec
import pytest

PROGRAM: Final = """
import json, os, signal, sys
from holdfast import App

app = App("memory://")

def fork(way):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.alarm(5)
    if way == "exit":
        sys.exit(7)
    if way == "raise":
        raise RuntimeError("in the child")

@app.task(breaker=None)
def on_thread(way: str) -> int | None:
    return fork(way)

@app.task(breaker=None)
async def on_loop(way: str) -> int | None:
    return fork(way)

print(json.dumps({f"{task.name} {way}": task.run(way).value
                  for task in (on_thread, on_loop) for way in ("return", "exit", "raise")}))
"""


@pytest.fixture(scope="module")
def ended() -> dict[str, int]:
    """The exit code of the child, by where and how it ended."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, timeout=60)
    (line,) = done.stdout.splitlines()  # and not one of each process
    return msgspec.json.decode(line, type=dict[str, int])


@pytest.mark.parametrize("task", ["on_thread", "on_loop"])
@pytest.mark.parametrize(("way", "code"), [("return", 0), ("exit", 7), ("raise", 1)])
def test_a_forked_child_that_comes_back_from_its_task_ends_there(
    ended: dict[str, int], task: str, way: str, code: int
) -> None:
    assert {name.rpartition(".")[2]: found for name, found in ended.items()}[f"{task} {way}"] == code
