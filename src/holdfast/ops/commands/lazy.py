"""A group whose commands are imported when they are called, and whose errors are one line each."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from importlib import import_module
from typing import Any, Final, NamedTuple, NoReturn

import click

from holdfast.errors import ConfigError, HoldfastError, Invalid, StoreError, UnknownTask
from holdfast.ops.text import short

FAILED: Final = 1
"""The exit code of what did not work out, or was not found."""
UNUSABLE: Final = 2
"""The exit code of wrong usage, and of what cannot start: a bad target, a bad URL, a store that cannot be opened."""
INTERRUPTED: Final = 130

_UNUSABLE_ERRORS: Final = (ConfigError, StoreError, Invalid, UnknownTask)
_LONGEST: Final = 1000


class Later(NamedTuple):
    """Where a command is, and its line in the list of commands."""

    module: str
    name: str
    line: str


class Failed(click.ClickException):
    """It did not work out, or was not found: one line on standard error."""

    exit_code = FAILED

    def __init__(self, message: str) -> None:
        super().__init__(short(message, _LONGEST))


class Unusable(Failed):
    """It was called wrongly, or cannot start."""

    exit_code = UNUSABLE


class LazyGroup(click.Group):
    """Imports a command when it is called; the list of commands needs none of them.

    Whatever a command raises ends as one line on standard error. HOLDFAST_TRACEBACK=1 lets it through, for whoever
    looks for a bug.
    """

    def __init__(self, *args: Any, later: Mapping[str, Later], **kwargs: Any) -> None:
        self._known: MutableMapping[str, click.Command] = {}
        self._later = later
        super().__init__(*args, **kwargs)

    @property
    def commands(self) -> MutableMapping[str, click.Command]:
        """Every command by name; this imports them all."""
        for name in self._later:
            self._load(name)
        return self._known

    @commands.setter
    def commands(self, value: MutableMapping[str, click.Command]) -> None:
        self._known = value

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add one that is there already."""
        self._known[name or cmd.name or ""] = cmd

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order they are written in: that of a first day with Holdfast."""
        return [*(name for name in self._known if name not in self._later), *self._later]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, imported if need be."""
        return self._load(cmd_name) if cmd_name in self._later else self._known.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        rows = []
        for name in self.list_commands(ctx):
            line = self._later[name].line if name in self._later else self._known[name].get_short_help_str(limit=100)
            rows.append((name, line))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; whatever goes wrong is one line."""
        _never_fail_to_print()
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if os.environ.get("HOLDFAST_TRACEBACK"):
                raise
            _tell(error)

    def _load(self, name: str) -> click.Command:
        if name not in self._known:
            later = self._later[name]
            self._known[name] = getattr(import_module(later.module), later.name)
        return self._known[name]


def line_of(error: BaseException) -> str:
    """An error in one line; one of Holdfast's own says all in its message."""
    message = short(str(error), _LONGEST)
    if isinstance(error, HoldfastError) and message:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _tell(error: Exception) -> NoReturn:
    kind = Unusable if isinstance(error, _UNUSABLE_ERRORS) else Failed
    raise kind(line_of(error)) from error


def _never_fail_to_print() -> None:
    """What a terminal's encoding does not have is written out; a letter must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
