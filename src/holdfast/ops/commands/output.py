"""What commands print: JSON, tables, answers. All text is shown as text: no markup, no control characters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from holdfast.ops.commands.tables import Cell, Column, FittedTable
from holdfast.ops.text import plain

if TYPE_CHECKING:
    from rich.console import Console

STYLES: Final = {
    "queued": "cyan",
    "running": "blue",
    "retrying": "yellow",
    "waiting": "yellow",
    "completed": "green",
    "failed": "red",
    "dead_letter": "red",
    "cancelled": "dim",
    "closed": "green",
    "open": "red",
    "forced_open": "red",
    "half_open": "yellow",
    "disabled": "yellow",
    "paused": "yellow",
    "stopped": "red",
    "done": "green",
}
"""The colours of states."""
_UNLIMITED: Final = 10_000


def state(name: str) -> Cell:
    """A state in its colour."""
    return name, STYLES.get(name, "")


def echo_json(value: Any, *, err: bool = False) -> None:
    """One line of JSON; err: on standard error, where standard output has something else."""
    click.echo(msgspec.json.encode(value, enc_hook=str), err=err)


def console() -> Console:
    """Standard output; what is not shown on a terminal is not cut to any width."""
    from rich.console import Console  # noqa: PLC0415 - rich costs 50 ms, and --json does not need it

    is_terminal = sys.stdout.isatty()
    return Console(highlight=False, markup=False, emoji=False, width=None if is_terminal else _UNLIMITED)


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> None:
    """Print a table, as wide as the terminal at most."""
    console().print(FittedTable(columns, rows))


def say(line: str) -> None:
    """One line on standard output."""
    click.echo(plain(line))


def hint(line: str) -> None:
    """One line on standard error: for the person, not for the pipe."""
    click.echo(plain(line), err=True)


def is_sure(question: str, is_yes: bool) -> bool:
    """Ask before something is deleted, unless `--yes` was given. Without an answer it is no."""
    if is_yes:
        return True
    try:
        return click.confirm(plain(question), err=True)
    except click.Abort:
        click.echo(err=True)
        hint("nobody answered; --yes does it without the question")
        return False


yes_option = click.option("--yes", "-y", "is_yes", is_flag=True, help="Do not ask.")
"""`--yes`."""
