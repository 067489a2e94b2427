"""Crawls as people and programs read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict, replace

from holdfast.app import App
from holdfast.errors import NotFound
from holdfast.ops.commands.lazy import Failed
from holdfast.ops.commands.output import STYLES
from holdfast.ops.commands.reading import near
from holdfast.ops.commands.tables import Cell, Column
from holdfast.ops.redact import crawl_shown, redacted_text
from holdfast.ops.text import ago, instant, length, short
from holdfast.ports import DomainReport
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.crawls import CrawlView

CRAWLS: Final = (
    Column("crawl"),
    Column("state"),
    Column("done", is_number=True),
    Column("pending", is_number=True),
    Column("waiting", is_number=True, goes=3),
    Column("given up", is_number=True),
    Column("skipped", is_number=True, goes=2),
    Column("in flight", is_number=True, goes=4),
    Column("pages/s", is_number=True, goes=7),
    Column("ETA", is_number=True, goes=6),
    Column("processes", is_number=True, goes=1),
    Column("started", goes=5),
)
"""The columns of a list of crawls."""
DOMAINS: Final = (
    Column("domain"),
    Column("in flight", is_number=True),
    Column("fetched", is_number=True),
    Column("failed", is_number=True, goes=4),
    Column("refused", is_number=True, goes=3),
    Column("latency", is_number=True, goes=2),
    Column("interval", is_number=True, goes=1),
    Column("left alone", least=12, goes=5),
)
"""The columns of a list of domains."""
_STATES: Final = {"running": STYLES["running"], "stopped": STYLES["paused"], "finished": STYLES["done"]}


def view_of(app: App, name: str) -> CrawlView:
    """The crawl of this name; Failed says which there are."""
    try:
        return app.crawls.get(name)
    except NotFound as error:
        known = [view.name for view in app.crawls.list()]
        raise Failed(f"{error}; {near(name, known)}") from error


def shown_view(view: CrawlView) -> CrawlView:
    """The same without secrets: URLs are people's own."""
    processes = tuple(crawl_shown(one) for one in view.processes)
    return replace(view, seeds=tuple(map(redacted_text, view.seeds)), processes=processes)


def fields(view: CrawlView) -> dict[str, Any]:
    """As JSON."""
    return asdict(view) | {"eta_s": view.eta_s}


def crawl_row(view: CrawlView, now: float) -> Sequence[Cell]:
    """A line of the list; `CRAWLS` names the columns."""
    return [
        view.name,
        (view.state, _STATES[view.state]),
        f"{view.done:,}",
        f"{view.pending:,}",
        f"{view.waiting:,}",
        f"{view.dead:,}",
        f"{view.skipped:,}",
        f"{view.in_flight:,}",
        f"{view.rate_per_s:.1f}" if view.processes else "",
        "" if view.eta_s is None else length(view.eta_s),
        str(len(view.processes)),
        ago(view.started_at or None, now),
    ]


def facts(view: CrawlView, now: float) -> Iterator[tuple[str, str]]:
    """What there is to say of one, with labels; those without a text are left out."""
    ended = f" {ago(view.finished_at, now)}" if view.finished_at is not None else ""
    yield "state", view.state + ended
    yield "from", short(", ".join(view.seeds), 300)
    yield "started", f"{instant(view.started_at)} ({ago(view.started_at, now)})" if view.started_at else ""
    yield "done", f"{view.done:,}"
    waiting = f", {view.waiting:,} of them wait for a time" if view.waiting else ""
    yield "pending", f"{view.pending:,}{waiting}"
    yield "in flight", f"{view.in_flight:,}" if view.processes else ""
    yield "given up", f"{view.dead:,}: holdfast dlq --task {queue_of(view.name)}" if view.dead else ""
    yield "skipped", f"{view.skipped:,}" if view.skipped else ""
    eta = "" if view.eta_s is None else f", ETA {length(view.eta_s)}"
    yield "rate", f"{view.rate_per_s:.1f} pages/s{eta}" if view.processes else ""
    for one in view.processes:
        output = f", items to {one.output}" if one.output else ""
        problem = f", which cannot be written: {one.output_error}" if one.output_error else ""
        yield "process", f"{one.host} {one.pid}, seen {ago(one.seen_at, now)}{output}{problem}"


def domain_row(one: DomainReport) -> Sequence[Cell]:
    """A line of the list of domains; `DOMAINS` names the columns."""
    return [
        one.domain,
        str(one.in_flight),
        f"{one.fetched:,}",
        f"{one.failed:,}",
        f"{one.refused:,}",
        "-" if one.latency_s is None else f"{one.latency_s:.2f}s",
        f"{one.interval_s:.2f}s",
        short(f"for {length(one.held_s)}: {one.why}", 100) if one.held_s > 0.0 else "",
    ]
