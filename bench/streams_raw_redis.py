"""The plain loop on Redis Streams by redis-py: XREADGROUP, and one XACK for all that it brought."""

from __future__ import annotations

import os
from typing import Any

import redis
from msgspec import json
from streams_order import Order
from streams_tally import Tally


def consume(count: int, decodes: bool) -> None:
    tally = Tally()
    decode = json.Decoder(Order).decode
    stream, group = os.environ["STREAMS_TOPIC"], os.environ["STREAMS_GROUP"]
    host, port = os.environ["STREAMS_ADDRESS"].split(":")
    client: Any = redis.Redis(host, int(port))
    client.xgroup_create(stream, group, id="0")
    while True:
        for _, entries in client.xreadgroup(group, "one", {stream: ">"}, count=count, block=1_000):
            if decodes:
                for _, fields in entries:
                    decode(fields[b"value"])
            client.xack(stream, group, *[entry for entry, _ in entries])
            tally.many(len(entries))
