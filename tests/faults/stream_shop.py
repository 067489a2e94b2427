"""The streams that worker processes handle under fault: each handler notes what it does, for whom, and how it ends.

What streams there are is in the environment, as the test that starts the process says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, cast

from msgspec import Struct, json

from holdfast import App, Permanent, RetryPolicy, Transient
from holdfast.clock import SystemClock
from holdfast.ports import Source
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.streams import Message, Outputs
from holdfast.streams.opening import open_source
from tests.faults.stream_ledger import FactLedger, NotedSource, StreamLedger, What

TARGET: Final = "tests.faults.stream_shop:app"
STREAMS: Final = "FAULTS_STREAMS"
"""The environment variable with the streams, as JSON."""
LEDGER: Final = "FAULTS_STREAM_LEDGER"
"""The environment variable that names the ledger."""
FACTS: Final = "FAULTS_STREAM_FACTS"
"""The environment variable that names the ledger of what workers had and said."""


class Order(Struct, frozen=True, omit_defaults=True):
    """A message: one of a key, with its number there."""

    key: str
    n: int
    seconds: float = 0.0
    """How long its handler takes."""
    fails: int = 0
    """How many attempts fail, before one ends well."""
    is_poison: bool = False
    """Whether nothing helps."""
    is_deadly: bool = False
    """Whether its handler takes the process with it."""


class StreamPlan(Struct, frozen=True, kw_only=True):
    """One stream of the app."""

    url: str = ""
    """Empty for the topic of the test."""
    name: str = "bill"
    group: str = "billing"
    kind: Literal["one", "thread", "batch", "copy"] = "one"
    """One by one, the same on threads, in batches, or in batches that are copied to `copies_to` by transactions."""
    copies_to: str = ""
    in_flight: int = 50
    batch: int = 100
    is_blocking: bool = True
    is_robust: bool = False
    """Whether nothing fails here, whatever the orders say."""
    max_retries: int = 2
    delay_s: float = 0.05
    """Before the first retry; each other one waits twice as long."""
    options: dict[str, float] = {}
    """What its source takes besides, such as how long a silent consumer is waited for."""

    @property
    def retry(self) -> RetryPolicy:
        """Delays without chance."""
        return RetryPolicy(
            max_retries=self.max_retries,
            initial_delay=self.delay_s,
            multiplier=2.0,
            min_delay=0.0,
            jitter=False,
            total_timeout=None,
        )


class StreamShop(App):
    """An app whose sources have the options of their plans, and note what they have and say."""

    plans: dict[str, StreamPlan]
    facts: FactLedger | None = None

    def open_source(self, spec: StreamSpec) -> Source:
        """A source of a stream of this app, not yet opened."""
        options = self.plans[spec.name].options
        source = open_source(spec.url, spec.group, self.clock, start=spec.start, **options)
        return source if self.facts is None else cast("Source", NotedSource(source, spec.name, self.facts))


def open_stream_shop(url: str, plans: Sequence[StreamPlan], ledger: StreamLedger) -> StreamShop:
    """An app with these streams, on this store and this ledger."""
    app = StreamShop(url)
    app.plans = {plan.name: plan for plan in plans}
    for plan in plans:
        options: dict[str, Any] = {"group": plan.group, "name": plan.name, "retry": plan.retry, "breaker": None}
        options |= {"in_flight": plan.in_flight, "blocking": plan.is_blocking}
        if plan.kind in {"batch", "copy"}:
            options |= {"batch": plan.batch, "bisect": True, "transactional": plan.kind == "copy"}
        app.stream(plan.url, **options)(_handler(plan, ledger))
    return app


def _handler(plan: StreamPlan, ledger: StreamLedger) -> Callable[..., Any]:
    clock = SystemClock()

    @contextmanager
    def noted(messages: Sequence[Message], orders: Sequence[Order]) -> Iterator[None]:
        def note(what: What) -> None:
            ledger.write(
                [(plan.name, m.id, o.key, o.n, m.retries + 1, what) for m, o in zip(messages, orders, strict=True)]
            )

        note("start")
        try:
            yield
        except asyncio.CancelledError:
            note("stop")
            raise
        except Exception:
            note("fail")
            raise
        note("end")

    async def one(order: Order, message: Message) -> None:
        with noted([message], [order]):
            await clock.asleep(order.seconds)
            if not plan.is_robust:
                _perhaps_fail([message], [order])

    def on_thread(order: Order, message: Message) -> None:
        with noted([message], [order]):
            clock.sleep(order.seconds)
            if not plan.is_robust:
                _perhaps_fail([message], [order])

    async def many(orders: list[Order], messages: list[Message]) -> None:
        with noted(messages, orders):
            await clock.asleep(max(order.seconds for order in orders))
            _perhaps_fail(messages, orders)

    async def copy(orders: list[Order], messages: list[Message], outputs: Outputs) -> None:
        with noted(messages, orders):
            for order in orders:
                outputs.send(plan.copies_to, order, key=order.key)
            await clock.asleep(max(order.seconds for order in orders))
            _perhaps_fail(messages, orders)

    match plan.kind:
        case "one":
            return one
        case "thread":
            return on_thread
        case "batch":
            return many
        case "copy":
            return copy


def _perhaps_fail(messages: Sequence[Message], orders: Sequence[Order]) -> None:
    for message, order in zip(messages, orders, strict=True):
        if order.is_deadly:
            os.abort()
        if order.is_poison:
            raise Permanent(f"order {order.n} of {order.key} is poison")
        if message.retries < order.fails:
            raise Transient(f"order {order.n} of {order.key} fails {order.fails} times")


def _from_environment() -> StreamShop:
    plans = json.decode(os.environ.get(STREAMS, "[]"), type=list[StreamPlan])
    ledger = StreamLedger(Path(os.environ.get(LEDGER, os.devnull)))
    app = open_stream_shop(os.environ.get("HOLDFAST_URL", "memory://"), plans, ledger)
    app.facts = FactLedger(Path(os.environ.get(FACTS, os.devnull)))
    return app


app = _from_environment()
