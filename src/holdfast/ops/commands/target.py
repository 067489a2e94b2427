"""How a command finds its app: by TARGET, by URL, by the environment, or in the current folder."""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec

import click

from holdfast.app import App
from holdfast.ops.commands.lazy import Failed, Unusable, line_of
from holdfast.runtime.isolated import load
from holdfast.wiring import is_store, store_file

P = ParamSpec("P")

APP_VARIABLE: Final = "HOLDFAST_APP"
_URL_HELP: Final = "The store, such as sqlite:///shop.db. [--app, then $HOLDFAST_URL, then ./holdfast.db]"
_APP_HELP: Final = "The app whose store it is: module:app, or file.py:app. [$HOLDFAST_APP]"
_JSON_HELP: Final = "JSON instead of text."

json_option = click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)
"""`--json`."""


def load_app(target: str) -> App:
    """The app that a target names; Failed says in one line why there is none."""
    if not target.partition(":")[0]:
        raise Unusable(f"cannot load {target!r}: write module:app, or file.py:app")
    try:
        found = load(target)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Unusable(f"cannot load {target}: {line_of(error)}{_place_of(error)}") from error
    if not isinstance(found, App):
        raise Unusable(f"cannot load {target}: it is a {type(found).__name__}, not a holdfast.App")
    return found


def target_or_default(target: str | None) -> str:
    """The target given, or that of the environment."""
    found = target or os.environ.get(APP_VARIABLE)
    if not found:
        raise Unusable(f"which app? Give TARGET as module:app or file.py:app, or set {APP_VARIABLE}")
    return found


def _place_of(error: BaseException) -> str:
    """File and line of the user's code in which it happened."""
    if isinstance(error, SyntaxError):
        return ""  # its message has them
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if frame.filename not in {load.__code__.co_filename, __file__}]
    own = [frame for frame in own if f"{os.sep}importlib{os.sep}" not in frame.filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def find_app(url: str | None, target: str | None) -> App:
    """The app that the options name; nothing is opened yet."""
    if url:
        return App(url)
    return load_app(target) if target else App()


@contextmanager
def opened(app: App, *, may_create: bool = False) -> Iterator[App]:
    """The app with its store open, and closed in the end. A file that is missing is not made, unless that is wanted."""
    path = store_file(app.url)
    if path is not None and not may_create and not path.exists():
        raise Failed(f"there is no store at {path}: give --url or --app, or enqueue a job first")
    if path is not None and not may_create and not is_store(path):
        raise Failed(f"there is no Holdfast store in {path}")
    if not app.store.capabilities.is_shared:
        raise Unusable(f"{app.url} lives and ends with one process: there is nothing to be seen from here")
    try:
        yield app
    finally:
        app.close()


def store_options(fn: Callable[..., None]) -> Callable[..., None]:
    """`--url`, `--app` and `--json`, as plain options of a group or a command."""
    fn = json_option(fn)
    fn = click.option("--app", "target", metavar="TARGET", envvar=APP_VARIABLE, help=_APP_HELP)(fn)
    return click.option("--url", help=_URL_HELP)(fn)


def on_store(fn: Callable[Concatenate[App, P], None]) -> Callable[..., None]:
    """A command on an existing store: it is given the app, and takes `--url`, `--app` and `--json` (`as_json`).

    Options that were given to the group count too: `holdfast jobs --url … list`.
    """
    return _with_store(fn, may_create=False)


def on_any_store(fn: Callable[Concatenate[App, P], None]) -> Callable[..., None]:
    """The same for a command that may be the first to use a store."""
    return _with_store(fn, may_create=True)


def _with_store(fn: Callable[..., None], *, may_create: bool) -> Callable[..., None]:
    @functools.wraps(fn)
    def command(*args: Any, url: str | None, target: str | None, as_json: bool, **rest: Any) -> None:
        given = _of_group()
        with opened(find_app(url or given.get("url"), target or given.get("target")), may_create=may_create) as app:
            fn(app, *args, as_json=as_json or bool(given.get("as_json")), **rest)

    return store_options(command)


def _of_group() -> dict[str, Any]:
    parent = click.get_current_context().parent
    return {} if parent is None else parent.params


class ViewGroup(click.Group):
    """A group that shows something when it is called alone: its first command."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **kwargs})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order they are written in: looking first."""
        return list(self.commands)


def show_first(ctx: click.Context, /, **options: Any) -> None:
    """What a ViewGroup does: its first command, unless another one was called."""
    if ctx.invoked_subcommand is None:
        group = ctx.command
        if isinstance(group, ViewGroup):
            ctx.invoke(next(iter(group.commands.values())), **options)
