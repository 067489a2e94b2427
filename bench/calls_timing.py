"""How a call is timed: all subjects in turn, in many short rounds; of every 25 rounds the median, of these the best.

The best single round would be that of whoever met the processor at its fastest: ratios to the loop then differed by
15 % from run to run on a busy machine. The best of medians differs by 1 or 2 % without failures; with one, a whole run
may still come out 10 % off.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from statistics import median
from time import perf_counter_ns
from typing import Any, Literal

ROUND_NS = 400_000
"""A round is shorter than the time slice of the operating system, so that many of them run undisturbed."""
ROUNDS_PER_REPEAT = 25
WARM_UP_CALLS = 200
"""Before each round: caches are warm again, and so are the interpreter's guesses about types in shared code."""

Mode = Literal["sync", "async"]
Call = Callable[[Any], Any]
AsyncCall = Callable[[Any], Awaitable[Any]]


@dataclass(slots=True)
class Timing:
    """One subject in one mode: a callable of one argument, and the ns per call of each round."""

    mode: Mode
    call: Call
    argument: Any
    calls_per_round: int = 0
    rounds: list[float] = field(default_factory=list)

    @property
    def repeats(self) -> list[float]:
        """The median of each repeat."""
        starts = range(0, len(self.rounds), ROUNDS_PER_REPEAT)
        return [median(self.rounds[start : start + ROUNDS_PER_REPEAT]) for start in starts]

    async def run(self, calls: int) -> int:
        """Nanoseconds for so many calls, the timing loop included."""
        if self.mode == "sync":
            return time_sync(self.call, self.argument, calls)
        return await time_async(self.call, self.argument, calls)


def time_sync(call: Call, argument: object, calls: int) -> int:
    began = perf_counter_ns()
    for _ in repeat(None, calls):
        call(argument)
    return perf_counter_ns() - began


async def time_async(call: AsyncCall, argument: object, calls: int) -> int:
    """The loop is inside the coroutine, so what is counted is the await and not the event loop."""
    began = perf_counter_ns()
    for _ in repeat(None, calls):
        await call(argument)
    return perf_counter_ns() - began


def time_nothing(calls: int = 20_000, rounds: int = 50) -> float:
    """Nanoseconds that the timing loop itself costs per turn."""
    times = []
    for _ in range(rounds):
        began = perf_counter_ns()
        for _ in repeat(None, calls):
            pass
        times.append((perf_counter_ns() - began) / calls)
    return min(times)


async def measure(timings: Sequence[Timing], repeats: int) -> None:
    """Fill in the rounds of every timing. The order is shuffled anew for each round: nobody has a fixed neighbour."""
    for timing in timings:
        await _calibrate(timing)
    order, shuffle = list(timings), random.Random(0).shuffle
    # What exists by now is no garbage: without it, collecting before each round takes no time.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        for _ in range(repeats * ROUNDS_PER_REPEAT):
            shuffle(order)
            for timing in order:
                await timing.run(min(WARM_UP_CALLS, timing.calls_per_round))
                gc.collect()
                timing.rounds.append(await timing.run(timing.calls_per_round) / timing.calls_per_round)
    finally:
        gc.enable()
        gc.unfreeze()


async def _calibrate(timing: Timing) -> None:
    """Find how many calls make a round."""
    calls = 10
    while (spent := await timing.run(calls)) < ROUND_NS // 4:
        calls *= 2
    timing.calls_per_round = max(10, round(calls * ROUND_NS / spent))
