"""`holdfast queues`: what waits where, and whether it may start."""

from __future__ import annotations

from typing import Any, Final

import click
from msgspec.structs import asdict

from holdfast.app import App
from holdfast.ops.commands.output import echo_json, hint, print_table, say, state
from holdfast.ops.commands.record import store_now
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import ViewGroup, on_store, show_first, store_options
from holdfast.ops.text import ago

_SHOWN: Final = ("queued", "running", "retrying", "waiting", "completed", "failed", "dead_letter", "cancelled")
_FIRST_TO_GO: Final = {name: i for i, name in enumerate(("cancelled", "failed", "completed", "waiting", "retrying"))}
_COLUMNS: Final = (
    Column("queue"),
    Column("paused", goes=8),
    *(Column(name, is_number=True, goes=_FIRST_TO_GO.get(name, 7)) for name in _SHOWN),
    Column("oldest due", goes=6),
)


@click.group(cls=ViewGroup)
@store_options
@click.pass_context
def queues(ctx: click.Context, /, **options: Any) -> None:
    """Queues: list, pause, resume.

    Alone it lists them.

    \b
    Example:
      holdfast queues
      holdfast queues pause mail
    """  # noqa: D301 - click wants the backspace itself
    show_first(ctx, **options)


@queues.command("list")
@on_store
def list_queues(app: App, as_json: bool) -> None:
    """Every queue that there are jobs in, or that is paused.

    \b
    Example:
      holdfast queues list --json
    """  # noqa: D301 - click wants the backspace itself
    views = app.queues.list()
    if as_json:
        echo_json({"items": [asdict(view) | {"depth": view.depth} for view in views]})
        return
    if not views:
        hint("no queues")
        return
    now = store_now(app)
    rows = [
        [
            view.name,
            state("paused") if view.is_paused else "",
            *(str(view.states.get(name, 0)) for name in _SHOWN),
            ago(view.oldest_ready_at, now),
        ]
        for view in views
    ]
    print_table(_COLUMNS, rows)


@queues.command("pause")
@click.argument("NAME")
@on_store
def pause(app: App, name: str, as_json: bool) -> None:
    """Start none of its jobs until it is resumed; what runs goes on.

    \b
    Example:
      holdfast queues pause mail
    """  # noqa: D301 - click wants the backspace itself
    if name not in {view.name for view in app.queues.list()}:
        hint(f"there are no jobs in a queue {name!r} so far")
    app.queues.pause(name)
    _tell(name, "paused", as_json)


@queues.command("resume")
@click.argument("NAME")
@on_store
def resume(app: App, name: str, as_json: bool) -> None:
    """Start its jobs again.

    \b
    Example:
      holdfast queues resume mail
    """  # noqa: D301 - click wants the backspace itself
    if name not in {view.name for view in app.queues.list() if view.is_paused}:
        hint(f"queue {name!r} was not paused")
    app.queues.resume(name)
    _tell(name, "running", as_json)


def _tell(name: str, word: str, as_json: bool) -> None:
    if as_json:
        echo_json({"name": name, "is_paused": word == "paused"})
    else:
        say(f"queue {name} is {word}")
