"""What is written of messages that do not simply end well: letters for the inbox, the DLQ, and the retry topics."""

from __future__ import annotations

from holdfast.policy.steps import step_for
from holdfast.ports import Settlement
from holdfast.runtime.streams.deliveries import with_retries
from holdfast.runtime.streams.letters import letter_of
from holdfast.runtime.streams.passage import Passage, dlq_topic, retry_topic, to_dlq, to_retry
from holdfast.runtime.streams.spec import MessageDelivery, StreamSpec
from holdfast.runtime.streams.texts import HISTORY_BYTES
from holdfast.types import Attempt, Change, NewJob, Outgoing


def history_of(delivery: MessageDelivery, settlement: Settlement) -> tuple[Attempt, ...]:
    """All attempts, the one that was just settled last."""
    return delivery.history if settlement.attempt is None else (*delivery.history, settlement.attempt)


def marked(spec: StreamSpec, delivery: MessageDelivery, settlement: Settlement) -> list[NewJob]:
    """Of a message that was replayed from the inbox and has ended well: what its record becomes there."""
    if not delivery.letter:
        return []
    message = delivery.messages[0]
    return [
        letter_of(
            message,
            group=spec.group,
            task=spec.name,
            queue=spec.task.queue,
            attempts=(),
            reason=settlement.reason,
            keep_s=spec.task.result_keep_s,
            change=settlement.change,
            carried_id=delivery.letter,
        )
    ]


def buried(
    spec: StreamSpec, delivery: MessageDelivery, settlement: Settlement, now: float
) -> tuple[list[NewJob], list[Outgoing]]:
    """The letters of messages that are given up, and their copies for the DLQ."""
    history = history_of(delivery, settlement)
    last = history[-1] if history else Attempt(number=delivery.attempt, started_at=now, ended_at=now)
    letters, copies = [], []
    for message in delivery.messages:
        letter = letter_of(
            message,
            group=spec.group,
            task=spec.name,
            queue=spec.task.queue,
            attempts=history,
            reason=settlement.reason,
            keep_s=spec.task.dead_letter_keep_s,
            change=Change.BURY,
            carried_id=delivery.letter,
        )
        letters.append(letter)
        copies.append(
            to_dlq(
                message,
                topic=dlq_topic(spec.topic),
                group=spec.group,
                attempt=last,
                retry_count=delivery.retries,
                letter_id=letter.id,
            )
        )
    return letters, copies


def retried(
    spec: StreamSpec,
    delivery: MessageDelivery,
    settlement: Settlement,
    now: float,
    *,
    history_bytes: int = HISTORY_BYTES,
) -> list[Outgoing]:
    """Messages on their way to the retry topic of their delay, with so much of their history at most."""
    topic = retry_topic(spec.topic, spec.group, step_for(spec.steps, settlement.delay_s))
    history = history_of(delivery, settlement)
    return [
        to_retry(
            Passage(
                message=with_retries(message, delivery.retries + 1),
                attempt=delivery.attempt + 1,
                elapsed_s=settlement.elapsed_s,
                due_at=now + settlement.delay_s,
                attempts=history,
                letter=delivery.letter,
                group=spec.group,
            ),
            topic,
            history_bytes=history_bytes,
        )
        for message in delivery.messages
    ]
