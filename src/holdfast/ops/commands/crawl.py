"""`holdfast crawl`: run crawls, look at them, take their items out, and forget them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from holdfast.app import App
from holdfast.ops.commands import crawl_letters
from holdfast.ops.commands.crawl_replay import replay
from holdfast.ops.commands.crawl_run import run
from holdfast.ops.commands.crawl_views import CRAWLS, DOMAINS, crawl_row, domain_row, facts, fields, shown_view, view_of
from holdfast.ops.commands.lazy import Failed
from holdfast.ops.commands.output import echo_json, hint, is_sure, print_table, say, yes_option
from holdfast.ops.commands.record import store_now
from holdfast.ops.commands.target import on_store, store_options
from holdfast.ops.commands.unnamed import UnnamedGroup
from holdfast.ops.text import many


def _is_place(word: str) -> bool:
    """Whether a word may be meant as the URL of a page, and not as a command."""
    return any(one in word for one in ".:/")


@click.group(cls=UnnamedGroup, unnamed="run", is_meant=_is_place)
@store_options
@click.pass_context
def crawl(ctx: click.Context, /, **options: Any) -> None:
    """Crawls: run, list, show, export, remove; their dead letters, and replays of kept pages.

    With a URL, or an option of `run`, it crawls. Alone it lists the crawls of the store.

    \b
    Example:
      holdfast crawl https://example.org --depth 3 --out pages.jsonl
      holdfast crawl
    """  # noqa: D301 - click wants the backspace itself
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_crawls, **options)


crawl.add_command(run)


@crawl.command("list")
@on_store
def list_crawls(app: App, as_json: bool) -> None:
    """Every crawl that the store knows of, with how far it is and how many processes are on it.

    \b
    Example:
      holdfast crawl list --url sqlite:///shop.db
    """  # noqa: D301 - click wants the backspace itself
    views = [shown_view(view) for view in app.crawls.list()]
    if as_json:
        echo_json({"items": [fields(view) for view in views]})
    elif not views:
        hint("no crawls; holdfast crawl https://example.org starts one")
    else:
        now = store_now(app)
        print_table(CRAWLS, [crawl_row(view, now) for view in views])


@crawl.command("show")
@click.argument("NAME")
@on_store
def show(app: App, name: str, as_json: bool) -> None:
    """One crawl: where it began, how far it is, its processes, and what its domains are at.

    \b
    Example:
      holdfast crawl show example.org
    """  # noqa: D301 - click wants the backspace itself
    view = shown_view(view_of(app, name))
    if as_json:
        echo_json(fields(view))
        return
    click.secho(view.name, bold=True)
    for label, text in facts(view, store_now(app)):
        if text:
            say(f"  {label:<10} {text}")
    domains = [one for process in view.processes for one in process.domains]
    if domains:
        print_table(DOMAINS, [domain_row(one) for one in domains])


@crawl.command("export")
@click.argument("NAME")
@click.option("--out", metavar="FILE", default="-", help="A .jsonl or .db file; - is standard output. [-]")
@on_store
def export(app: App, name: str, out: str, as_json: bool) -> None:
    """Write all items of a crawl, whether or not it has come to its end.

    A FILE that has items of this crawl gets what it lacks, each item once; a run with the same --out goes on with it.

    \b
    Example:
      holdfast crawl export example.org --out pages.db
      holdfast crawl export example.org | jq .title
    """  # noqa: D301 - click wants the backspace itself
    from holdfast.crawl.exporting import export_items  # noqa: PLC0415 - the extra, which looking does not need

    view_of(app, name)
    exported = app.bridge.run(export_items(app.store, name, out))
    if as_json:
        echo_json(exported, err=out == "-")
    elif out != "-":
        say(f"{many(exported.pages, 'page')} in {exported.file}, {exported.new} of them new")


@crawl.command("remove")
@click.argument("NAME")
@yes_option
@on_store
def remove(app: App, name: str, is_yes: bool, as_json: bool) -> None:
    """Forget a crawl: cancel what is pending, and delete its pages, dead letters and settings for good.

    Not while a process is on it. Files of items stay. When it is interrupted, the same command removes the rest.

    \b
    Example:
      holdfast crawl remove example.org --yes
    """  # noqa: D301 - click wants the backspace itself
    from holdfast.crawl.removing import remove_crawl  # noqa: PLC0415 - the extra, which looking does not need

    view = view_of(app, name)
    total = view.done + view.pending + view.dead + view.skipped
    pending = f", {view.pending} of them pending" if view.pending else ""
    if not is_sure(f"Delete {many(total, 'page')} of the crawl {name}{pending}, for good?", is_yes):
        raise Failed("nothing was removed")
    with _bar(total) as move:
        removed = app.bridge.run(remove_crawl(app.store, name, on_progress=move))
    if as_json:
        echo_json({"removed": removed})
    else:
        say(f"the crawl {name} is removed: {many(removed, 'page')}")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar, on a terminal only."""
    from rich.console import Console  # noqa: PLC0415 - rich costs 50 ms, and looking may do without it
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("removed", total=total)
        yield lambda done: progress.update(task, completed=done)


for _command in (*crawl_letters.COMMANDS, replay):
    crawl.add_command(_command)
