"""Replays of messages: out of a DLQ topic, and to the topic they came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from holdfast.app import App
from holdfast.ops.commands.lazy import Unusable
from holdfast.ops.commands.output import echo_json, hint, say
from holdfast.ops.text import many
from holdfast.runtime.streams.origins import message_origin
from holdfast.types import JobRecord

to_topic_option = click.option(
    "--to-topic", is_flag=True, help="Messages go to their original topic, where every group sees them."
)
"""`--to-topic`."""


def refuse_beside_topic(given: dict[str, Any]) -> None:
    """What only the inbox can do is not passed over in silence."""
    wrong = [name for name, value in given.items() if value and name != "failure_type"]
    if wrong:
        raise Unusable(f"--{wrong[0]} does not go with --topic: leave it out, or replay from the inbox")


def replay_topic(
    app: App,
    topic: str,
    failure_type: str | None,
    limit: int | None,
    rate: float | str | None,
    *,
    to_topic: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """`holdfast dlq replay --topic`."""
    if not app.stream_specs:
        raise Unusable("--topic needs the app whose streams they are: give --app as module:app or file.py:app")
    done = app.dead_letters.replay_topic(
        topic, failure_type=failure_type, limit=limit, rate=rate, to_topic=to_topic, dry_run=dry_run
    )
    if as_json:
        echo_json(done)
        return
    would = "would go" if dry_run else "went"
    say(
        f"{done.topic}: {many(done.found, 'letter')} not replayed yet; {done.queued} {would} back by way of the inbox, "
        f"{done.sent} out of the topic"
    )
    if done.passed:
        hint(f"{many(done.passed, 'letter')} left alone: under way, ended, or nothing to send")
    if done.foreign:
        hint(f"{many(done.foreign, 'record')} of other groups, or not ours")
    if done.queued and not dry_run and not app.stats(0).workers:
        hint("no worker is running: those of the inbox go when one is there")


def refuse_jobs(letters: Sequence[JobRecord]) -> None:
    """Only messages have a topic to go to."""
    for letter in letters:
        if message_origin(letter) is None:
            raise Unusable(f"--to-topic is for messages, and {letter.id} is a job of {letter.task}")


def rate_of(text: str | None) -> float | str | None:
    """`--rate`: a number a second, or words such as 100/minute, which are read later."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text
