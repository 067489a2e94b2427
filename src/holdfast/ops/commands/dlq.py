"""`holdfast dlq`: the inbox of work that was given up; find the cause, mend it, send it back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click
import msgspec

from holdfast.app import App
from holdfast.errors import Invalid
from holdfast.ops.api.hiding import unhidden
from holdfast.ops.commands import carry, replay, topics
from holdfast.ops.commands.filters import count_of, letter_filters, resolved
from holdfast.ops.commands.jobs import tell_changes
from holdfast.ops.commands.lazy import Failed, Unusable
from holdfast.ops.commands.output import echo_json, hint, is_sure, print_table, say, yes_option
from holdfast.ops.commands.reading import cursor_option, full_id, gathered, length_of, limit_option, object_of
from holdfast.ops.commands.record import as_fields, print_record, store_now
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import ViewGroup, on_store, show_first, store_options
from holdfast.ops.redact import without_secrets
from holdfast.ops.text import ago, length, many, short
from holdfast.types import Group

_LETTER_COLUMNS: Final = (
    Column("id", prefix=13),
    Column("task"),
    Column("type", goes=2),
    Column("attempts", is_number=True, goes=1),
    Column("given up", goes=3),
    Column("error", least=12, goes=4),
)


@click.group(cls=ViewGroup)
@store_options
@click.pass_context
def dlq(ctx: click.Context, /, **options: Any) -> None:
    """Dead letters: work that was given up, by cause.

    Alone it shows the groups: one for each cause, the largest first.

    \b
    Example:
      holdfast dlq
      holdfast dlq replay --group 1:6f02 --canary 5
    """  # noqa: D301 - click wants the backspace itself
    show_first(ctx, **options)


@dlq.command("groups")
@letter_filters
@on_store
def list_groups(app: App, filters: dict[str, Any], as_json: bool) -> None:
    """The dead letters by cause, the largest group first.

    \b
    Example:
      holdfast dlq groups --since 2h
    """  # noqa: D301 - click wants the backspace itself
    groups = [without_secrets(group) for group in app.dead_letters.groups(**resolved(app, filters))]
    if as_json:
        echo_json({"items": groups})
        return
    if not groups:
        hint("no dead letters")
        return
    now = store_now(app)
    rows = [
        [
            str(group.count),
            group.failure_type.value,
            short(f"{group.error_name}: {group.message}", 100),
            short(", ".join(group.tasks), 60),
            ago(group.first_at, now),
            ago(group.last_at, now),
            group.fingerprint,
        ]
        for group in groups
    ]
    print_table(_group_columns(groups), rows)


def _group_columns(groups: Sequence[Group]) -> Sequence[Column]:
    first = max(len(group.tasks[0]) + 3 * (len(group.tasks) > 1) if group.tasks else 0 for group in groups)
    return (
        Column("count", is_number=True),
        Column("type", goes=2),
        Column("error", least=20, goes=4),
        Column("tasks", least=first),
        Column("first", goes=1),
        Column("last", goes=3),
        Column("group", prefix=10),
    )


@dlq.command("list")
@letter_filters
@limit_option
@cursor_option
@on_store
def list_letters(app: App, filters: dict[str, Any], limit: int, cursor: str, as_json: bool) -> None:
    """Dead letters, newest first.

    \b
    Example:
      holdfast dlq list --task shop.charge --type network --limit 20
    """  # noqa: D301 - click wants the backspace itself
    which = resolved(app, filters)
    page = gathered(lambda most, at: app.dead_letters.list(limit=most, cursor=at, **which), limit, cursor)
    if as_json:
        echo_json({"items": [as_fields(record) for record in page.items], "cursor": page.cursor})
        return
    if not page.items:
        hint("no dead letters")
        return
    now = store_now(app)
    rows = [
        [
            record.id,
            record.task,
            record.failure_type.value if record.failure_type else "-",
            str(record.attempt),
            ago(record.ended_at, now),
            short(f"{record.error_name}: {record.message}" if record.error_name else record.reason, 100),
        ]
        for record in map(without_secrets, page.items)
    ]
    print_table(_LETTER_COLUMNS, rows)
    if page.cursor:
        hint(f"there are more: --cursor {page.cursor}")


@dlq.command("show")
@click.argument("ID")
@on_store
def show_letter(app: App, id: str, as_json: bool) -> None:  # noqa: A002
    """A dead letter with its arguments and every attempt's traceback.

    The beginning of the ID will do where it is the only one. Secrets are left out, by their names.

    \b
    Example:
      holdfast dlq show 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    record = app.dead_letters.get(full_id(app, id, is_dead=True))
    if as_json:
        echo_json(as_fields(record, has_attempts=True))
    else:
        print_record(record, store_now(app))


@dlq.command("retry")
@click.argument("ID", nargs=-1, required=True)
@click.option(
    "--payload",
    type=object_of,
    metavar="JSON",
    help="Other arguments, all of them, as a JSON object. The original ones are kept.",
)
@topics.to_topic_option
@on_store
def retry_letters(
    app: App,
    id: Sequence[str],  # noqa: A002
    payload: dict[str, Any] | None,
    to_topic: bool,
    as_json: bool,
) -> None:
    """Send dead letters back to the queue, with new attempts; a message goes to its own group's retry topic.

    \b
    Example:
      holdfast dlq retry 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
      holdfast dlq retry 01930b2c --payload '{"order_id": 42, "cents": 5}'
    """  # noqa: D301 - click wants the backspace itself
    if payload is not None and len(id) > 1:
        raise Unusable("--payload is for one ID; `dlq replay --edit` changes many")
    ids = [full_id(app, one, is_dead=True) for one in id]
    if payload is not None:
        letter = app.dead_letters.get(ids[0])
        payload = _whole(payload, letter.payload)
        replay.refuse_unfit(app, letter, msgspec.json.encode(payload))
    if to_topic:
        topics.refuse_jobs([app.dead_letters.get(one) for one in ids])
    changes = [app.dead_letters.retry(one, payload, to_topic=to_topic) for one in ids]
    tell_changes(changes, "queued again", "only dead letters can be", as_json)


def _whole(payload: dict[str, Any], stored: bytes) -> dict[str, Any]:
    """The arguments that were given, where what still reads as `dlq show` has it keeps its hidden value."""
    try:
        return unhidden(payload, stored)
    except Invalid as error:
        raise Unusable(f"--payload: {error}") from error


@dlq.command("remove")
@click.argument("ID", nargs=-1, required=True)
@yes_option
@on_store
def remove_letters(app: App, id: Sequence[str], is_yes: bool, as_json: bool) -> None:  # noqa: A002
    """Delete dead letters for good.

    The copy of a message that is in its DLQ topic stays there, and `dlq replay --topic` would bring it back.

    \b
    Example:
      holdfast dlq remove 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10 --yes
    """  # noqa: D301 - click wants the backspace itself
    ids = [full_id(app, one, is_dead=True) for one in id]
    if not is_sure(f"Delete {many(len(ids), 'dead letter')} for good?", is_yes):
        raise Failed("nothing was deleted")
    tell_changes([app.dead_letters.remove(one) for one in ids], "deleted", "only dead letters can be", as_json)


@dlq.command("purge")
@click.option(
    "--older-than",
    type=length_of,
    metavar="TIME",
    required=True,
    help="Given up longer ago than this: 24h, 7d; 0 is all of them.",
)
@letter_filters
@yes_option
@on_store
def purge_letters(app: App, older_than: float, filters: dict[str, Any], is_yes: bool, as_json: bool) -> None:
    """Delete old dead letters for good.

    \b
    Example:
      holdfast dlq purge --older-than 7d --task shop.charge
      holdfast dlq purge --older-than 24h --yes
    """  # noqa: D301 - click wants the backspace itself
    which = resolved(app, filters)
    edge = store_now(app) - older_than
    count = count_of(app, which | {"until": edge})
    if count and not is_sure(f"Delete {many(count, 'dead letter')} older than {length(older_than)} for good?", is_yes):
        raise Failed("nothing was deleted")
    removed = app.dead_letters.purge(older_than, **which) if count else 0
    if as_json:
        echo_json({"deleted": removed})
    else:
        say(f"{many(removed, 'dead letter')} deleted")


for _command in (*replay.COMMANDS, *carry.COMMANDS):
    dlq.add_command(_command)
