"""`holdfast rings`: how rings are doing, and how far their consumers have saved that they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import asdict

from holdfast.app import App
from holdfast.errors import CheckpointError
from holdfast.ops.commands.lazy import FAILED, Failed, Unusable
from holdfast.ops.commands.output import STYLES, echo_json, hint, is_sure, print_table, say, yes_option
from holdfast.ops.commands.reading import near
from holdfast.ops.commands.tables import Cell, Column
from holdfast.ops.commands.target import ViewGroup, on_app, opened, show_first, store_options
from holdfast.ops.redact import redacted_text, ring_shown
from holdfast.ops.text import instant, length, many, short
from holdfast.ring.checkpoints import SavedCheckpoint, list_stored, read_file, reset_file, reset_stored
from holdfast.runtime.rings import ConsumerView, RingView

_COLUMNS: Final = (
    Column("ring"),
    Column("process", least=8, goes=6),
    Column("full", is_number=True, goes=10),
    Column("blocked", is_number=True, goes=5),
    Column("consumer"),
    Column("after", least=8, goes=4),
    Column("lag", is_number=True),
    Column("rate/s", is_number=True, goes=9),
    Column("batch", is_number=True, goes=8),
    Column("slowest", is_number=True, goes=3),
    Column("errors", is_number=True, goes=7),
    Column("retries", is_number=True, goes=2),
    Column("given up", is_number=True, goes=11),
    Column("inbox", is_number=True, goes=1),
    Column("state", least=12),
)
_SAVED: Final = (
    Column("ring"),
    Column("consumer"),
    Column("offset", is_number=True),
    Column("batch", is_number=True, goes=2),
    Column("processed", is_number=True, goes=1),
    Column("saved at", goes=3),
    Column("problem", least=12, goes=4),
)
_NO_STORE: Final = "give --url or --app, or --file for a checkpoint that is in a file"
_NO_RINGS: Final = "check --url or --app; a ring shows here where it was given the app: Disruptor(…, app=app)"
_FILE_HELP: Final = "The checkpoint in this file; no store is looked for."
_STUCK_STYLE: Final = STYLES["stopped"]

_file_option = click.option("--file", "path", type=click.Path(dir_okay=False, path_type=Path), help=_FILE_HELP)


@click.group(cls=ViewGroup)
@store_options
@click.pass_context
def rings(ctx: click.Context, /, **options: Any) -> None:
    """Rings: list, checkpoints, reset.

    Alone it lists them.

    \b
    Example:
      holdfast rings
      holdfast rings checkpoints --file prices.checkpoint
    """  # noqa: D301 - click wants the backspace itself
    show_first(ctx, **options)


@rings.command("list")
@on_app
def list_rings(app: App, as_json: bool) -> None:
    """Every ring that a live process reports, as of its last heartbeat, with a line for each consumer.

    A ring tells of itself where it was given the app: Disruptor(…, app=app).

    \b
    Example:
      holdfast rings list --app shop:app --json
    """  # noqa: D301 - click wants the backspace itself
    with opened(app, help_=_NO_RINGS):
        views = [ring_shown(view) for view in app.rings.list()]
    if as_json:
        echo_json({"items": [_fields(view) for view in views]})
    elif not views:
        hint("no live process reports a ring; one does where it was given the app: Disruptor(…, app=app)")
    else:
        print_table(_COLUMNS, [row for view in views for row in _rows(view)])


@rings.command("checkpoints")
@_file_option
@on_app
def checkpoints(app: App, path: Path | None, as_json: bool) -> None:
    """How far each consumer has saved that it is: in the store, or in a file. All before the offset is finished.

    Exit code 1 where one cannot be read.

    \b
    Example:
      holdfast rings checkpoints --app shop:app
      holdfast rings checkpoints --file prices.checkpoint --json
    """  # noqa: D301 - click wants the backspace itself
    found = _in_file(path) if path is not None else _in_store(app)
    if as_json:
        echo_json({"items": [_saved_fields(one) for one in found]})
    elif not found:
        hint("no ring has a checkpoint in this store; --file shows one that is in a file")
    else:
        print_table(_SAVED, [_saved_row(one) for one in found])
    if any(one.problem for one in found):
        click.get_current_context().exit(FAILED)


@rings.command("reset")
@click.argument("RING", required=False)
@click.argument("CONSUMER", required=False)
@_file_option
@yes_option
@on_app
def reset(app: App, ring: str | None, consumer: str | None, path: Path | None, is_yes: bool, as_json: bool) -> None:
    """Remove checkpoints, torn ones too: of all consumers of RING, of CONSUMER alone, or the one in a file.

    These consumers then begin where the source begins. Stop the ring first: a file that is in use is left alone, and a
    ring whose checkpoint in the store is removed stops with the next one that it saves.

    \b
    Example:
      holdfast rings reset prices --app shop:app
      holdfast rings reset prices enrich --app shop:app --yes
      holdfast rings reset --file prices.checkpoint
    """  # noqa: D301 - click wants the backspace itself
    if (path is None) == (ring is None):
        raise Unusable("whose checkpoints? Give RING, or RING and CONSUMER, or --file PATH")
    removed = _reset_file(path, is_yes) if path is not None else _reset_stored(app, ring or "", consumer, is_yes)
    if as_json:
        echo_json({"removed": removed})
    else:
        say(f"{many(len(removed), 'checkpoint')} removed")


def _reset_file(path: Path, is_yes: bool) -> list[str]:
    if not path.exists():
        raise Failed(f"there is no file {path}")
    try:
        saved = read_file(path)
        whose = f"of {saved.ring}/{saved.consumer} in {path}" if saved is not None else f"in {path}"
    except CheckpointError as error:
        whose = f"in {path}, which cannot be read ({short(redacted_text(str(error)))})"
    _ask(f"Remove the checkpoint {whose}? Its consumer begins anew.", is_yes)
    return [str(path)] if reset_file(path) else []


def _reset_stored(app: App, ring: str, consumer: str | None, is_yes: bool) -> list[str]:
    with opened(app, help_=_NO_STORE):
        saved = list_stored(app)
        whose = [one.consumer for one in saved if one.ring == ring and consumer in (None, one.consumer)]
        if not whose:
            name, known = ring, {one.ring for one in saved}
            if consumer is not None and ring in known:
                name, known = f"{ring}/{consumer}", {f"{one.ring}/{one.consumer}" for one in saved}
            raise Failed(f"no checkpoint of {name!r} is in this store" + (f"; {near(name, known)}" if known else ""))
        alive = [view for view in app.rings.list() if view.name == ring]
        running = f" It runs in {many(len(alive), 'process', 'processes')}, and stops." if alive else ""
        names = short(", ".join(whose), 200)
        _ask(f"Remove the checkpoints of ring {ring}: {names}? These consumers begin anew.{running}", is_yes)
        return reset_stored(app, ring, consumer)


def _ask(question: str, is_yes: bool) -> None:
    if not is_sure(question, is_yes):
        raise Failed("nothing was removed")


def _in_file(path: Path) -> Sequence[SavedCheckpoint]:
    saved = read_file(path)
    if saved is None:
        raise Failed(f"there is no file {path}")
    return [saved]


def _in_store(app: App) -> Sequence[SavedCheckpoint]:
    with opened(app, help_=_NO_STORE):
        return list_stored(app)


def _saved_fields(one: SavedCheckpoint) -> dict[str, Any]:
    at = one.checkpoint
    return {
        "ring": one.ring,
        "consumer": one.consumer,
        "offset": None if at is None else at.offset,
        "batch": None if at is None else at.batch,
        "processed": None if at is None else at.processed,
        "saved_at": None if at is None else at.saved_at,
        "problem": one.problem,
    }


def _saved_row(one: SavedCheckpoint) -> Sequence[Cell]:
    at = one.checkpoint
    place = ("-", "-", "-", "-") if at is None else (at.offset, at.batch, at.processed, instant(at.saved_at))
    return [one.ring, one.consumer, *map(str, place), (short(redacted_text(one.problem), 100), _STUCK_STYLE)]


def _fields(view: RingView) -> dict[str, Any]:
    consumers = [asdict(one) | {"state": one.state, "mean_s": one.mean_s} for one in view.consumers]
    return asdict(view) | {"utilisation": view.utilisation, "consumers": consumers}


def _rows(view: RingView) -> Iterator[Sequence[Cell]]:
    head = [view.name, f"{view.host} {view.pid}", f"{view.utilisation:.0%}", str(view.blocked)]
    if not view.consumers:
        yield [*head, *[""] * (len(_COLUMNS) - len(head) - 1), "closing" if view.is_closing else "no consumers"]
    for one in view.consumers:
        yield [
            *head,
            one.name,
            ", ".join(one.after),
            str(one.lag),
            f"{one.rate_per_s:.4g}",
            "-" if one.mean_s is None else _span(one.mean_s),
            _span(one.slowest_s) if one.batches else "-",
            str(one.errors),
            str(one.retries),
            str(one.given_up),
            str(one.in_inbox),
            _state(one, view),
        ]


def _state(one: ConsumerView, ring: RingView) -> Cell:
    """What should be known at once."""
    said = {
        "stuck": f"stuck at batch {one.batch} for {length(one.running_s)}",
        "waiting": f"{one.doing} for {length(one.running_s)}",
        "running": f"running for {length(one.running_s)}",
        "idle": "closing" if ring.is_closing else "idle",
    }[one.state]
    if one.checkpoint_error:
        return short(f"{said}; checkpoint: {one.checkpoint_error}", 100), _STUCK_STYLE
    return (short(said, 100), _STUCK_STYLE) if one.is_stuck else short(said, 100)


def _span(seconds: float) -> str:
    """A short length: batches take microseconds as often as seconds."""
    for unit_s, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit_s:
            return f"{seconds / unit_s:.3g}{name}"
    return f"{seconds * 1e6:.0f}µs"
