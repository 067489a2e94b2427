"""Remembers new jobs: all of a call or none, each id once, each idempotency key once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import msgpack

from holdfast.errors import ConfigError
from holdfast.ports import Enqueued
from holdfast.stores.ends import BEHIND_S
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.call import Texts as CallTexts
from holdfast.stores.redis.ends import end_rows
from holdfast.stores.redis.places import owner_marks
from holdfast.stores.redis.scripts import ENQUEUE, ENQUEUE_ENDED
from holdfast.stores.redis.state import STATES, Texts, rank_of
from holdfast.stores.refusals import has_ends
from holdfast.types import NewJob

_LaneKey = tuple[str, str, tuple[str, ...]]
_MOST: Final = 100_000
_encode = msgpack.Encoder().encode


def enqueue_call(jobs: Sequence[NewJob], texts: Texts) -> Call[list[Enqueued]]:
    """The call that adds those that are new, or none of them when an idempotency key is taken by another payload.

    Those that come with their end, end with it.
    """
    if len(jobs) > _MOST:
        raise ConfigError(
            f"{len(jobs)} new jobs are too many for one call: they go all or none, and the server does nothing else "
            f"meanwhile; send at most {_MOST}"
        )
    lanes: dict[_LaneKey, int] = {}
    rows: list[tuple[Any, ...]] = []
    payloads: list[bytes] = []
    is_any_ended = has_ends(jobs)
    for job in jobs:
        lane = (job.queue, job.task, job.gates)
        number = lanes.get(lane)
        if number is None:
            number = lanes[lane] = len(lanes) + 1
        delay_s = job.delay_s if job.delay_s > 0.0 else 0.0
        row = (job.id, number, rank_of(job.priority), delay_s, job.idempotency_key is not None)
        owners = job.tenant or job.user or job.project
        rows.append((*row, owner_marks(job.tenant, job.user, job.project)) if owners else row)
        payloads.append(texts.pack(job))
    names = [_encode((queue, task, *sorted(set(gates)))) for queue, task, gates in lanes]
    if not is_any_ended:
        return Call(ENQUEUE, (len(names), rows), lambda reply: _answers(jobs, reply), [*names, *payloads])
    words = CallTexts([*names, *payloads])
    ends = end_rows(jobs, words)
    return Call(ENQUEUE_ENDED, (len(names), rows, ends, BEHIND_S), lambda reply: _answers(jobs, reply), words)


def _answers(jobs: Sequence[NewJob], reply: list[Any]) -> list[Enqueued]:
    if not reply:
        return [Enqueued(job.id) for job in jobs]
    signs, ids, states = reply[::3], reply[1::3], reply[2::3]
    is_refused = b"c" in signs
    return [
        Enqueued(id.decode(), is_new=sign == b"n" and not is_refused, is_conflict=sign == b"c", state=STATES[state])
        for sign, id, state in zip(signs, ids, states, strict=True)  # noqa: A001
    ]
