"""Rings as answers: what is user-made goes out without secrets."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.ops.api.ring_schemas import ConsumerAnswer, RingAnswer, RingList
from holdfast.ops.api.shapes import cut
from holdfast.ops.redact import redacted_text
from holdfast.runtime.rings import ConsumerView, RingView


def rings_of(views: Iterable[RingView]) -> RingList:
    """Every ring."""
    return RingList.model_construct(items=[ring_of(view) for view in views])


def ring_of(view: RingView) -> RingAnswer:
    """A ring in one process, with its consumers."""
    return RingAnswer.model_construct(
        name=view.name,
        worker=view.worker,
        host=view.host,
        pid=view.pid,
        seen_at=view.seen_at,
        size=view.size,
        used=view.used,
        utilisation=round(view.utilisation, 4),
        produced=view.produced,
        rate_per_s=round(view.rate_per_s, 3),
        blocked=view.blocked,
        memory_bytes=view.memory_bytes,
        is_closing=view.is_closing,
        consumers=[consumer_of(one) for one in view.consumers],
    )


def consumer_of(view: ConsumerView) -> ConsumerAnswer:
    """A consumer; what it waits for and why its checkpoint fails are user-made."""
    return ConsumerAnswer.model_construct(
        name=view.name,
        after=list(view.after),
        state=view.state,
        doing=cut(redacted_text(view.doing)),
        running_s=round(view.running_s, 3),
        lag=view.lag,
        processed=view.processed,
        rate_per_s=round(view.rate_per_s, 3),
        batches=view.batches,
        batch=view.batch,
        batch_s=round(view.batch_s, 6),
        mean_s=None if view.mean_s is None else round(view.mean_s, 6),
        slowest_s=round(view.slowest_s, 6),
        errors=view.errors,
        retries=view.retries,
        given_up=view.given_up,
        dead_letters=view.dead_letters,
        in_inbox=view.in_inbox,
        offset=None if view.offset is None else str(view.offset),
        checkpoint_error=cut(redacted_text(view.checkpoint_error)),
    )
