"""Kafka's own client in the fewest calls: batches of 500 and one commit for each of them."""

from __future__ import annotations

import os

from confluent_kafka import Consumer
from msgspec import json
from streams_order import Order
from streams_tally import Tally

BATCH = 500


def consume(decodes: bool, is_async: bool) -> None:
    """is_async: a commit is sent and not waited for; otherwise the loop waits for its answer."""
    tally = Tally()
    decode = json.Decoder(Order).decode
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["STREAMS_ADDRESS"],
            "group.id": os.environ["STREAMS_GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([os.environ["STREAMS_TOPIC"]])
    while True:
        # consume() waits for the whole batch or the whole time: short, so that the last one is not waited for.
        batch = consumer.consume(BATCH, 0.05)
        if not batch:
            continue
        for message in batch:
            if (error := message.error()) is not None:
                raise SystemExit(str(error))
        if decodes:
            for message in batch:
                decode(message.value() or b"")
        consumer.commit(asynchronous=is_async)
        tally.many(len(batch))
