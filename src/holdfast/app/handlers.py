"""From `@app.stream(…)` to what the runtime needs to run a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.steps import steps_of
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.passage import checked_topic, own_topics
from holdfast.runtime.streams.spec import Decode, Order, Start, StreamSpec, Values
from holdfast.wiring import stream_place


def stream_of(
    task: TaskSpec,
    *,
    url: str,
    group: str,
    in_flight: int | None,
    batch: int | None,
    order: Order,
    blocking: bool,
    bisect: bool,
    transactional: bool,
    max_gap: int,
    start: Start,
) -> StreamSpec:
    """The stream of a task that runs messages; ConfigError says what of it cannot work."""
    place = stream_place(url)
    size = 0 if batch is None else bounds.whole("batch", batch, low=1)
    if in_flight is None:
        in_flight = max(100, 2 * size)
    bounds.whole("in_flight", in_flight, low=1)
    bounds.whole("max_gap", max_gap, low=1)
    if in_flight < size:
        raise ConfigError(f"in_flight={in_flight!r}: must be at least batch, which is {size}")
    if max_gap < in_flight:
        raise ConfigError(f"max_gap={max_gap!r}: must be at least in_flight, which is {in_flight}")
    if order not in get_args(Order):
        raise ConfigError(f'order={order!r}: must be "key" or "none"')
    if start not in get_args(Start):
        raise ConfigError(f'start={start!r}: must be "earliest" or "latest"')
    if bisect and not size:
        raise ConfigError("bisect=True: only a handler of batches has something to halve; give batch=")
    if transactional and not size:
        raise ConfigError("transactional=True: a transaction covers a batch; give batch=")
    if transactional and not blocking:
        raise ConfigError("transactional=True: its retries are in place; leave out blocking=False")
    if transactional and place.scheme not in {"kafka", "memory"}:
        raise ConfigError("transactional=True: Redis Streams have no transactions over what is read and sent")
    if not isinstance(group, str) or not group or not group.isprintable():
        raise ConfigError(f"group={group!r}: must be printable text")
    steps = () if blocking else steps_of(task.retry)
    if place.scheme == "kafka":
        for name in own_topics(place.topic, group, steps=len(steps)):
            checked_topic(name)
    return StreamSpec(
        task=task,
        url=url,
        location=place.location,
        topic=place.topic,
        group=group,
        in_flight=in_flight,
        max_gap=max_gap,
        batch=size,
        is_ordered=order == "key",
        is_blocking=blocking,
        is_bisected=bisect,
        is_transactional=transactional,
        start=start,
        steps=steps,
    )


def values_of(fn: Callable[..., Any], decode: Decode | None, batch: int | None) -> Values:
    """How the handler gets its arguments; ConfigError where its signature cannot work."""
    if decode is not None and not callable(decode):
        raise ConfigError(f"decode={decode!r}: must be a function of the Message")
    return Values(fn, decode, is_batch=batch is not None)
