"""A loop over aiokafka's getmany that decodes, with one commit for each batch."""

from __future__ import annotations

import asyncio
import os

from aiokafka import AIOKafkaConsumer
from msgspec import json
from streams_order import Order
from streams_tally import Tally

BATCH = 500


def consume() -> None:
    asyncio.run(_consume())


async def _consume() -> None:
    tally = Tally()
    decode = json.Decoder(Order).decode
    consumer = AIOKafkaConsumer(
        os.environ["STREAMS_TOPIC"],
        bootstrap_servers=os.environ["STREAMS_ADDRESS"],
        group_id=os.environ["STREAMS_GROUP"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    while True:
        found = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        if not found:
            continue
        for messages in found.values():
            for message in messages:
                decode(message.value)
        await consumer.commit()
        tally.many(sum(map(len, found.values())))
