"""`--log-format`: how a command, and every process it starts, writes its log."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from holdfast.runtime.logs import FORMATS, LOG_FORMAT, set_up_logs

F = TypeVar("F", bound=Callable[..., Any])


def log_option(fn: F) -> F:
    """Adds `--log-format` to a command, which gets it as `log_format`."""
    option = click.option("--log-format", type=click.Choice(FORMATS), help=f"[${LOG_FORMAT}, or text]")
    return option(fn)


def log_to_stderr(log_format: str | None = None) -> None:
    """Log to standard error in this format; ConfigError where a variable of the environment says nonsense."""
    set_up_logs(log_format)
    if log_format is not None:
        os.environ[LOG_FORMAT] = log_format  # the processes that this one starts go by it, too
