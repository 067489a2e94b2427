"""`holdfast jobs`: every job in the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from holdfast.app import App
from holdfast.ops.commands.lazy import FAILED, Failed
from holdfast.ops.commands.output import echo_json, hint, is_sure, print_table, say, yes_option
from holdfast.ops.commands.reading import cursor_option, full_id, full_task, gathered, limit_option, when_of
from holdfast.ops.commands.record import ROW, as_fields, print_record, row, store_now
from holdfast.ops.commands.target import ViewGroup, on_store, show_first, store_options
from holdfast.ops.text import many
from holdfast.ports import Changed
from holdfast.types import JobState


@click.group(cls=ViewGroup)
@store_options
@click.pass_context
def jobs(ctx: click.Context, /, **options: Any) -> None:
    """Every job in the store: list, show, retry, cancel, prune.

    Alone it lists the newest.

    \b
    Example:
      holdfast jobs list --state running
    """  # noqa: D301 - click wants the backspace itself
    show_first(ctx, **options)


@jobs.command("list")
@click.option(
    "--state", "states", multiple=True, type=click.Choice([one.value for one in JobState]), help="May be repeated."
)
@click.option("--task", default="", help="Of this task; the last part of its name will do.")
@click.option("--queue", default="", help="Of this queue.")
@click.option("--tenant", help="Of this tenant.")
@click.option("--user", default="", help="Of this user.")
@click.option("--project", default="", help="Of this project.")
@click.option(
    "--since", type=when_of, metavar="WHEN", help="Ended, or else enqueued, since then: 2h, or 2025-11-16T10:00."
)
@click.option("--text", default="", help="Part of the id, task, error, message, reason, payload or key.")
@limit_option
@cursor_option
@on_store
def list_jobs(
    app: App,
    /,
    states: Sequence[str],
    since: timedelta | datetime | None,
    limit: int,
    cursor: str,
    as_json: bool,
    **filters: Any,
) -> None:
    """Jobs, newest first.

    \b
    Example:
      holdfast jobs list --state dead_letter --task shop.charge --since 2h
    """  # noqa: D301 - click wants the backspace itself
    if filters["task"]:
        filters["task"] = full_task(app, filters["task"])
    page = gathered(
        lambda most, at: app.jobs.list(states=states, since=since, limit=most, cursor=at, **filters), limit, cursor
    )
    if as_json:
        echo_json({"items": [as_fields(record) for record in page.items], "cursor": page.cursor})
        return
    if not page.items:
        hint("no jobs")
        return
    now = store_now(app)
    print_table(ROW, [row(record, now) for record in page.items])
    if page.cursor:
        hint(f"there are more: --cursor {page.cursor}")


@jobs.command("show")
@click.argument("ID")
@on_store
def show_job(app: App, id: str, as_json: bool) -> None:  # noqa: A002
    """All that is known of a job: arguments, result, every attempt with its traceback.

    The beginning of the ID will do where it is the only one. Secrets are left out, by their names.

    \b
    Example:
      holdfast jobs show 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    record = app.jobs.get(full_id(app, id)).record
    if as_json:
        echo_json(as_fields(record, has_attempts=True))
    else:
        print_record(record, store_now(app))


@jobs.command("retry")
@click.argument("ID", nargs=-1, required=True)
@on_store
def retry_jobs(app: App, id: Sequence[str], as_json: bool) -> None:  # noqa: A002
    """Send dead letters back to the queue, with new attempts.

    \b
    Example:
      holdfast jobs retry 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    ids = [full_id(app, one, is_dead=True) for one in id]
    tell_changes([app.dead_letters.retry(one) for one in ids], "queued again", "only dead letters can be", as_json)


@jobs.command("cancel")
@click.argument("ID", nargs=-1, required=True)
@on_store
def cancel_jobs(app: App, id: Sequence[str], as_json: bool) -> None:  # noqa: A002
    """Cancel jobs that have not ended; one that runs is told within seconds.

    \b
    Example:
      holdfast jobs cancel 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    changes = app.jobs.cancel([full_id(app, one) for one in id])
    tell_changes(changes, "cancelled", "what has ended cannot be", as_json)


@jobs.command("prune")
@yes_option
@on_store
def prune_jobs(app: App, is_yes: bool, as_json: bool) -> None:
    """Delete the records whose time to be kept is over; workers do it by themselves each minute.

    \b
    Example:
      holdfast jobs prune --yes
    """  # noqa: D301 - click wants the backspace itself
    if not is_sure("Delete the records whose time to be kept is over?", is_yes):
        raise Failed("nothing was deleted")
    pruned = app.prune()
    if as_json:
        echo_json({"deleted": pruned})
    else:
        say(f"{many(pruned, 'record')} deleted")


def tell_changes(changes: Sequence[Changed], done: str, refused: str, as_json: bool) -> None:
    """What became of each id; the exit code is 1 unless all took effect."""
    if as_json:
        echo_json({"items": changes})
    else:
        for one in changes:
            if one.is_done:
                say(f"{one.id} {done}")
            elif one.state is None:
                hint(f"{one.id} is not there")
            else:
                hint(f"{one.id} is {one.state.value}: {refused} {done}")
    if not all(one.is_done for one in changes):
        click.get_current_context().exit(FAILED)
