"""Reads whole jobs for people, with or without their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, msgpack

from holdfast.ports import Query
from holdfast.stores.history import whole
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.deliveries import notes_of
from holdfast.stores.redis.scripts import FIND, GET
from holdfast.stores.redis.state import STATES, Head, Texts, read_head, worker_and_result
from holdfast.types import Attempt, FailureType, JobRecord, Severity

AT_ONCE: Final = 250


class _Failure(Struct, array_like=True):
    type: FailureType
    severity: Severity | None
    error_name: str
    message: str
    fingerprint: str
    at: float


_decode_failure = msgpack.Decoder(_Failure).decode
_decode_attempt = msgpack.Decoder(Attempt).decode


def get_call(ids: Sequence[str], texts: Texts) -> Call[dict[str, JobRecord]]:
    """The whole records of those that are there, by id, with every attempt and all that was noted."""

    def read(reply: list[Any]) -> dict[str, JobRecord]:
        found: dict[str, JobRecord] = {}
        for row in reply:
            attempts, settled = [_decode_attempt(text) for text in row[4]], Head(*read_head(row[2])).settled
            notes = notes_of(row[5]) if row[5] else None
            record = whole(_to_record(row, texts), attempts, notes, settled)
            found[record.id] = record
        return found

    return Call(GET, (ids,), read)


def look_call(query: Query, ids: Sequence[str], limit: int, texts: Texts) -> Call[list[JobRecord]]:
    """Look at these jobs, in their order; most of those that the query does not mean are left out.

    Once so many are found it stops, unless the query asks for what is seen only in the whole record.
    """
    wanted = [state in query.states for state in STATES] if query.states else None
    is_seen_here = not (query.text or query.fingerprint or query.failure_type)

    def read(reply: list[Any]) -> list[JobRecord]:
        return [_to_record(row, texts) for row in reply]

    facts = {4: query.tenant, 5: query.user or None, 6: query.project or None}
    words = (ids, limit if is_seen_here else len(ids), wanted, query.queue, query.task, query.since, query.until)
    return Call(FIND, (*words, {place: fact for place, fact in facts.items() if fact is not None}), read)


def _to_record(row: Sequence[Any], texts: Texts) -> JobRecord:
    id, text, state, more, *_ = row  # noqa: A001
    before, facts = texts.unpack(text)
    payload = text[len(before) :]
    head = Head(*read_head(state))
    worker, result = worker_and_result(state)
    reason, failed, first_failed_at, edited, progress, replays = more or (None,) * 6
    failure = None if failed is None else _decode_failure(failed)
    state_now = STATES[head.state]
    return JobRecord(
        id=id.decode(),
        task=facts.task,
        payload=payload if edited is None else edited,
        state=state_now,
        queue=facts.queue,
        priority=facts.priority,
        tenant=facts.tenant,
        user=facts.user,
        project=facts.project,
        idempotency_key=facts.key,
        created_at=head.created_at,
        due_at=head.due_at,
        started_at=None if head.started_at < 0 else head.started_at,
        ended_at=head.changed_at if state_now.is_terminal else None,
        attempt=head.attempt,
        reason="" if reason is None else reason.decode(),
        result=result if head.has_result else None,
        progress=None if progress is None else float(progress),
        failure_type=failure.type if failure else None,
        severity=failure.severity if failure else None,
        error_name=failure.error_name if failure else "",
        message=failure.message if failure else "",
        fingerprint=failure.fingerprint if failure else "",
        first_failed_at=None if first_failed_at is None else float(first_failed_at),
        last_failed_at=failure.at if failure else None,
        original_payload=None if edited is None else payload,
        replays=int(replays or 0),
        worker=worker,
        trace=facts.trace,
    )
