"""Carries replayed letters of a stream back to a topic: a job of the worker, with retries of its own."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from msgspec.structs import replace

from holdfast.errors import Invalid, NotSent, SourceError
from holdfast.policy.classify import classify
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Delivery, Source, Store
from holdfast.runtime.payload import Arguments
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.letters import Letter, carried, letter_id, read_letter
from holdfast.runtime.streams.passage import dlq_topic, is_own_topic, marker
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.types import Failure, FailureContext, FailureType, Outgoing, Snooze

_logger = logging.getLogger("holdfast.worker")

_UNTIL_HANDLED_S: Final = 7 * 86_400.0
"""So long a letter that was sent waits for whoever handles it; then its topic has forgotten it: it is sent again."""
_RETRY: Final = RetryPolicy(max_retries=100, initial_delay=0.5, multiplier=2.0, max_delay=60.0, total_timeout=None)

SourceOf = Callable[[StreamSpec], Awaitable[Source]]


def carrier_of(spec: StreamSpec, source_of: SourceOf, store: Store, on_carried: Callable[[str], object]) -> TaskSpec:
    """The task by whose name the stream's letters are in the store; `on_carried` is told the ids of those it sends."""

    async def carry(letter: Letter, delivery: Delivery) -> Snooze | None:
        _refuse_foreign(spec, letter, delivery.id)
        message = carried(letter, delivery.id, topic=spec.topic, attempt=delivery.attempt)
        source = await source_of(spec)
        (record,) = await store.get([delivery.id])
        died_at = 0.0 if record is None else record.last_failed_at or 0.0
        on_carried(delivery.id)
        await source.send([message])
        # Not before it died, by whatever clock: or it would look as if it had died again since.
        at = max(delivery.claimed_at, died_at)
        await _mark(source, marker(dlq_topic(spec.topic), delivery.id, at=at, key=letter.message.key))
        return None if letter.to == "topic" else Snooze(_UNTIL_HANDLED_S, f"sent to {message.topic}")

    return replace(
        spec.task,
        fn=carry,
        is_async=True,
        given=_Letters(),
        retry=_RETRY,
        breaker=None,
        rates={},
        budget=None,
        timeout_s=60.0,
        classify=_classify,
    )


def _refuse_foreign(spec: StreamSpec, letter: Letter, record_id: str) -> None:
    """Invalid for what is no message of this stream: a letter sends nothing to any other place."""
    message = letter.message
    if letter.group != spec.group or not is_own_topic(message.topic, spec.topic, spec.group):
        raise Invalid(f"the letter is of topic {message.topic!r} and group {letter.group!r}, and not of this stream")
    if letter_id(letter.group, message) != record_id:
        raise Invalid("the letter is not of the message that it says: its origin or its timestamp was edited")


async def _mark(source: Source, mark: Outgoing) -> None:
    try:
        await source.send([mark])
    except NotSent as error:  # the message is sent, and that is what counts
        _logger.error("%s takes no marker, so what was replayed may be replayed again: %s", mark.topic, error)


def _classify(error: BaseException, context: FailureContext | None) -> Failure:
    """A message that the server will never take is given up at once; a server is waited for."""
    if isinstance(error, NotSent):
        return Failure(FailureType.PERMANENT, error)
    if isinstance(error, SourceError):
        return Failure(FailureType.NETWORK, error)
    return classify(error, context)


class _Letters:
    """From a job to the letter that it is."""

    def of(self, delivery: Delivery) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (read_letter(delivery.payload), delivery), {}


def letter_arguments() -> Arguments:
    """What the payload of a stream's letter looks like, for whoever edits it."""

    def letter(
        origin: dict[str, Any],
        value: Any,
        key: Any = None,
        headers: Any = None,
        timestamp: float = 0.0,
        to: Literal["retry", "topic"] = "retry",
        is_gone: bool = False,
        exact_secret: str | None = None,
    ) -> None:
        """Nothing is called with it."""

    return Arguments(letter, skip_first=False)
