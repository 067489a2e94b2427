"""Which dead letters: the options that `dlq` commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, cast

import click

from holdfast.app import App
from holdfast.ops.commands.reading import full_group, full_task, when_of
from holdfast.runtime.inbox import Filters
from holdfast.types import FailureType


def letter_filters(fn: Callable[..., None]) -> Callable[..., None]:
    """Options for the filters of dead letters; the command is given those that were used, as `filters`."""

    @functools.wraps(fn)
    def command(
        *args: Any,
        task: str,
        failure_type: str | None,
        tenant: str | None,
        since: timedelta | datetime | None,
        text: str,
        group: str,
        **rest: Any,
    ) -> None:
        given = {
            "task": task,
            "failure_type": failure_type,
            "tenant": tenant,
            "since": since,
            "text": text,
            "group": group,
        }
        fn(*args, filters={name: value for name, value in given.items() if value not in (None, "")}, **rest)

    types = click.Choice([one.value for one in FailureType])
    wrapped: Callable[..., None] = command
    for option in (
        click.option("--text", default="", help="Part of the id, task, error, message, reason, payload or key."),
        click.option("--since", type=when_of, metavar="WHEN", help="Given up since then: 2h, or 2025-11-16T10:00."),
        click.option("--tenant", help="Of this tenant."),
        click.option("--type", "failure_type", type=types, help="With this type of failure."),
        click.option("--task", default="", help="Of this task; the last part of its name will do."),
        click.option("--group", default="", help="Of this group: its fingerprint, or the beginning of it."),
    ):
        wrapped = option(wrapped)
    return wrapped


def resolved(app: App, filters: dict[str, Any]) -> Filters:
    """The filters with the whole fingerprint of their group and name of their task; Failed when there is none."""
    if filters.get("group"):
        filters = filters | {"group": full_group(app.dead_letters.groups(), filters["group"])}
    if filters.get("task"):
        filters = filters | {"task": full_task(app, filters["task"])}
    return cast("Filters", filters)


def count_of(app: App, filters: Filters) -> int:
    """How many letters there are of these filters; with a text all must be found, as groups are of the newest alone."""
    if not filters.get("text"):
        return sum(group.count for group in app.dead_letters.groups(**filters))
    count, cursor = 0, ""
    while True:
        page = app.dead_letters.list(limit=1000, cursor=cursor, **filters)
        count, cursor = count + len(page.items), page.cursor
        if not cursor:
            return count
