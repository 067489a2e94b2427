"""How a command finds its app: by TARGET, by URL, by the environment, or in the current folder."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, Final, ParamSpec

import click

from holdfast.app import App
from holdfast.ops.commands.lazy import Failed, Unusable, line_of
from holdfast.ops.commands.reading import near
from holdfast.runtime.isolated import load
from holdfast.runtime.place import place_of
from holdfast.wiring import is_store, shown, store_file

P = ParamSpec("P")

APP_VARIABLE: Final = "HOLDFAST_APP"
URL_VARIABLE: Final = "HOLDFAST_URL"
_URL_HELP: Final = "The store, such as sqlite:///shop.db. [--app, then $HOLDFAST_URL, then ./holdfast.db]"
_APP_HELP: Final = "The app whose store it is: module:app, or file.py:app. [$HOLDFAST_APP]"
_JSON_HELP: Final = "JSON instead of text."

json_option = click.option("--json", "as_json", is_flag=True, help=_JSON_HELP)
"""`--json`."""


def load_app(target: str) -> App:
    """The app that a target names; Failed says in one line why there is none."""
    return _as_app(loaded(target), target)


def _as_app(found: object, target: str) -> App:
    if not isinstance(found, App):
        raise Unusable(f"cannot load {target}: it is a {type(found).__name__}, not a holdfast.App")
    return found


def loaded(target: str) -> object:
    """Whatever a target names; Failed says in one line why there is nothing."""
    module = target.partition(":")[0]
    if not module:
        raise Unusable(f"cannot load {target!r}: write module:app, or file.py:app")
    if module.endswith(".py") and not Path(module).is_file():
        raise Unusable(f"cannot load {target}: there is no file {module} in {Path.cwd()}")
    try:
        found: object = load(target)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = _apps_beside(error) or f"{line_of(error)}{place_of(error)}"
        raise Unusable(f"cannot load {target}: {why}") from error
    return found


def target_or_default(target: str | None) -> str:
    """The target given, or that of the environment."""
    found = target or os.environ.get(APP_VARIABLE)
    if not found:
        raise Unusable(f"which app? Give TARGET as module:app or file.py:app, or set {APP_VARIABLE}")
    return found


def _apps_beside(error: BaseException) -> str:
    """For a module without this name, in words: which apps it has instead; empty for any other error."""
    if not isinstance(error, AttributeError) or not isinstance(error.obj, ModuleType) or place_of(error):
        return ""
    apps = [name for name, value in vars(error.obj).items() if isinstance(value, App)]
    found = near(error.name or "", apps) if apps else "it has no App at all"
    return f"{error.obj.__name__} has no {error.name!r}: {found}"


def find_app(url: str | None, target: str | None) -> App:
    """The app that the options name, or whose crawler they name; nothing is opened yet."""
    if url:
        return App(url)
    if not target:
        return App()
    found = loaded(target)
    owner = getattr(found, "app", None)
    return owner if isinstance(owner, App) else _as_app(found, target)


def help_for(url: str | None, target: str | None) -> str:
    """What would help where these options lead to no store."""
    if url:
        return "check --url, or enqueue a job first"
    if target:
        return "enqueue a job first, or start a worker"
    if os.environ.get(URL_VARIABLE):
        return f"check {URL_VARIABLE}, or give --url or --app"
    return "give --url or --app, or enqueue a job first"


@contextmanager
def opened(app: App, *, may_create: bool = False, help_: str = "enqueue a job first") -> Iterator[App]:
    """The app with its store open, and closed in the end.

    A file that is missing is not made, unless that is wanted; `help_` says what would help.
    """
    path = store_file(app.url)
    if path is not None and not may_create and not path.exists():
        raise Failed(f"there is no store at {path}: {help_}")
    if path is not None and not may_create and not is_store(path):
        raise Failed(f"there is no Holdfast store in {path}")
    if not app.store.capabilities.is_shared:
        raise Unusable(f"{shown(app.url)} lives and ends with one process: there is nothing to be seen from here")
    try:
        yield app
    finally:
        app.close()


def store_options(fn: Callable[..., None], *, url_as: str = "url") -> Callable[..., None]:
    """`--url`, `--app` and `--json`, as plain options of a group or a command. url_as: the first one's parameter."""
    fn = json_option(fn)
    fn = click.option("--app", "target", metavar="TARGET", envvar=APP_VARIABLE, help=_APP_HELP)(fn)
    return click.option("--url", url_as, help=_URL_HELP)(fn)


def on_store(fn: Callable[Concatenate[App, P], None]) -> Callable[..., None]:
    """A command on an existing store: it is given the app, and takes `--url`, `--app` and `--json` (`as_json`).

    Options that were given to the group count too: `holdfast jobs --url … list`.
    """
    return _with_store(fn, may_create=False)


def on_any_store(fn: Callable[Concatenate[App, P], None]) -> Callable[..., None]:
    """The same for a command that may be the first to use a store."""
    return _with_store(fn, may_create=True)


def on_app(fn: Callable[Concatenate[App, P], None]) -> Callable[..., None]:
    """The same for a command that needs the app and not its store, which is neither looked for nor made."""
    return _with_app(fn, lambda app, _: closing(app))


def _with_store(fn: Callable[..., None], *, may_create: bool) -> Callable[..., None]:
    return _with_app(fn, lambda app, help_: opened(app, may_create=may_create, help_=help_))


def _with_app(fn: Callable[..., None], use: Callable[[App, str], AbstractContextManager[App]]) -> Callable[..., None]:
    @functools.wraps(fn)
    def command(*args: Any, url: str | None, target: str | None, as_json: bool, **rest: Any) -> None:
        given = of_group()
        url, target = url or given.get("url"), target or given.get("target")
        with use(find_app(url, target), help_for(url, target)) as app:
            fn(app, *args, as_json=as_json or bool(given.get("as_json")), **rest)

    return store_options(command)


def of_group() -> dict[str, Any]:
    """The options that were given to the groups of the command that runs; those of the nearest one count."""
    given: dict[str, Any] = {}
    group = click.get_current_context().parent
    while group is not None:
        given = {name: value for name, value in group.params.items() if value} | given
        group = group.parent
    return given


class ViewGroup(click.Group):
    """A group that shows something when it is called without a command: its first one, or its list.

    Options of these count too: `holdfast dlq --group 1:6f02` is `dlq groups`, `holdfast dlq --limit 3` is `dlq list`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"invoke_without_command": True, **kwargs})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order they are written in: looking first."""
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command in where an option of it comes first."""
        at = self._first_foreign_option(ctx, args)
        if at is not None and (name := self._view_for(ctx, args[at:])) is not None:
            args = [*args[:at], name, *args[at:]]
        return super().parse_args(ctx, args)

    def _first_foreign_option(self, ctx: click.Context, args: list[str]) -> int | None:
        """Where the first option is that is not the group's own; None when a command or nothing comes before it."""
        own = options_of(self, ctx)
        at = 0
        while at < len(args) and args[at].startswith("-"):
            option = own.get(args[at].partition("=")[0])
            if option is None:
                return at
            has_value = not option.is_flag and "=" not in args[at]
            at += 2 if has_value else 1
        return None

    def _view_for(self, ctx: click.Context, args: list[str]) -> str | None:
        """The command that knows all of these options; without one, the first that knows the first of them."""
        given = [arg.partition("=")[0] for arg in args if arg.startswith("--")]
        views = [name for name in dict.fromkeys([next(iter(self.commands)), "list"]) if name in self.commands]
        known = {name: options_of(self.commands[name], ctx) for name in views}
        whole = [name for name in views if all(option in known[name] for option in given)]
        some = [name for name in views if given and given[0] in known[name]]
        return next(iter(whole or some), None)


def options_of(command: click.Command, ctx: click.Context) -> dict[str, click.Option]:
    """The options of a command, by each of their names."""
    options = (one for one in command.get_params(ctx) if isinstance(one, click.Option))
    return {name: option for option in options for name in option.opts}


def show_first(ctx: click.Context, /, **options: Any) -> None:
    """What a ViewGroup does: its first command, unless another one was called."""
    if ctx.invoked_subcommand is None:
        group = ctx.command
        if isinstance(group, ViewGroup):
            ctx.invoke(next(iter(group.commands.values())), **options)
