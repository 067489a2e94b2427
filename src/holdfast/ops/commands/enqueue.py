"""`holdfast enqueue`: a job from the command line."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.app import App, Task
from holdfast.ops.commands.lazy import Unusable
from holdfast.ops.commands.output import echo_json, say
from holdfast.ops.commands.reading import length_of, near, object_of
from holdfast.ops.commands.target import json_option, load_app, opened


@click.command()
@click.argument("TARGET")
@click.argument("TASK")
@click.argument("ARGUMENTS", type=object_of, default="{}")
@click.option("--queue", help="Instead of the task's own.")
@click.option("--priority", type=int, help="A higher one runs first. [the task's own]")
@click.option("--delay", type=length_of, metavar="TIME", help="Not before so long from now: 90s, 5m, 2h.")
@click.option("--idempotency-key", help="A second job with the same key, tenant and task is the first.")
@click.option("--tenant", default="", help="Whose job it is.")
@click.option("--user", default="", help="Whose job it is.")
@click.option("--project", default="", help="Whose job it is.")
@json_option
def enqueue(target: str, task: str, arguments: dict[str, Any], as_json: bool, **options: Any) -> None:
    """Make a durable job of one call.

    TARGET is module:app or file.py:app. TASK is a task's name; its last part will do where it is the only one.
    ARGUMENTS is a JSON object with the arguments by name, checked against the task's types; `-` reads it from standard
    input.

    \b
    Example:
      holdfast enqueue shop:app charge '{"order_id": 42, "cents": 1999}'
      holdfast enqueue shop:app charge '{"order_id": 42, "cents": 1999}' --delay 5m --idempotency-key order-42
    """  # noqa: D301 - click wants the backspace itself
    app = load_app(target)
    found = task_of(app, task)
    args, kwargs = found.spec.arguments.decode(msgspec.json.encode(arguments))
    with_options = found.options(**options)
    with opened(app, may_create=True):
        job = with_options.enqueue(*args, **kwargs)
        if not job.is_new:
            job.refresh()
    if as_json:
        fields = {"id": job.id, "task": found.name, "queue": job.record.queue, "state": job.state.value}
        echo_json(fields | {"is_new": job.is_new})
    elif job.is_new:
        say(f"enqueued {found.name} as {job.id}")
    else:
        say(f"there already by its idempotency key: {found.name} {job.id}, {job.state.value}")


def task_of(app: App, name: str) -> Task[Any, Any, Any]:
    """The task of this name, or whose name ends so; Failed lists near ones."""
    if name in app.tasks:
        return app.tasks[name]
    ending = [task for known, task in app.tasks.items() if known.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        names = " or ".join(sorted(task.name for task in ending))
        raise Unusable(f"{name!r} could be several tasks: {names}")
    raise Unusable(f"no task is named {name!r}: {near(name, app.tasks)}")
