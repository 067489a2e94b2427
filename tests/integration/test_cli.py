"""The command line, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

HOLDFAST = Path(sys.executable).with_name("holdfast")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HOLDFAST, *arguments], capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL, check=False
    )


def test_the_demo_keeps_every_promise_and_exits_by_itself_without_a_terminal() -> None:
    done = run("demo", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert lines[-1] == {"kind": "end", "kept": True, "broken": []}
    told = [line["text"] for line in lines[:-1]]
    assert "breaker shipping: closed → open, in both processes at once" in told
    assert "replay done: canaries passed, 200 letters sent" in told
    assert any("3,000 jobs enqueued, 3,000 completed, 0 lost" in line for line in told)
    assert any("Watch it live while the story lasts: http://127.0.0.1:" in line for line in told)
    assert any("200 letters, one cause: IndexError" in line for line in told)


@pytest.mark.parametrize("command", [[], ["demo"]])
def test_every_command_has_help_and_every_leaf_an_example(command: Sequence[str]) -> None:
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Usage: holdfast" in done.stdout
    assert not command or f"Example:\n    holdfast {command[0]}" in done.stdout


def test_a_wrong_command_or_option_is_told_below_the_usage_and_exits_with_2() -> None:
    for arguments in (["dmeo"], ["demo", "--jsno"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stderr.startswith("Usage: holdfast ")
        assert done.stderr.splitlines()[-1].startswith("Error: No such")


def test_the_version_is_told() -> None:
    assert run("--version").stdout == "holdfast, version 0.1.0\n"
