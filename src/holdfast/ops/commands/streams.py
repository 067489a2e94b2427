"""`holdfast streams`: how streams are doing, and how far their groups are behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
from msgspec.structs import asdict, replace

from holdfast.app import App
from holdfast.app.streams import StreamLag
from holdfast.ops.commands.lazy import FAILED, Failed, Unusable
from holdfast.ops.commands.output import echo_json, hint, print_table
from holdfast.ops.commands.reading import length_of, near
from holdfast.ops.commands.record import store_now
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import ViewGroup, on_app, on_store, show_first, store_options
from holdfast.ops.redact import redacted_text
from holdfast.ops.text import ago, length, short
from holdfast.runtime.streams.progress import STUCK_S
from holdfast.runtime.streams.views import StreamView
from holdfast.types import offset_text

_COLUMNS: Final = (
    Column("stream"),
    Column("topic", goes=3),
    Column("group", goes=4),
    Column("workers", is_number=True, goes=7),
    Column("partitions", is_number=True, goes=1),
    Column("lag", is_number=True),
    Column("in flight", is_number=True, goes=6),
    Column("rate/s", is_number=True, goes=5),
    Column("dead letters", is_number=True, goes=8),
    Column("last error", least=12, goes=2),
    Column("state", least=12, goes=9),
)
_LAG_COLUMNS: Final = (
    Column("stream"),
    Column("topic"),
    Column("partition", is_number=True),
    Column("position", is_number=True, goes=2),
    Column("end", is_number=True, goes=1),
    Column("lag", is_number=True),
)


@click.group(cls=ViewGroup)
@store_options
@click.pass_context
def streams(ctx: click.Context, /, **options: Any) -> None:
    """Streams: list, lag.

    Alone it lists them.

    \b
    Example:
      holdfast streams --app shop:app
      holdfast streams lag --app shop:app
    """  # noqa: D301 - click wants the backspace itself
    show_first(ctx, **options)


@streams.command("list")
@on_store
def list_streams(app: App, as_json: bool) -> None:
    """Every stream that a worker reports, as of its last heartbeat; with --app also those that none does.

    \b
    Example:
      holdfast streams list --app shop:app --json
    """  # noqa: D301 - click wants the backspace itself
    views = [_without_secrets(view) for view in app.streams.list()]
    if as_json:
        echo_json({"items": views})
        return
    if not views:
        hint("no worker reports a stream; --app shows those of an app")
        return
    now = store_now(app)
    rows = [
        [
            view.name,
            view.topic,
            view.group,
            str(view.workers),
            str(len({(one.topic, one.partition) for one in view.partitions})),
            "?" if view.lag is None else str(view.lag),
            str(view.in_flight),
            f"{view.rate_per_s:g}",
            str(view.dead_letters),
            short(f"{ago(view.last_error_at, now)}: {view.last_error}", 100) if view.last_error else "",
            _state(view),
        ]
        for view in views
    ]
    print_table(_COLUMNS, rows)


@streams.command("lag")
@click.argument("NAME", required=False)
@click.option(
    "--timeout", type=length_of, default=10.0, metavar="TIME", help="How long a server is waited for. [default: 10s]"
)
@on_app
def lag(app: App, name: str | None, timeout: float, as_json: bool) -> None:
    """How far each stream is behind, by partition, asked of its server: no worker needs to run.

    NAME is one stream. The app must be known: --app, or $HOLDFAST_APP. Exit code 1 where a server does not answer.

    \b
    Example:
      holdfast streams lag --app shop:app
      holdfast streams lag bill --app shop:app --json
    """  # noqa: D301 - click wants the backspace itself
    known = app.stream_specs
    if not known:
        raise Unusable("no streams: give --app, the app that has them, as module:app or file.py:app")
    if name is not None and name not in known:
        raise Failed(f"no stream {name!r}; {near(name, known)}")
    found = app.streams.lag(name, timeout=timeout)
    if as_json:
        echo_json({"items": [_fields(one) for one in found]})
    else:
        _print_lags(found)
    errors = [f"stream {one.name}: {one.error}" for one in found if one.error]
    for line in errors:
        hint(line)
    if errors:
        click.get_current_context().exit(FAILED)


def _print_lags(found: Sequence[StreamLag]) -> None:
    rows: list[list[str]] = []
    for one in found:
        if one.error:
            continue
        rows += [
            [one.name, part.topic, str(part.partition), _place(part.position), _place(part.end), str(part.lag)]
            for part in one.partitions
        ]
        rows.append([one.name, "in all", "", "", "", str(one.lag)])
    if rows:
        print_table(_LAG_COLUMNS, rows)


def _place(offset: int | None) -> str:
    return "-" if offset is None else offset_text(offset)


def _fields(one: StreamLag) -> dict[str, Any]:
    """As JSON; positions are text, as those of Redis are."""
    parts = [
        asdict(part) | {"position": None if part.position is None else _place(part.position), "end": _place(part.end)}
        for part in one.partitions
    ]
    return asdict(one) | {"partitions": parts, "lag": one.lag}


def _state(view: StreamView) -> str:
    """What should be known at once."""
    if not view.workers:
        return "no worker"
    if view.away:
        return short(f"away: {view.away}", 100)
    stuck = max((one for one in view.partitions if one.stuck_id), key=lambda one: one.stuck_s, default=None)
    if stuck is not None and stuck.stuck_s >= STUCK_S:
        return short(f"stuck for {length(stuck.stuck_s)} at {stuck.stuck_id}, key {stuck.stuck_key!r}", 100)
    paused = sum(bool(one.paused) for one in view.partitions)
    return f"{paused} paused" if paused else "ok"


def _without_secrets(view: StreamView) -> StreamView:
    """Keys, errors and addresses as they may be shown."""
    return replace(
        view,
        location=redacted_text(view.location),
        last_error=redacted_text(view.last_error),
        away=redacted_text(view.away),
        partitions=[
            replace(one, stuck_key=redacted_text(one.stuck_key), paused=redacted_text(one.paused))
            for one in view.partitions
        ],
    )
