"""A group with one command that need not be named: `holdfast crawl https://example.org` is `crawl run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from holdfast.ops.commands.target import ViewGroup, options_of


class UnnamedGroup(ViewGroup):
    """What begins with a word that is meant for this command, or with an option that is not the group's, is its own."""

    def __init__(self, *args: Any, unnamed: str, is_meant: Callable[[str], bool] = bool, **kwargs: Any) -> None:
        """unnamed: the command. is_meant: whether a word that names no command is for it [any is]."""
        super().__init__(*args, **kwargs)
        self._unnamed = unnamed
        self._is_meant = is_meant

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in front where it is meant; the group's own options are its options, too."""
        first = self._first_of_its_own(ctx, args)
        if first is not None and first not in self.commands and (first.startswith("-") or self._is_meant(first)):
            args = [self._unnamed, *args]
        return click.Group.parse_args(self, ctx, args)

    def _first_of_its_own(self, ctx: click.Context, args: list[str]) -> str | None:
        """The first word that is no option of the group, nor the value of one."""
        own = options_of(self, ctx)
        at = 0
        while at < len(args) and (option := own.get(args[at].partition("=")[0])) is not None:
            has_value = not option.is_flag and "=" not in args[at]
            at += 2 if has_value else 1
        return args[at] if at < len(args) else None
