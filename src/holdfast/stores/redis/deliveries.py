"""Claimed jobs, as the scripts hand them out."""

from __future__ import annotations

from struct import Struct as Layout
from typing import Any, Final

from holdfast.ports import Delivery
from holdfast.stores.redis.state import NO_FACTS, Head, Texts, read_head, worker_and_result
from holdfast.types import Notes

_STEP: Final = b"step:"
_read_times = Layout(">6xd50xd8xd").unpack_from
"""Of a state: when the job was claimed, is due, and was enqueued."""
_SETTLED: Final = 1
_ORPHAN: Final = 4
"""Their places in a state, which begins with a byte for each."""


def read_deliveries(reply: list[Any], token: bytes, texts: Texts) -> list[Delivery]:
    """All of them, held under this token. Most never ran before: these are made with the least work."""
    ids, jobs, states, more = reply
    deliveries: list[Delivery] = []
    prefix, facts = b" ", NO_FACTS
    for id, job, state in zip(ids, jobs, states, strict=True):  # noqa: A001
        if not job.startswith(prefix):
            prefix, facts = texts.unpack(job)
        claimed_at, due_at, created_at = _read_times(state)
        delivery = Delivery(
            id=id.decode(),
            task=facts.task,
            queue=facts.queue,
            payload=job[len(prefix) :],
            token=token,
            attempt=1,
            created_at=created_at,
            due_at=due_at,
            claimed_at=claimed_at,
        )
        if facts.is_special:
            delivery.tenant, delivery.user, delivery.project = facts.tenant, facts.user, facts.project
            delivery.trace = facts.trace
        if state[_SETTLED] or state[_ORPHAN]:
            _add_history(delivery, state)
        deliveries.append(delivery)
    for place, fields in zip(more[::2], more[1::2], strict=True):
        head = Head(*read_head(states[place - 1]))
        _add_more(deliveries[place - 1], head, fields)
    return deliveries


def notes_of(fields: list[bytes]) -> Notes:
    """What a job has remembered, among all the names and values that are known of it beside its state."""
    more = dict(zip(fields[::2], fields[1::2], strict=True))
    steps = {name[len(_STEP) :].decode(): data for name, data in more.items() if name.startswith(_STEP)}
    return Notes(more.get(b"checkpoint"), steps)


def _add_history(delivery: Delivery, state: bytes) -> None:
    head = Head(*read_head(state))
    delivery.attempt = head.attempt
    delivery.retries = head.retries
    delivery.elapsed_s = head.elapsed_s
    delivery.is_suspect = head.is_suspect == 1
    delivery.orphaned = head.orphaned
    if head.is_orphan:
        delivery.is_alone = head.is_alone == 1
        delivery.worker, _ = worker_and_result(state)


def _add_more(delivery: Delivery, head: Head, fields: list[bytes]) -> None:
    more = dict(zip(fields[::2], fields[1::2], strict=True))
    if head.is_edited:
        delivery.payload = more[b"payload"]
    if head.is_orphan and more.get(b"blame"):
        delivery.blame = more[b"blame"].decode()
        delivery.is_alone = True
    if head.has_notes:
        delivery.notes = notes_of(fields)
