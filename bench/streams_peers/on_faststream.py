"""FastStream on Kafka, by either of its clients, and on Redis Streams."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Literal

import msgspec
from fast_depends.msgspec import MsgSpecSerializer
from faststream import AckPolicy, FastStream
from pydantic import BaseModel
from streams_order import Order
from streams_tally import Tally

BATCH = 500


class Checked(BaseModel):
    """The same order for pydantic, which is FastStream's default."""

    number: int
    customer: str
    sku: str
    cents: int
    is_gift: bool


def consume(
    client: Literal["confluent", "aiokafka", "redis"],
    ack: Literal["default", "after"],
    is_batch: bool = False,
    is_plain: bool = False,
    workers: int = 1,
) -> None:
    """ack: as it comes, which is before the handler; or after it, at least once. is_plain: all its defaults, with a
    log line before and after each message and pydantic; otherwise no log, and msgspec."""
    tally = Tally()
    how: dict[str, Any] = {} if is_plain else {"logger": None, "serializer": MsgSpecSerializer()}
    options: dict[str, Any] = {} if ack == "default" else {"ack_policy": AckPolicy.ACK}
    if workers > 1:
        options["max_workers"] = workers
    broker, subscriber = (_redis if client == "redis" else _kafka)(client, how, options, is_batch=is_batch)

    async def one(order: Order) -> None:
        tally.one()

    async def checked(order: Checked) -> None:
        tally.one()

    async def many(orders: list[Order]) -> None:
        tally.many(len(orders))

    subscriber(many if is_batch else checked if is_plain else one)
    asyncio.run(FastStream(broker).run())


def _kafka(client: str, how: dict[str, Any], options: dict[str, Any], *, is_batch: bool) -> tuple[Any, Any]:
    broker: Any
    if client == "confluent":
        from faststream.confluent import KafkaBroker as Confluent

        broker = Confluent(os.environ["STREAMS_ADDRESS"], **how)
    else:
        from faststream.kafka import KafkaBroker as Aiokafka

        broker = Aiokafka(os.environ["STREAMS_ADDRESS"], **how)
    if is_batch:
        options |= {"batch": True, "max_records": BATCH}
    subscriber = broker.subscriber(
        os.environ["STREAMS_TOPIC"], group_id=os.environ["STREAMS_GROUP"], auto_offset_reset="earliest", **options
    )
    return broker, subscriber


def _redis(client: str, how: dict[str, Any], options: dict[str, Any], *, is_batch: bool) -> tuple[Any, Any]:
    """Its messages have a shape of their own, so a parser takes the value out of ours."""
    from faststream.redis import RedisBroker, StreamSub

    async def value_of(message: Any) -> Any:
        return msgspec.json.decode(message.raw_message["data"][b"value"])

    broker: Any = RedisBroker(f"redis://{os.environ['STREAMS_ADDRESS']}", **how)
    stream: Any = StreamSub(
        os.environ["STREAMS_TOPIC"],
        group=os.environ["STREAMS_GROUP"],
        consumer="one",
        last_id="0",
        max_records=BATCH,
    )
    return broker, broker.subscriber(stream=stream, decoder=value_of, **options)
