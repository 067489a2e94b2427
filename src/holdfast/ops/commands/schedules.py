"""`holdfast schedules`: what an app enqueues by itself, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from holdfast.app import App
from holdfast.ops.commands.lazy import Failed
from holdfast.ops.commands.output import echo_json, hint, print_table, say, state
from holdfast.ops.commands.reading import near
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import ViewGroup, help_for, json_option, load_app, opened, target_or_default
from holdfast.ops.text import ago, instant

_COLUMNS: Final = (
    Column("schedule"),
    Column("task", goes=4),
    Column("timing", goes=3),
    Column("paused", goes=2),
    Column("last", goes=1),
    Column("next", least=20),
)


class ScheduleGroup(ViewGroup):
    """`holdfast schedules shop:app` lists."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """A target in a command's place is one to be listed."""
        if args[0] not in self.commands and (":" in args[0] or args[0].endswith(".py")):
            args = ["list", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=ScheduleGroup)
@json_option
@click.pass_context
def schedules(ctx: click.Context, as_json: bool) -> None:
    """Schedules of an app: list, pause, resume.

    Alone, or with a target, it lists them.

    \b
    Example:
      holdfast schedules shop:app
      holdfast schedules pause shop:app nightly
    """  # noqa: D301 - click wants the backspace itself
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_schedules, target=None, as_json=as_json)


@schedules.command("list")
@click.argument("TARGET", required=False)
@json_option
@click.pass_context
def list_schedules(ctx: click.Context, target: str | None, as_json: bool) -> None:
    """Every schedule, with its last and its next tick.

    TARGET is module:app or file.py:app, or else $HOLDFAST_APP.

    \b
    Example:
      holdfast schedules list shop:app
    """  # noqa: D301 - click wants the backspace itself
    name = target_or_default(target)
    with opened(load_app(name), help_=help_for(None, name)) as app:
        found = app.schedules.list()
        now = app.clock.now()
    if _is_json(ctx, as_json):
        echo_json({"items": found})
        return
    if not found:
        hint(f"{name} has no schedules")
        return
    rows = [
        [
            one.name,
            one.task,
            one.timing,
            state("paused") if one.is_paused else "",
            ago(one.last_at, now),
            f"{instant(one.next_at)} ({ago(one.next_at, now)})" if one.next_at is not None else "-",
        ]
        for one in found
    ]
    print_table(_COLUMNS, rows)


@schedules.command("pause")
@click.argument("TARGET")
@click.argument("NAME")
@json_option
@click.pass_context
def pause(ctx: click.Context, target: str, name: str, as_json: bool) -> None:
    """Fire none of its ticks until it is resumed, by no worker.

    \b
    Example:
      holdfast schedules pause shop:app nightly
    """  # noqa: D301 - click wants the backspace itself
    _change(target, name, lambda app: app.schedules.pause(name), _is_json(ctx, as_json))


@schedules.command("resume")
@click.argument("TARGET")
@click.argument("NAME")
@json_option
@click.pass_context
def resume(ctx: click.Context, target: str, name: str, as_json: bool) -> None:
    """Fire its ticks again, from the next one on.

    \b
    Example:
      holdfast schedules resume shop:app nightly
    """  # noqa: D301 - click wants the backspace itself
    _change(target, name, lambda app: app.schedules.resume(name), _is_json(ctx, as_json))


def _change(target: str, name: str, change: Callable[[App], None], as_json: bool) -> None:
    app = load_app(target)
    if name not in app.scheduled:
        raise Failed(f"{target} has no schedule {name!r}: {near(name, app.scheduled)}")
    with opened(app, may_create=True):
        change(app)
        found = next(one for one in app.schedules.list() if one.name == name)
    if as_json:
        echo_json(found)
    else:
        say(f"schedule {name} is {'paused' if found.is_paused else 'running'}")


def _is_json(ctx: click.Context, as_json: bool) -> bool:
    parents: dict[str, Any] = ctx.parent.params if ctx.parent is not None else {}
    return as_json or bool(parents.get("as_json"))
