"""What is carried in bench-ring: the same elements for all, summed by every consumer, and a watch over each run."""

from __future__ import annotations

import faulthandler
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from jobs_timing import Failed

SIZE = 65_536
"""Elements that may be under way at a time, for all alike."""
ELEMENTS = 131_000
"""Elements of one pass: about twice of what may be under way, and whole batches of 100 and 1,000."""
HUNG_S = 60.0
"""A run that takes longer than this hangs: every thread's stack is printed, and the bench ends."""

Shape = Literal["1 → 1", "1 → 3", "A → B → C"]
SHAPES: tuple[Shape, ...] = ("1 → 1", "1 → 3", "A → B → C")
BATCHES = (1, 100, 1000)


@dataclass(frozen=True, slots=True)
class Load:
    """So many passes over the same elements."""

    batch: int
    passes: int
    items: Sequence[Any]
    """One pass: the elements themselves where the batch is 1, else lists of them."""

    @property
    def count(self) -> int:
        return self.passes * ELEMENTS

    @property
    def total(self) -> int:
        """What every consumer must come to."""
        return self.passes * sum(range(ELEMENTS))

    @property
    def room(self) -> int:
        """Items that may be under way."""
        return SIZE // self.batch


Run = Callable[[Shape, Load], float]
"""Carries a load to every consumer of a shape; the seconds from the first element to the last one summed."""


@cache
def _items(batch: int) -> Sequence[Any]:
    elements = list(range(ELEMENTS))
    return elements if batch == 1 else [elements[at : at + batch] for at in range(0, ELEMENTS, batch)]


def load_of(batch: int, passes: int) -> Load:
    return Load(batch, passes, _items(batch))


def check(totals: Sequence[int | None], load: Load) -> None:
    for total in totals:
        if total != load.total:
            raise Failed(f"a consumer summed {total}, not {load.total}")


class Sums:
    """Threads that each come to a sum; they are running when this returns."""

    def __init__(self, works: Sequence[Callable[[], int]]) -> None:
        self._totals: list[int | None] = [None] * len(works)
        self._threads = [
            threading.Thread(target=self._work, args=(number, work), daemon=True) for number, work in enumerate(works)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int, work: Callable[[], int]) -> None:
        self._totals[number] = work()

    def wait(self) -> Sequence[int | None]:
        for thread in self._threads:
            thread.join()
        return self._totals


@contextmanager
def watched() -> Iterator[None]:
    """Around one run: begins without garbage, and does not hang for ever."""
    gc.collect()
    faulthandler.dump_traceback_later(HUNG_S, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
