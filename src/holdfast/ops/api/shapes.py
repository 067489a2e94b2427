"""Records as answers: what is user-made goes out without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, TypeAlias

from holdfast.ops.api import schemas
from holdfast.ops.api.frames import frames_of
from holdfast.ops.api.hiding import Hidden, hidden
from holdfast.ops.redact import origin_shown, redacted_text
from holdfast.policy.breaker import BreakerConfig
from holdfast.ports import Changed, WorkerRecord
from holdfast.runtime.replay import Replay
from holdfast.runtime.schedules import ScheduleStatus
from holdfast.runtime.shared.by_hand import BreakerView
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.views import StreamView
from holdfast.types import Attempt, Group, JobRecord

Origin: TypeAlias = schemas.JobOrigin | schemas.MessageOrigin | schemas.RingOrigin | schemas.PageOrigin
"""Where a record came from."""

_ORIGINS: Final[Mapping[str, type[Origin]]] = {
    "job": schemas.JobOrigin,
    "message": schemas.MessageOrigin,
    "ring": schemas.RingOrigin,
    "page": schemas.PageOrigin,
}
_LARGEST_SAMPLE: Final = 65_536
_LARGEST_AT_ONCE: Final = 32_768
_LONGEST_TEXT: Final = 500


def summary_of(record: JobRecord) -> schemas.JobSummary:
    """A job as lists show it."""
    return schemas.JobSummary.model_construct(**_summary(record))


def _summary(record: JobRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "task": record.task,
        "queue": record.queue,
        "state": record.state.value,
        "priority": record.priority,
        "tenant": record.tenant,
        "user": redacted_text(record.user),
        "project": redacted_text(record.project),
        "created_at": record.created_at,
        "due_at": record.due_at,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "attempt": record.attempt,
        "reason": redacted_text(record.reason),
        "progress": record.progress,
        "failure_type": None if record.failure_type is None else record.failure_type.value,
        "severity": None if record.severity is None else record.severity.value,
        "error_name": record.error_name,
        "message": redacted_text(record.message),
        "fingerprint": record.fingerprint,
        "first_failed_at": record.first_failed_at,
        "last_failed_at": record.last_failed_at,
        "replays": record.replays,
        "worker": record.worker,
        "origin": origin_of(record),
    }


def origin_of(record: JobRecord) -> Origin:
    """Whether it is a job, a message, elements of a ring or a page, and which."""
    fields = origin_shown(record)
    return _ORIGINS[fields["kind"]].model_construct(**fields)


def job_of(
    record: JobRecord, arguments_schema: dict[str, Any] | None, *, most_bytes: int | None = None
) -> schemas.JobAnswer:
    """A whole job. most_bytes: what is larger is left out, with a note in its place."""
    arguments = _bounded(record.payload, most_bytes)
    return schemas.JobAnswer.model_construct(
        **_summary(record),
        idempotency_key=None if record.idempotency_key is None else redacted_text(record.idempotency_key),
        arguments=arguments.value,
        original_arguments=_bounded(record.original_payload, most_bytes).value,
        result=_bounded(record.result, most_bytes).value,
        attempts=[attempt_of(one) for one in record.attempts],
        trace=record.trace,
        arguments_schema=arguments_schema,
        redacted=list(arguments.pointers),
    )


async def whole_job_of(record: JobRecord, arguments_schema: dict[str, Any] | None) -> schemas.JobAnswer:
    """A whole job; a large one is looked through for secrets in a thread, so that others are answered meanwhile."""
    texts = sum(len(one.traceback) + len(one.message) for one in record.attempts)
    size = texts + sum(len(data or b"") for data in (record.payload, record.original_payload, record.result))
    if size <= _LARGEST_AT_ONCE:
        return job_of(record, arguments_schema)
    return await asyncio.to_thread(job_of, record, arguments_schema)


def sample_of(record: JobRecord, arguments_schema: dict[str, Any] | None) -> schemas.JobAnswer:
    """One of several letters that are shown together: of no more than 64 kB."""
    return job_of(record, arguments_schema, most_bytes=_LARGEST_SAMPLE)


def _bounded(data: bytes | None, most_bytes: int | None) -> Hidden:
    if data is not None and most_bytes is not None and len(data) > most_bytes:
        return Hidden(f"[{len(data):,} bytes, left out here]")
    return hidden(data)


def attempt_of(attempt: Attempt) -> schemas.AttemptAnswer:
    """One run of a job."""
    traceback = redacted_text(attempt.traceback)
    return schemas.AttemptAnswer.model_construct(
        number=attempt.number,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        duration_s=attempt.duration_s,
        worker=attempt.worker,
        outcome=attempt.outcome.value,
        failure_type=None if attempt.failure_type is None else attempt.failure_type.value,
        severity=None if attempt.severity is None else attempt.severity.value,
        error_name=attempt.error_name,
        message=redacted_text(attempt.message),
        traceback=traceback,
        frames=[
            schemas.FrameAnswer.model_construct(text=text, is_user_code=is_users)
            for text, is_users in frames_of(traceback)
        ],
        fingerprint=attempt.fingerprint,
        delay_s=attempt.delay_s,
        breaker=attempt.breaker,
    )


def changed_of(changed: Changed) -> schemas.ChangedAnswer:
    """What became of one job."""
    state = None if changed.state is None else changed.state.value
    return schemas.ChangedAnswer.model_construct(id=changed.id, is_done=changed.is_done, state=state)


def group_of(group: Group) -> schemas.GroupAnswer:
    """Dead letters with one cause."""
    return schemas.GroupAnswer.model_construct(
        fingerprint=group.fingerprint,
        count=group.count,
        tasks=list(group.tasks),
        tenants=list(group.tenants),
        failure_type=group.failure_type.value,
        severity=group.severity.value,
        error_name=group.error_name,
        message=redacted_text(group.message),
        first_at=group.first_at,
        last_at=group.last_at,
        sample_id=group.sample_id,
        hours=list(group.hours),
    )


def replay_of(replay: Replay) -> schemas.ReplayAnswer:
    """A replay, and how far it is."""
    return schemas.ReplayAnswer.model_construct(
        id=replay.id,
        state=replay.state.value,
        verdict=replay.verdict,
        reason=redacted_text(replay.why),
        group=replay.query.fingerprint,
        task=replay.query.task,
        tenant=replay.query.tenant,
        canary=replay.canary,
        rate=replay.rate,
        total=replay.total,
        sent=replay.sent,
        created_at=replay.created_at,
    )


def breaker_of(view: BreakerView, specs: Mapping[str, TaskSpec]) -> schemas.BreakerAnswer:
    """A shared breaker, with its settings where a task of this app has it."""
    users = [spec for spec in specs.values() if spec.breaker == view.key]
    config = users[0].breaker_config if users else None
    return schemas.BreakerAnswer.model_construct(
        key=view.key,
        state=view.mode.value,
        failures=view.failures,
        until_at=view.until,
        retry_after_s=view.retry_after,
        cause=None if view.cause is None else redacted_text(view.cause),
        trips=view.trips,
        tasks=sorted(spec.name for spec in users),
        failure_threshold=None if config is None else config.failure_threshold,
        recovery_timeout_s=None if config is None else config.recovery_timeout,
        half_open_max_calls=None if config is None else config.half_open_max_calls,
        window="" if config is None else window_words(config),
    )


def window_words(config: BreakerConfig) -> str:
    """What opens a breaker, in words."""
    over = ""
    if isinstance(config.window, timedelta):
        over = f"within {config.window.total_seconds():g} s"
    elif config.window is not None:
        over = f"of {config.window} calls"
    words = [f"{config.failure_threshold} in a row"] if config.failure_rate is None else []
    if config.failure_rate is not None:
        words = [f"{config.failure_rate * 100:g} % {over}"]
    if config.slow_rate is not None:
        words.append(f"{config.slow_rate * 100:g} % slow {over}")
    return " or ".join(words)


def worker_of(worker: WorkerRecord) -> schemas.WorkerAnswer:
    """A worker, with its counts since it started."""
    return schemas.WorkerAnswer.model_construct(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        queues=list(worker.queues),
        running=worker.running,
        started_at=worker.started_at,
        seen_at=worker.seen_at,
        lease_s=worker.lease_s,
        completed=worker.counts.get("completed", 0),
        retried=worker.counts.get("retried", 0),
        failed=worker.counts.get("failed", 0),
        tasks_per_second=tasks_per_second(worker),
    )


def tasks_per_second(worker: WorkerRecord) -> float:
    """Attempts that a worker has ended, a second, since it started."""
    ended = sum(worker.counts.get(name, 0) for name in ("completed", "retried", "failed"))
    lived_s = worker.seen_at - worker.started_at
    return round(ended / lived_s, 3) if lived_s > 0 else 0.0


def streams_of(views: Iterable[StreamView]) -> schemas.StreamList:
    """Every stream."""
    return schemas.StreamList.model_construct(items=[stream_of(view) for view in views])


def stream_of(view: StreamView) -> schemas.StreamAnswer:
    """A stream with its partitions; keys and errors are user-made."""
    return schemas.StreamAnswer.model_construct(
        name=view.name,
        group=view.group,
        topic=view.topic,
        location=redacted_text(view.location),
        workers=view.workers,
        lag=view.lag,
        in_flight=view.in_flight,
        rate_per_s=view.rate_per_s,
        dead_letters=view.dead_letters,
        last_error=cut(redacted_text(view.last_error)),
        last_error_at=view.last_error_at,
        away=cut(redacted_text(view.away)),
        partitions=[
            schemas.PartitionAnswer.model_construct(
                topic=one.topic,
                partition=one.partition,
                worker=one.worker,
                position=one.position,
                lag=one.lag,
                in_flight=one.in_flight,
                buffered=one.buffered,
                paused=cut(redacted_text(one.paused)),
                stuck_id=one.stuck_id,
                stuck_key=cut(redacted_text(one.stuck_key)),
                stuck_s=round(one.stuck_s, 3),
            )
            for one in view.partitions
        ],
    )


def cut(text: str) -> str:
    """A text of no more than 500 characters."""
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def schedule_of(status: ScheduleStatus) -> schemas.ScheduleAnswer:
    """A schedule of the app."""
    return schemas.ScheduleAnswer.model_construct(
        name=status.name,
        task=status.task,
        timing=status.timing,
        next_at=status.next_at,
        last_at=status.last_at,
        is_paused=status.is_paused,
    )


def task_of(spec: TaskSpec, arguments_schema: dict[str, Any]) -> schemas.TaskAnswer:
    """A task that the app has registered."""
    return schemas.TaskAnswer.model_construct(
        name=spec.name,
        queue=spec.queue,
        priority=spec.priority,
        breaker=spec.breaker,
        timeout_s=spec.timeout_s,
        max_retries=spec.retry.max_retries,
        arguments_schema=arguments_schema,
    )


def groups_of(groups: Iterable[Group]) -> schemas.GroupList:
    """The inbox, by cause."""
    items = [group_of(group) for group in groups]
    return schemas.GroupList.model_construct(items=items, total=sum(one.count for one in items))
