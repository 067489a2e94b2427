"""Holdfast's ring in bench-ring."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ring_load import SIZE, Load, Run, Shape, check

from holdfast.ring import Consumer, Disruptor


class Sum(Consumer[Any]):
    """Sums what it gets."""

    def __init__(self) -> None:
        self.total = 0

    def consume(self, elements: Sequence[Any]) -> None:
        self.total += sum(elements)


def open_ring() -> Disruptor[Any]:
    """One of the size that all have."""
    return Disruptor(name="bench", size=SIZE)


def register(ring: Disruptor[Any], shape: Shape, consumers: Sequence[Consumer[Any]], **options: Any) -> None:
    """As many consumers as the shape has, with these options each."""
    for number, consumer in enumerate(consumers):
        after = consumers[number - 1 : number] if shape == "A → B → C" else ()
        ring.register_consumer(consumer, name=f"consumer-{number}", after=after, **options)


def holdfast_run(**options: Any) -> Run:
    """With these options of `register_consumer`."""
    return partial(_run, options)


def _run(options: dict[str, Any], shape: Shape, load: Load) -> float:
    sums = [Sum() for _ in range(1 if shape == "1 → 1" else 3)]
    with open_ring() as ring:
        register(ring, shape, sums, **options)
        produce = ring.produce
        began = time.perf_counter()
        for _ in range(load.passes):
            if load.batch == 1:
                for element in load.items:
                    produce([element])
            else:
                for elements in load.items:
                    produce(elements)
        ring.close()
        seconds = time.perf_counter() - began
    check([one.total for one in sums], load)
    return seconds
