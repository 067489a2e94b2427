"""Carries replayed letters of a stream back to a topic: a job of the worker, with retries of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from msgspec.structs import replace

from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Clock, Delivery, Source
from holdfast.runtime.payload import Arguments
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.letters import Letter, carried, read_letter
from holdfast.runtime.streams.passage import dlq_topic, marker
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.types import Snooze

_UNTIL_HANDLED_S: Final = 7 * 86_400.0
"""So long a letter that was sent waits for whoever handles it; then its topic has forgotten it: it is sent again."""
_RETRY: Final = RetryPolicy(max_retries=100, initial_delay=0.5, multiplier=2.0, max_delay=60.0, total_timeout=None)

SourceOf = Callable[[StreamSpec], Awaitable[Source]]


def carrier_of(spec: StreamSpec, source_of: SourceOf, clock: Clock, on_carried: Callable[[str], object]) -> TaskSpec:
    """The task by whose name the stream's letters are in the store; `on_carried` is told the ids of those it sends."""

    async def carry(letter: Letter, letter_id: str, attempt: int) -> Snooze | None:
        source = await source_of(spec)
        message = carried(letter, letter_id, attempt=attempt)
        mark = marker(dlq_topic(letter.message.topic), letter_id, at=clock.now(), key=letter.message.key)
        on_carried(letter_id)
        await source.send([message])
        await source.send([mark])
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
    )


class _Letters:
    """From a job to the letter that it is."""

    def of(self, delivery: Delivery) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (read_letter(delivery.payload), delivery.id, delivery.attempt), {}


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
