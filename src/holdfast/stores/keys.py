"""What becomes of new jobs whose ids are known or whose idempotency keys are held; and the scope in which one holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import structs

from holdfast.ports import Enqueued
from holdfast.types import JobState, NewJob

_QUEUED: Final = JobState.QUEUED
_BY_TIME: Final = "7"
"""The version of such UUIDs, in its place."""

Holder = tuple[str, bytes, JobState]
"""Of an idempotency key: the job's id, its first payload and where it stands."""


def scope_of(job: NewJob) -> str | None:
    """Tenant, task and idempotency key in one text; no two different ones make the same."""
    key = job.idempotency_key
    return None if key is None else f"{len(job.tenant)}:{job.tenant}{len(job.task)}:{job.task}{key}"


def may_be_known(jobs: Iterable[NewJob]) -> bool:
    """Whether these are worth a look before they are added: an id that is not made of the time may well be known."""
    return any(job.id[14:15] != _BY_TIME for job in jobs)


def decide(
    jobs: Sequence[NewJob], known: Mapping[str, JobState], holders: Mapping[str, Holder]
) -> tuple[list[Enqueued], list[NewJob]]:
    """What to answer for these jobs, and which of them to add: none, when a key is taken by another payload.

    `known` are those of their ids that are taken, `holders` those of their scopes.
    """
    states, holding = dict(known), dict(holders)
    answers: list[Enqueued] = []
    added: list[NewJob] = []
    for job in jobs:
        scope = scope_of(job)
        if job.id in states:
            answers.append(Enqueued(job.id, is_new=False, state=states[job.id]))
        elif scope is not None and scope in holding:
            holder, payload, state = holding[scope]
            answers.append(Enqueued(holder, is_new=False, is_conflict=payload != job.payload, state=state))
        else:
            answers.append(Enqueued(job.id))
            added.append(job)
            states[job.id] = _QUEUED
            if scope is not None:
                holding[scope] = (job.id, job.payload, _QUEUED)
    if any(answer.is_conflict for answer in answers):
        return [structs.replace(one, is_new=False) for one in answers], []
    return answers, added
