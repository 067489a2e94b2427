"""Kafka's own client in the fewest calls: batches of 500, and a commit for each of them or ten a second."""

from __future__ import annotations

import os
import time
from typing import Literal

from confluent_kafka import Consumer
from msgspec import json
from streams_order import Order
from streams_tally import Tally

BATCH = 500
COMMIT_S = 0.1
TUNED = {"fetch.queue.backoff.ms": 10}


def consume(decodes: bool, commit: Literal["each", "awaited", "timed"] = "each", is_tuned: bool = True) -> None:
    """commit: one for each batch, sent and not waited for, or waited for; or one in a tenth of a second.

    is_tuned: by itself the client rests for a second whenever it has fetched enough ahead, and the loop stands still.
    """
    tally = Tally()
    decode = json.Decoder(Order).decode
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["STREAMS_ADDRESS"],
            "group.id": os.environ["STREAMS_GROUP"],
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(TUNED if is_tuned else {}),
        }
    )
    consumer.subscribe([os.environ["STREAMS_TOPIC"]])
    due = 0.0
    while True:
        # consume() waits for the whole batch or the whole time: short, so that the last one is not waited for.
        batch = consumer.consume(BATCH, 0.05)
        if not batch:
            if commit == "timed" and due:
                consumer.commit(asynchronous=True)
                due = 0.0
            continue
        for message in batch:
            if (error := message.error()) is not None:
                raise SystemExit(str(error))
        if decodes:
            for message in batch:
                decode(message.value() or b"")
        tally.many(len(batch))
        if commit == "awaited":
            consumer.commit(asynchronous=False)
        elif commit == "each":
            consumer.commit(asynchronous=True)
        elif time.monotonic() >= due:
            consumer.commit(asynchronous=True)
            due = time.monotonic() + COMMIT_S
