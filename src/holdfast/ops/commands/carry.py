"""`holdfast dlq export` and `import`: dead letters as lines of JSON, carried elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import click

from holdfast.app import App
from holdfast.ops.commands.filters import count_of, letter_filters, resolved
from holdfast.ops.commands.lazy import FAILED, Failed
from holdfast.ops.commands.output import echo_json, hint, is_sure, say, yes_option
from holdfast.ops.commands.target import on_any_store, on_store
from holdfast.ops.text import many
from holdfast.runtime.export import export_letters
from holdfast.runtime.inbox import Filters, Inbox


@click.command("export")
@click.argument("FILE", default="-")
@letter_filters
@yes_option
@on_store
def export(app: App, file: str, filters: dict[str, Any], is_yes: bool, as_json: bool) -> None:
    """Write dead letters as lines of JSON, with every attempt.

    FILE is standard output by default. An export has everything, secrets too, so that it can be imported again: a FILE
    is made for its owner's eyes alone.

    \b
    Example:
      holdfast dlq export --group 1:6f02 letters.jsonl
      holdfast dlq export | jq .message
    """  # noqa: D301 - click wants the backspace itself
    which = resolved(app, filters)
    if file == "-":
        _write(app, which, sys.stdout)
        return
    path = Path(file)
    if path.exists() and not is_sure(f"Write over {path}?", is_yes):
        raise Failed("nothing was written")
    written = _write_file(app, which, path)
    if as_json:
        echo_json({"exported": written, "file": str(path.absolute())})
    else:
        say(f"{many(written, 'dead letter')} written to {path.absolute()}")


@click.command("import")
@click.argument("FILE", type=click.File("rb"))
@on_any_store
def import_(app: App, file: IO[bytes], as_json: bool) -> None:
    """Enqueue the jobs of exported lines again, under their ids.

    Importing twice makes one job; with a bad line none is made. With --app the jobs get the breakers and limits of
    their tasks, which an export does not have. `-` is standard input.

    \b
    Example:
      holdfast dlq import letters.jsonl --app shop:app
    """  # noqa: D301 - click wants the backspace itself
    imported = app.dead_letters.import_(file)
    if as_json:
        echo_json(imported)
    else:
        say(f"{many(imported.new, 'job')} enqueued, {imported.known} known already")
    if imported.conflicts:
        left_out = ", ".join(imported.conflicts)
        hint(f"left out, as their idempotency keys are taken by jobs with other arguments: {left_out}")
        click.get_current_context().exit(FAILED)


COMMANDS: Final = (export, import_)


def _write_file(app: App, filters: Filters, path: Path) -> int:
    """All or nothing: what is there stays until the new file is whole."""
    half = path.with_name(f".{path.name}.{os.getpid()}.half")
    try:
        with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            with _bar(count_of(app, filters)) as move:
                written = _write(app, filters, out, move)
            out.flush()
            os.fsync(out.fileno())
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return written


def _write(app: App, filters: Filters, out: IO[str], move: Callable[[], None] = lambda: None) -> int:
    async def write() -> int:
        written = 0
        async for line in export_letters(app.store, await Inbox(app.store).query(**filters)):
            out.write(line + "\n")
            written += 1
            move()
        return written

    return app.bridge.run(write())


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar, on a terminal only."""
    from rich.console import Console  # noqa: PLC0415 - rich costs 50 ms, and only a file needs it
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("exported", total=total)
        yield lambda: progress.advance(task)
