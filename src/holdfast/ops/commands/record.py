"""A job or a dead letter, as people read it and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
from msgspec.structs import asdict

from holdfast.app import App
from holdfast.ops.commands.output import state
from holdfast.ops.commands.tables import Cell, Column
from holdfast.ops.redact import origin_shown, shown, without_secrets
from holdfast.ops.text import ago, block, instant, length, many, plain, short
from holdfast.ports import Exchange
from holdfast.runtime.ring_origins import ring_origin
from holdfast.runtime.streams.origins import message_origin
from holdfast.types import Attempt, JobRecord, JobState

_NO_VALUES = 2**62  # newer than every version
_COMPLETED = JobState.COMPLETED


def store_now(app: App) -> float:
    """The instant now, on the store's clock."""
    return app.bridge.run(app.store.exchange(Exchange(seen=_NO_VALUES))).now


def as_fields(record: JobRecord, *, has_attempts: bool = False) -> dict[str, Any]:
    """Every field, with payloads and the result as JSON without secrets."""
    record = without_secrets(record)
    fields = asdict(record)
    del fields["notes"]
    for name in ("payload", "original_payload", "result"):
        fields[name] = shown(fields[name])
    fields["origin"] = origin_shown(record)
    fields["attempts"] = [asdict(one) | {"duration_s": one.duration_s} for one in record.attempts]
    if not has_attempts:
        del fields["attempts"]
    return fields


def row(record: JobRecord, now: float) -> list[Cell]:
    """A line of a list of jobs; `ROW` names the columns."""
    record = without_secrets(record)
    is_failing = record.error_name and record.state is not _COMPLETED  # what has healed since is no reason
    why = f"{record.error_name}: {record.message}" if is_failing else record.reason
    return [
        record.id,
        record.task,
        state(record.state.value),
        record.queue,
        str(record.attempt),
        ago(record.created_at, now),
        short(why, 100),
    ]


ROW = (
    Column("id", prefix=13),
    Column("task"),
    Column("state"),
    Column("queue", goes=1),
    Column("attempts", is_number=True, goes=2),
    Column("enqueued", goes=3),
    Column("why", least=12, goes=4),
)
"""The columns of a list of jobs."""


def print_record(record: JobRecord, now: float) -> None:
    """All that is known of it."""
    record = without_secrets(record)
    click.secho(plain(f"{record.task}  {record.id}"), bold=True)
    for name, text in _facts(record, now):
        if text:
            click.echo(f"  {name:<12} {plain(text)}")
    _print_value("payload", record.payload)
    _print_value("original payload", record.original_payload)
    _print_value("result", record.result)
    for attempt in record.attempts:
        _print_attempt(attempt)


def _facts(record: JobRecord, now: float) -> Iterator[tuple[str, str]]:
    is_over = record.state.is_terminal
    yield "state", record.state.value + (f": {record.reason}" if record.reason else "")
    yield "queue", record.queue + (f", priority {record.priority}" if record.priority else "")
    if (origin := message_origin(record)) is not None:
        yield "message", f"{origin.topic}, partition {origin.partition}, offset {origin.offset}"
        yield "consumer", f"group {origin.group}"
    if (place := ring_origin(record)) is not None:
        offset = "" if place.offset is None else f", offset {place.offset}"
        yield "ring", f"{place.ring}, consumer {place.consumer}"
        yield "batch", f"{place.batch}{offset}, {many(place.count, 'element')}"
    if (page := origin_shown(record))["kind"] == "page":
        found = f", found on {page['referrer']}" if page["referrer"] else ""
        yield "crawl", page["crawl"]
        yield "page", page["url"]
        yield "depth", f"{page['depth']}{found}"
    yield "tenant", record.tenant
    yield "user", record.user
    yield "project", record.project
    yield "key", record.idempotency_key or ""
    yield "enqueued", _when(record.created_at, now)
    yield "due", "" if is_over or record.due_at <= record.created_at else _when(record.due_at, now)
    yield "started", _when(record.started_at, now)
    yield "ended", _when(record.ended_at, now)
    yield "attempts", str(record.attempt)
    yield "progress", "" if record.progress is None else f"{record.progress:.0%}"
    yield "replays", str(record.replays) if record.replays else ""
    yield "worker", record.worker
    yield "trace", record.trace or ""
    if record.failure_type is not None and record.state is _COMPLETED:
        last = f"{record.failure_type.value}: {record.error_name}: {record.message}"
        yield "last failure", f"{_when(record.last_failed_at, now)} {last}"
    elif record.failure_type is not None:
        severity = f", {record.severity.value}" if record.severity else ""
        yield "failure", f"{record.failure_type.value}{severity}"
        yield "error", f"{record.error_name}: {record.message}"
        yield "group", record.fingerprint
        yield "first failed", _when(record.first_failed_at, now)
        yield "last failed", _when(record.last_failed_at, now)


def _when(at: float | None, now: float) -> str:
    return "" if at is None else f"{instant(at)} ({ago(at, now)})"


def _print_value(name: str, data: bytes | None) -> None:
    if data is None:
        return
    click.secho(f"\n{name}", bold=True)
    value = shown(data)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)
    click.echo(_indented(block(text)))


def _print_attempt(attempt: Attempt) -> None:
    click.secho(f"\nattempt {attempt.number}: {attempt.outcome.value}", bold=True)
    click.echo(
        f"  {instant(attempt.started_at)}, ran {length(attempt.duration_s)}, worker {plain(attempt.worker) or '-'}"
    )
    if attempt.failure_type is not None:
        breaker = f", breaker {attempt.breaker}" if attempt.breaker else ""
        again = "" if attempt.delay_s is None else f", again after {length(attempt.delay_s)}"
        click.echo(f"  {attempt.failure_type.value}{breaker}{again}, group {plain(attempt.fingerprint)}")
    if attempt.traceback:
        click.echo(_indented(block(attempt.traceback.rstrip("\n"))))
    elif attempt.error_name:
        click.echo(f"  {plain(attempt.error_name)}: {plain(attempt.message)}")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
