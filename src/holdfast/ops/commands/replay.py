"""`holdfast dlq replay` and what steers it: groups of dead letters back to the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from holdfast.app import App
from holdfast.app.messages import check_arguments
from holdfast.errors import Invalid
from holdfast.ops.api.hiding import has_hidden
from holdfast.ops.commands.filters import count_of, letter_filters, resolved
from holdfast.ops.commands.lazy import FAILED, Failed, Unusable
from holdfast.ops.commands.output import echo_json, hint, print_table, say, state
from holdfast.ops.commands.reading import object_of, only_one
from holdfast.ops.commands.record import as_fields, print_record, store_now
from holdfast.ops.commands.tables import Column
from holdfast.ops.commands.target import on_store
from holdfast.ops.commands.topics import rate_of, refuse_beside_topic, replay_topic, to_topic_option
from holdfast.ops.redact import HIDDEN
from holdfast.ops.text import ago, many, short
from holdfast.runtime.inbox import Filters
from holdfast.runtime.replay import Replay, ReplayState
from holdfast.runtime.replays import Preview
from holdfast.types import JobRecord

_LOOK_S: Final = 0.5
_OVER: Final = (ReplayState.DONE, ReplayState.STOPPED)
_COLUMNS: Final = (
    Column("id", prefix=13),
    Column("state"),
    Column("sent", is_number=True),
    Column("skipped", is_number=True, goes=1),
    Column("canaries", goes=2),
    Column("begun", goes=3),
    Column("why", least=12, goes=4),
)


@click.command("replay")
@letter_filters
@click.option(
    "--topic",
    default="",
    metavar="NAME",
    help="Out of a DLQ topic of the app's streams, such as orders.dlq, or of the stream of this name; needs --app.",
)
@click.option("--limit", type=click.IntRange(min=1), help="With --topic: at most so many. [all]")
@to_topic_option
@click.option("--all", "is_all", is_flag=True, help="Every dead letter; needed where no filter is given.")
@click.option("--canary", type=click.IntRange(min=0), default=0, help="So many first; the others once these completed.")
@click.option("--rate", help="At most so many: 100/minute, 5/second, or a number a second. [as fast as it goes]")
@click.option(
    "--edit",
    type=object_of,
    metavar="JSON",
    help="A JSON merge patch for the arguments: null removes one; with --app checked.",
)
@click.option("--dry-run", is_flag=True, help="Only count, and show a few.")
@click.option("--wait", "is_waiting", is_flag=True, help="Show how far it is, until it is done or has stopped.")
@on_store
def start(
    app: App,
    filters: dict[str, Any],
    topic: str,
    limit: int | None,
    to_topic: bool,
    is_all: bool,
    canary: int,
    rate: str | None,
    edit: dict[str, Any] | None,
    dry_run: bool,
    is_waiting: bool,
    as_json: bool,
) -> None:
    """Send a group, or whatever the filters say, back to the queue.

    A replay is durable: the workers do it, whoever dies on the way, and each letter goes at most once. It stops by
    itself when a canary fails with the cause it had, or is given up for another. `dlq replays`, `pause`, `resume` and
    `stop` look after it. --canary does not go with --to-topic: nobody is told what becomes of a message there.

    With --topic it replays what is in a DLQ topic and was not replayed yet, by this command itself: from the inbox
    what that has, and all else out of the topic, also what was removed from the inbox. Run again, it goes on with the
    rest. --type, --limit, --rate, --to-topic and --dry-run go with it.

    \b
    Example:
      holdfast dlq replay --group 1:6f02 --canary 5 --rate 100/minute --wait
      holdfast dlq replay --task shop.charge --edit '{"cents": 5}' --dry-run
      holdfast dlq replay --topic orders.dlq --app shop:app
    """  # noqa: D301 - click wants the backspace itself
    if topic:
        foreign = {**filters, "all": is_all, "canary": canary, "edit": edit is not None, "wait": is_waiting}
        refuse_beside_topic(foreign)
        kind = filters.get("failure_type")
        replay_topic(app, topic, kind, limit, rate_of(rate), to_topic=to_topic, dry_run=dry_run, as_json=as_json)
        return
    if limit is not None:
        raise Unusable("--limit goes with --topic; of the inbox --canary sends so many first")
    if not filters and not is_all:
        raise Unusable("which dead letters? Give --group or another filter, or --all")
    which = resolved(app, filters)
    if not count_of(app, which):
        raise Failed("no dead letters match")
    if edit is not None:
        refuse_hidden(edit)
        _refuse_unfit_edit(app, edit, which)
    found = app.dead_letters.replay(
        edit=edit, canary=canary, rate=rate_of(rate), dry_run=dry_run, to_topic=to_topic, **which
    )
    if isinstance(found, Preview):
        _tell_preview(app, found, as_json)
        return
    has_worker = bool(app.stats(0).workers)
    if not has_worker:
        hint("no worker is running: the replay begins when one is there")
    if not is_waiting:
        if as_json:
            echo_json(_fields(found))
        else:
            say(f"replay {found.id} of {many(found.total, 'dead letter')} has begun")
        return
    _wait(app, found, as_json)


@click.command("replays")
@on_store
def list_replays(app: App, as_json: bool) -> None:
    """Every replay, newest first, and how far it is.

    \b
    Example:
      holdfast dlq replays
    """  # noqa: D301 - click wants the backspace itself
    replays = app.dead_letters.replays()
    if as_json:
        echo_json({"items": [_fields(one) for one in replays]})
        return
    if not replays:
        hint("no replays")
        return
    now = store_now(app)
    rows = [
        [
            one.id,
            state(one.state.value),
            f"{one.sent}/{one.total}",
            str(one.skipped),
            one.verdict or "-",
            ago(one.created_at, now),
            short(one.why, 100),
        ]
        for one in replays
    ]
    print_table(_COLUMNS, rows)


@click.command("pause")
@click.argument("ID")
@on_store
def pause(app: App, id: str, as_json: bool) -> None:  # noqa: A002
    """Let a replay send nothing more until it is resumed.

    \b
    Example:
      holdfast dlq pause 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    _steer(app, id, app.dead_letters.pause_replay, ReplayState.PAUSED, as_json)


@click.command("resume")
@click.argument("ID")
@on_store
def resume(app: App, id: str, as_json: bool) -> None:  # noqa: A002
    """Let a replay go on where it was paused.

    \b
    Example:
      holdfast dlq resume 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    _steer(app, id, app.dead_letters.resume_replay, ReplayState.RUNNING, as_json)


@click.command("stop")
@click.argument("ID")
@on_store
def stop(app: App, id: str, as_json: bool) -> None:  # noqa: A002
    """End a replay: what was sent stays sent, the others stay dead letters.

    \b
    Example:
      holdfast dlq stop 01930b2c-7d1e-7a44-9c55-2f1f0a4c9d10
    """  # noqa: D301 - click wants the backspace itself
    _steer(app, id, app.dead_letters.stop_replay, ReplayState.STOPPED, as_json)


def refuse_unfit(app: App, letter: JobRecord, payload: bytes) -> None:
    """Arguments that the task or the stream cannot take are refused here, where it is known, and not by a worker."""
    try:
        check_arguments(app, letter, payload)
    except Invalid as error:
        raise Unusable(f"dead letter {letter.id}: {error}") from error


def refuse_hidden(edit: dict[str, Any]) -> None:
    """What is shown in a secret's place would be written in its place."""
    if has_hidden(edit):
        raise Unusable(f"--edit: a value in it reads {HIDDEN}; leave out what is to stay as it is")


def _refuse_unfit_edit(app: App, edit: dict[str, Any], which: Filters) -> None:
    """The same for an edit, by a sample: the newest letters."""
    preview = app.dead_letters.replay(edit=edit, dry_run=True, **which)
    if isinstance(preview, Preview):
        for letter in preview.sample:
            refuse_unfit(app, letter, letter.payload)


COMMANDS: Final = (start, list_replays, pause, resume, stop)


def _steer(app: App, given: str, change: Callable[[str], Replay], wanted: ReplayState, as_json: bool) -> None:
    ids = [one.id for one in app.dead_letters.replays()]
    found = given if given in ids else only_one(given, [one for one in ids if one.startswith(given)], "replay")
    replay = change(found)
    if as_json:
        echo_json(_fields(replay))
    elif replay.state is wanted:
        say(f"replay {replay.id} is {replay.state.value}")
    if replay.state is not wanted:
        raise Failed(f"replay {replay.id} has ended already: it is {replay.state.value}")


def _tell_preview(app: App, preview: Preview, as_json: bool) -> None:
    if as_json:
        echo_json({"total": preview.total, "sample": [as_fields(one) for one in preview.sample]})
        return
    say(f"{many(preview.total, 'dead letter')} would go back to the queue; the newest of them, as they would go:")
    now = store_now(app)
    for record in preview.sample:
        click.echo()
        print_record(record, now)


def _wait(app: App, replay: Replay, as_json: bool) -> None:
    """Look until it has ended; the exit code is 1 when it has stopped."""
    if not as_json:
        say(f"replay {replay.id} of {many(replay.total, 'dead letter')} has begun")
    try:
        with _bar(replay.total, is_shown=not as_json) as move:
            while replay.state not in _OVER:
                app.clock.sleep(_LOOK_S)
                replay = next(one for one in app.dead_letters.replays() if one.id == replay.id)
                move(replay)
    except KeyboardInterrupt:
        hint(f"not waiting any more; the replay goes on: holdfast dlq stop {replay.id}")
        raise
    if as_json:
        echo_json(_fields(replay))
    else:
        skipped = f", {replay.skipped} skipped" if replay.skipped else ""
        say(f"{replay.state.value}: {replay.sent} of {replay.total} sent{skipped}")
    if replay.state is not ReplayState.DONE:
        hint(f"it has stopped: {replay.why}")
        click.get_current_context().exit(FAILED)


@contextmanager
def _bar(total: int, *, is_shown: bool) -> Iterator[Callable[[Replay], None]]:
    """A progress bar, on a terminal only."""
    from rich.console import Console  # noqa: PLC0415 - rich costs 50 ms, and only a wait needs it
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True)
    if not is_shown or not console.is_terminal:
        yield lambda replay: None
        return
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("sent", total=total)

        def move(replay: Replay) -> None:
            waits = " (waiting for the canaries)" if replay.verdict == "waiting" else ""
            word = "paused" if replay.state is ReplayState.PAUSED else f"sent{waits}"
            progress.update(task, completed=replay.sent + replay.skipped, description=word)

        yield move


def _fields(replay: Replay) -> dict[str, Any]:
    query = replay.query
    filters = {
        "group": query.fingerprint,
        "task": query.task,
        "tenant": query.tenant,
        "failure_type": query.failure_type,
        "since": query.since,
        "text": query.text,
    }
    names = "id state why total sent skipped verdict canary rate created_at ended_at".split()
    return {name: getattr(replay, name) for name in names} | {
        "filters": {name: value for name, value in filters.items() if value not in (None, "")}
    }
