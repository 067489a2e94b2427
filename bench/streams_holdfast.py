"""Holdfast as a user starts it: an app with one stream and a SQLite store, and its worker on an event loop."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, Literal

from streams_order import Order
from streams_tally import Tally

from holdfast import App

Kind = Literal["async", "sync", "batch"]
BATCH = 500


def consume(scheme: Literal["kafka", "redis"], kind: Kind, order: Literal["key", "none"] = "key") -> None:
    tally = Tally()
    app = App(f"sqlite:///{Path(os.environ['STREAMS_FOLDER']) / 'holdfast.db'}")
    url = f"{scheme}://{os.environ['STREAMS_ADDRESS']}/{os.environ['STREAMS_TOPIC']}"
    batch = BATCH if kind == "batch" else None
    stream = app.stream(url, group=os.environ["STREAMS_GROUP"], name="orders", order=order, batch=batch)

    async def one(order: Order) -> None:
        tally.one()

    def sync_one(order: Order) -> None:
        tally.one()

    async def many(orders: list[Order]) -> None:
        tally.many(len(orders))

    handlers: dict[str, Any] = {"async": one, "sync": sync_one, "batch": many}
    stream(handlers[kind])
    asyncio.run(app.worker().run())
