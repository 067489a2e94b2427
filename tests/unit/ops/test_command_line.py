"""What holds for every command: help with an example, a place in the reference, one line for every error."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.errors import ConfigError, HoldfastError, LeaseLost, StoreError
from holdfast.ops.cli import LATER, main
from holdfast.ops.commands.lazy import Later, LazyGroup

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def commands(group: click.Group, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)


EVERY = dict(commands(main))
LEAVES = {words: command for words, command in EVERY.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_every_command_has_help_with_an_example_of_itself(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*words, "--help"], prog_name="holdfast")
    assert done.exit_code == 0
    assert re.search(rf"Example:\n(    holdfast .*\n)*    holdfast {' '.join(words)}", done.stdout)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_json(words: tuple[str, ...]) -> None:
    assert any("--json" in parameter.opts for parameter in LEAVES[words].params)


@pytest.mark.parametrize("words", [words for words in EVERY if len(words) > 1], ids=" ".join)
def test_every_subcommand_is_in_the_reference_with_all_it_takes(words: tuple[str, ...]) -> None:
    heading = f"### `holdfast {' '.join(words)}`"
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^##|\Z)", REFERENCE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, f"cli.md has no {heading}"
    shared = {"--url", "--app", "--json", "--help", "-h"}  # in a table of their own
    for parameter in EVERY[words].params:
        for name in set(parameter.opts) - shared:
            assert re.search(rf"^\| [^|]*`{name}`", found[1], re.MULTILINE), f"{name} is not in {heading}"


def test_every_subcommand_in_the_reference_exists() -> None:
    written = re.findall(r"^### `holdfast (.*)`$", REFERENCE.read_text(), re.MULTILINE)
    assert {tuple(words.split()) for words in written} == {words for words in EVERY if len(words) > 1}


def test_every_option_that_many_share_is_in_the_reference() -> None:
    for name in ("--url", "--app", "--json"):
        assert re.search(rf"^\| [^|]*`{name}`", REFERENCE.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", LATER)
def test_the_line_of_a_command_is_its_own_first_one(name: str) -> None:
    assert main.commands[name].get_short_help_str(limit=200) == LATER[name].line


def test_help_needs_neither_rich_nor_asyncio_nor_a_store() -> None:
    code = (
        "import sys; from holdfast.ops.cli import main; main(['--help'], standalone_mode=False); "
        "print([name for name in ('rich', 'asyncio', 'apsw', 'holdfast.app') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


# ---------------------------------------------------------------- errors


def group_that_raises(error: BaseException) -> LazyGroup:
    def fail() -> None:
        raise error

    group = LazyGroup("holdfast", later={"other": Later("no.such.module", "x", "Never loaded.")})
    group.add_command(click.Command("fail", callback=fail))
    return group


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("url='x': must be a URL"), 2, "url='x': must be a URL"),
        (StoreError("the store is gone"), 2, "the store is gone"),
        (LeaseLost("it belongs to somebody else"), 1, "it belongs to somebody else"),
        (HoldfastError(), 1, "HoldfastError"),
        (ZeroDivisionError("division\nby \x1b[31m zero"), 1, "ZeroDivisionError: division by \\x1b[31m zero"),
        (PermissionError(13, "Permission denied", "/x"), 1, "PermissionError: [Errno 13] Permission denied: '/x'"),
    ],
)
def test_every_error_is_one_line_on_standard_error(error: Exception, code: int, line: str) -> None:
    done = CliRunner().invoke(group_that_raises(error), ["fail"])
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", f"Error: {line}\n")


def test_an_interrupt_is_130_without_a_traceback() -> None:
    done = CliRunner().invoke(group_that_raises(KeyboardInterrupt()), ["fail"])
    assert (done.exit_code, done.output) == (130, "\n")


def test_who_looks_for_a_bug_gets_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(group_that_raises(ZeroDivisionError()), ["fail"], catch_exceptions=False)
