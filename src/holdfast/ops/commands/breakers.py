"""`holdfast breakers`: the circuit breakers that all workers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from holdfast.app import App
from holdfast.ops.commands.lazy import Failed
from holdfast.ops.commands.output import echo_json, hint, print_table, say, state
from holdfast.ops.commands.reading import near
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import ViewGroup, on_store, show_first, store_options
from holdfast.ops.redact import without_secrets
from holdfast.ops.text import length, short

_COLUMNS: Final = (
    Column("breaker"),
    Column("state"),
    Column("failures", is_number=True, goes=1),
    Column("trips", is_number=True, goes=2),
    Column("trials", goes=3),
    Column("cause", least=12, goes=4),
)


@click.group(cls=ViewGroup)
@store_options
@click.pass_context
def breakers(ctx: click.Context, /, **options: Any) -> None:
    """Circuit breakers: list, reset, force-open, disable.

    Alone it lists them.

    \b
    Example:
      holdfast breakers
      holdfast breakers reset payments
    """  # noqa: D301 - click wants the backspace itself
    show_first(ctx, **options)


@breakers.command("list")
@on_store
def list_breakers(app: App, as_json: bool) -> None:
    """Every breaker that has counted a failure or was changed by hand, by key; with --app also the others of the app.

    \b
    Example:
      holdfast breakers list --json
    """  # noqa: D301 - click wants the backspace itself
    views = [without_secrets(view) for view in app.breakers.list()]
    if as_json:
        echo_json({"items": views})
        return
    if not views:
        hint("no breakers")
        return
    rows = [
        [
            view.key,
            state(view.mode.value),
            str(view.failures),
            str(view.trips),
            "-" if view.retry_after is None else f"in {length(max(0.0, view.retry_after))}",
            short(view.cause or "", 100),
        ]
        for view in views
    ]
    print_table(_COLUMNS, rows)


@breakers.command("reset")
@click.argument("KEY")
@on_store
def reset(app: App, key: str, as_json: bool) -> None:
    """Close a breaker, whatever it was.

    \b
    Example:
      holdfast breakers reset payments
    """  # noqa: D301 - click wants the backspace itself
    _change(app, key, app.breakers.reset, as_json)


@breakers.command("force-open")
@click.argument("KEY")
@on_store
def force_open(app: App, key: str, as_json: bool) -> None:
    """Hold a breaker open until it is reset: its jobs wait.

    \b
    Example:
      holdfast breakers force-open payments
    """  # noqa: D301 - click wants the backspace itself
    _change(app, key, app.breakers.force_open, as_json)


@breakers.command("disable")
@click.argument("KEY")
@on_store
def disable(app: App, key: str, as_json: bool) -> None:
    """Let everything through a breaker until it is reset.

    \b
    Example:
      holdfast breakers disable payments
    """  # noqa: D301 - click wants the backspace itself
    _change(app, key, app.breakers.disable, as_json)


def _change(app: App, key: str, change: Callable[[str], None], as_json: bool) -> None:
    known = [view.key for view in app.breakers.list()]
    if key not in known and app.specs:
        raise Failed(f"there is no breaker {key!r}: {near(key, known)}")
    change(key)
    if key not in known:
        hint(f"no breaker {key!r} was seen here before: {near(key, known)} --app knows all of an app")
    view = next(without_secrets(view) for view in app.breakers.list() if view.key == key)
    if as_json:
        echo_json(view)
    else:
        say(f"breaker {key} is {view.mode.value}")
