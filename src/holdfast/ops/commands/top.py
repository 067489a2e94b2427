"""`holdfast top`: what goes on in a store, live."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from holdfast.app import App
from holdfast.app.operators import QueueView
from holdfast.app.stats import AppStats
from holdfast.errors import StoreAway
from holdfast.ops.commands.output import console, echo_json, hint, state
from holdfast.ops.commands.reading import length_of
from holdfast.ops.commands.tables import Cell, Column, FittedTable
from holdfast.ops.commands.target import on_store
from holdfast.ops.redact import crawl_shown, ring_shown, without_secrets
from holdfast.ops.text import ago, instant, plain, short
from holdfast.ports import WorkerRecord
from holdfast.runtime.shared.by_hand import BreakerView
from holdfast.types import BreakerMode, Group, JobState

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_MINUTES: Final = 30
_GROUPS: Final = 5
_GROUPS_EVERY_S: Final = 5.0
_ROWS: Final = 12
_BARS: Final = "▁▂▃▄▅▆▇█"
_CLOSED: Final = BreakerMode.CLOSED
_INDENT: Final = 9
_QUEUES: Final = (
    Column("queue"),
    Column("paused", goes=2),
    Column("to do", is_number=True),
    Column("running", is_number=True),
    Column("dead", is_number=True),
    Column("oldest due", goes=1),
)
_BREAKERS: Final = (Column("breaker"), Column("state"), Column("cause", least=12, goes=1))
_WORKERS: Final = (
    Column("worker", prefix=13),
    Column("where", least=12, goes=3),
    Column("running", is_number=True),
    Column("queues", least=12, goes=2),
    Column("started", goes=1),
    Column("seen"),
)
_CAUSES: Final = (
    Column("count", is_number=True),
    Column("type", goes=2),
    Column("error", least=20),
    Column("last", goes=1),
    Column("group", prefix=10),
)


class Snapshot(Struct, frozen=True, kw_only=True):
    """What `top` shows."""

    now: float
    store: str
    is_durable: bool
    jobs: Mapping[str, int]
    minute: Mapping[str, int]
    """Attempts by how they ended, in the last whole minute."""
    per_minute: Sequence[tuple[int, Mapping[str, int]]]
    """The same for the last half hour, by minute since 1970."""
    success_rate: float | None
    queues: Sequence[QueueView]
    breakers: Sequence[BreakerView]
    """Those that are not closed."""
    workers: Sequence[WorkerRecord]
    groups: Sequence[Group]
    """The largest ones."""


class Looker:
    """Takes snapshots; groups, which cost most, only every few seconds."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._groups: Sequence[Group] = ()
        self._grouped_s: float | None = None

    def look(self) -> Snapshot:
        """What there is now."""
        app = self._app
        stats = app.stats(_MINUTES)
        now_s = app.clock.monotonic()
        if self._grouped_s is None or now_s - self._grouped_s >= _GROUPS_EVERY_S:
            groups = app.dead_letters.groups()[:_GROUPS]
            self._groups, self._grouped_s = [without_secrets(group) for group in groups], now_s
        return Snapshot(
            now=stats.now,
            store=app.store.capabilities.location,
            is_durable=stats.is_durable,
            jobs={one.value: stats.jobs.get(one.value, 0) for one in JobState},
            minute=last_minute(stats),
            per_minute=stats.per_minute,
            success_rate=stats.success_rate,
            queues=app.queues.list(),
            breakers=[without_secrets(view) for view in app.breakers.list() if view.mode is not _CLOSED],
            workers=[
                replace(one, rings=tuple(map(ring_shown, one.rings)), crawls=tuple(map(crawl_shown, one.crawls)))
                for one in stats.workers
            ],
            groups=self._groups,
        )


def last_minute(stats: AppStats) -> Mapping[str, int]:
    """The counts of the last minute that is whole."""
    wanted = int(stats.now // 60) - 1
    found = dict(stats.per_minute).get(wanted)
    return {"completed": 0, "retried": 0, "failed": 0} if found is None else found


@click.command()
@click.option("--every", type=length_of, metavar="TIME", default=0.5, help="Look so often. [0.5s]")
@click.option("--count", type=click.IntRange(min=1), help="Look so many times. [until Ctrl-C; once without a terminal]")
@on_store
def top(app: App, every: float, count: int | None, as_json: bool) -> None:
    """States, rates, queues, breakers, workers and causes, live.

    Without a terminal, and with --json, it looks once. While the store is away it says so, and goes on when it is back.

    \b
    Example:
      holdfast top
      holdfast top --json --count 10 --every 1s
    """  # noqa: D301 - click wants the backspace itself
    looker = Looker(app)
    if not as_json and sys.stdout.isatty():
        _live(app, looker, every, count)
        return
    for i in range(count or 1):
        if i:
            app.clock.sleep(every)
        try:
            seen = looker.look()
        except StoreAway as error:
            if not count or count == 1:
                raise
            hint(_away(error))
            continue
        if as_json:
            echo_json(seen)
        else:
            console().print(drawn(seen))


def _live(app: App, looker: Looker, every: float, count: int | None) -> None:
    from rich.live import Live  # noqa: PLC0415 - rich costs 50 ms, and only a terminal needs it

    seen = looker.look()
    with Live(drawn(seen), console=console(), auto_refresh=False, screen=count is None) as live:
        looked = 1
        try:
            while count is None or looked < count:
                app.clock.sleep(max(0.05, every))
                try:
                    seen, away = looker.look(), ""
                except StoreAway as error:
                    away = _away(error)
                live.update(drawn(seen, away), refresh=True)
                looked += 1
        except KeyboardInterrupt:
            return


def _away(error: StoreAway) -> str:
    return f"the store is away, and is asked again: {error}"


def drawn(one: Snapshot, away: str = "") -> RenderableType:
    """A snapshot as tables, one below the other; empty ones are left out. away: why it is not of now."""
    from rich.console import Group as Stack  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    label = "" if one.is_durable else "   (not durable)"
    parts: list[RenderableType] = [
        Text(f"{instant(one.now)}   {plain(one.store)}{label}", style="dim", no_wrap=True, overflow="ellipsis"),
        _Numbers("jobs", [(state(name), n) for name, n in one.jobs.items()]),
        _Numbers("minute", [(name, n) for name, n in one.minute.items()], note="(the last full one)"),
    ]
    if away:
        parts.insert(1, Text(plain(away), style="red"))
    if line := sparkline(one):
        parts.append(Text(line, style="green", no_wrap=True, overflow="ellipsis"))
    if one.queues:
        rows = [_queue_row(view, one.now) for view in one.queues[:_ROWS]]
        parts.append(FittedTable(_QUEUES, rows))
    if one.breakers:
        rows = [[view.key, state(view.mode.value), short(view.cause or "", 80)] for view in one.breakers[:_ROWS]]
        parts.append(FittedTable(_BREAKERS, rows))
    if one.workers:
        rows = [_worker_row(worker, one.now) for worker in one.workers[:_ROWS]]
        parts.append(FittedTable(_WORKERS, rows))
    else:
        parts.append(Text("no worker is running", style="yellow"))
    if one.groups:
        rows = [_group_row(group, one.now) for group in one.groups]
        parts.append(FittedTable(_CAUSES, rows))
    return Stack(*parts)


class _Numbers:
    """Names with their numbers, on as many lines as they need; none of them is torn apart."""

    def __init__(self, title: str, pairs: Sequence[tuple[Cell, int]], note: str = "") -> None:
        self._title = title
        self._pairs = pairs
        self._note = note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What rich calls to draw it."""
        from rich.text import Text  # noqa: PLC0415

        line = Text(f"{self._title:<{_INDENT}}", style="bold")
        pieces = []
        for cell, n in self._pairs:
            name, style = cell if isinstance(cell, tuple) else (cell, "")
            styles = ("dim", "dim") if n == 0 else (style, "bold")
            pieces.append(Text.assemble((f" {name} ", styles[0]), (f"{n:,} ", styles[1])))
        if self._note:
            pieces.append(Text(f" {self._note}", style="dim"))
        for piece in pieces:
            if line.cell_len + piece.cell_len > options.max_width and line.cell_len > _INDENT:
                yield line
                line = Text(" " * _INDENT)
            line.append_text(piece)
        yield line


def sparkline(one: Snapshot) -> str:
    """Completed attempts a minute over the last half hour, as bars; empty where there were none."""
    by_minute = {minute: counts.get("completed", 0) for minute, counts in one.per_minute}
    last = int(one.now // 60)
    counts = [by_minute.get(minute, 0) for minute in range(last - _MINUTES + 1, last + 1)]
    most = max(counts)
    if most == 0:
        return ""
    bars = "".join(" " if n == 0 else _BARS[(n * (len(_BARS) - 1) + most - 1) // most] for n in counts)
    return f"{'':<10}{bars}  completed a minute, at most {most:,}"


def _queue_row(view: QueueView, now: float) -> Sequence[Cell]:
    states = view.states
    return (
        view.name,
        state("paused") if view.is_paused else "",
        str(view.depth - states.get("running", 0)),
        str(states.get("running", 0)),
        str(states.get("dead_letter", 0)),
        ago(view.oldest_ready_at, now),
    )


def _worker_row(worker: WorkerRecord, now: float) -> Sequence[Cell]:
    return (
        worker.id,
        f"{worker.host} {worker.pid}",
        str(worker.running),
        ", ".join(worker.queues) or "all",
        ago(worker.started_at, now),
        ago(worker.seen_at, now),
    )


def _group_row(group: Group, now: float) -> Sequence[Cell]:
    error = short(f"{group.error_name}: {group.message}", 80)
    return str(group.count), group.failure_type.value, error, ago(group.last_at, now), group.fingerprint
