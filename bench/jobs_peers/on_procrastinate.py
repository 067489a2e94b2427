"""procrastinate on PostgreSQL: sync producers, and its worker with ten jobs at a time."""

from __future__ import annotations

import os

from jobs_timing import BATCH, rate_of
from procrastinate import App, PsycopgConnector

from jobs_peers.starts import note, send_each

app = App(connector=PsycopgConnector(conninfo=os.environ["HOLDFAST_URL"]))


@app.task(name="noop")
async def noop() -> None:
    pass


@app.task(name="stamp")
async def stamp(sent_at: float) -> None:
    note(sent_at)


def prepare() -> None:
    with app.open():
        app.schema_manager.apply_schema()


def enqueue(count: int) -> float:
    with app.open():

        def work() -> None:
            for _ in range(count):
                noop.defer()

        return rate_of(count, work)


def bulk(count: int) -> float:
    with app.open():

        def work() -> None:
            for start in range(0, count, BATCH):
                noop.batch_defer(*({} for _ in range(min(BATCH, count - start))))

        return rate_of(count, work)


def send(count: int) -> None:
    with app.open():
        send_each(lambda sent_at: stamp.defer(sent_at=sent_at), count)
