"""The command line: `holdfast`."""

from __future__ import annotations

import json
import signal
import sys
from typing import TYPE_CHECKING, Final

import click

from holdfast.ops.commands.lazy import Later, LazyGroup

if TYPE_CHECKING:
    from holdfast.ops.demo import Tell

_HERE: Final = "holdfast.ops.commands"
LATER: Final = {
    "dev": Later(f"{_HERE}.worker", "dev", "A worker, the HTTP API and the page; starts again when a file changes."),
    "worker": Later(f"{_HERE}.worker", "worker", "Run the jobs and the streams of an app, until told to stop."),
    "serve": Later(f"{_HERE}.serve", "serve", "The HTTP API and the page of an app, until told to stop."),
    "enqueue": Later(f"{_HERE}.enqueue", "enqueue", "Make a durable job of one call."),
    "jobs": Later(f"{_HERE}.jobs", "jobs", "Every job in the store: list, show, retry, cancel, prune."),
    "dlq": Later(f"{_HERE}.dlq", "dlq", "Dead letters: work that was given up, by cause."),
    "breakers": Later(f"{_HERE}.breakers", "breakers", "Circuit breakers: list, reset, force-open, disable."),
    "queues": Later(f"{_HERE}.queues", "queues", "Queues: list, pause, resume."),
    "streams": Later(f"{_HERE}.streams", "streams", "Streams: list, lag."),
    "rings": Later(f"{_HERE}.rings", "rings", "Rings: list, checkpoints, reset."),
    "crawl": Later(
        f"{_HERE}.crawl",
        "crawl",
        "Crawls: run, list, show, export, remove; their dead letters, and replays of kept pages.",
    ),
    "schedules": Later(f"{_HERE}.schedules", "schedules", "Schedules of an app: list, pause, resume."),
    "token": Later(f"{_HERE}.token", "token", "Tokens for the HTTP API: new, check."),
    "top": Later(f"{_HERE}.top", "top", "States, rates, queues, breakers, workers and causes, live."),
    "doctor": Later(
        f"{_HERE}.doctor",
        "doctor",
        "Look at Python, SQLite, the store, the workers and the work, and say what would help.",
    ),
}


@click.group(cls=LazyGroup, later=LATER, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="holdfast")
def main() -> None:
    """Fault-tolerant processing for Python.

    \b
    Example:
      holdfast dev shop:app
      holdfast enqueue shop:app charge '{"order_id": 42}'
      holdfast dlq
    """  # noqa: D301 - click wants the backspace itself


@main.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of the story.")
def demo(as_json: bool) -> None:
    """A shop through an outage, a killed worker and a bug, told live: nothing is lost.

    Takes less than a minute and needs nothing but this machine. It begins with the address of the live page; on a
    terminal the shop goes on trading with its page up until Ctrl-C, otherwise it exits by itself: 0 when every promise
    was kept, 1 when one was not.

    \b
    Example:
      holdfast demo
      holdfast demo --json | tail -n 1
    """  # noqa: D301 - click wants the backspace itself
    from holdfast.ops.demo import Demo  # noqa: PLC0415 - the other commands do not need it

    for number in (signal.SIGTERM, signal.SIGHUP):  # its server and worker must not outlive it
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    one = Demo(_tell_json if as_json else _story_teller(), stays=not as_json and sys.stdout.isatty())
    is_kept = one.run()
    if as_json:
        click.echo(json.dumps({"kind": "end", "kept": is_kept, "broken": one.surprises}))
    elif is_kept:
        click.secho("Every promise was kept.", fg="green")
    for promise in one.surprises:
        click.secho(f"Not as promised: {promise}", fg="red", err=True)
    sys.exit(0 if is_kept else 1)


def _tell_json(kind: str, line: str) -> None:
    click.echo(json.dumps({"kind": kind, "text": line}))


def _story_teller() -> Tell:
    from rich.console import Console  # noqa: PLC0415 - rich costs 50 ms, and --json does not need it

    console = Console(highlight=False, soft_wrap=True)
    styles = {"scene": "bold", "event": "yellow", "result": "cyan", "summary": "bold green"}
    indents = {"event": "    ", "result": "  "}

    def tell(kind: str, line: str) -> None:
        if kind != "status":
            console.print(indents.get(kind, "") + line, style=styles[kind], markup=False)
        elif console.is_terminal:
            console.print(
                f"    {line}"[: console.width - 1].ljust(console.width - 1), style="dim", markup=False, end="\r"
            )

    return tell
