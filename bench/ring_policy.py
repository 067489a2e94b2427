"""What a retry policy costs a ring of bench-ring while nothing fails: pairs of runs, with and without one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median

from jobs_bars import Bar, at_most
from jobs_rounds import say
from ring_holdfast import holdfast_run
from ring_load import load_of, watched

from holdfast import RetryPolicy

BATCH = 100
LIMIT = 0.05


@dataclass(slots=True)
class Costs:
    """For each pair, how much more the run with a policy took, as a share: of time, and of processor time."""

    time: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


def policy_costs(pairs: int, seconds: float) -> Costs:
    """The two runs of a pair take turns in going first."""
    say(f"{pairs} pairs with and without a retry policy")
    runs = [holdfast_run(), holdfast_run(retry=RetryPolicy(max_retries=3))]
    load = load_of(BATCH, 4)
    with watched():
        took = runs[0]("1 → 1", load)
    load = load_of(BATCH, max(1, round(load.passes * seconds / took)))
    costs = Costs()
    for turn in range(pairs):
        times, used = [0.0, 0.0], [0.0, 0.0]
        for which in (0, 1) if turn % 2 else (1, 0):
            with watched():
                before = time.process_time()
                times[which] = runs[which]("1 → 1", load)
                used[which] = time.process_time() - before
        costs.time.append(times[1] / times[0] - 1)
        costs.processor.append(used[1] / used[0] - 1)
    return costs


def policy_bars(costs: Costs) -> list[Bar]:
    text = f"a retry policy without failures, batches of {BATCH}: costs < {LIMIT:.0%}"
    return [at_most(text, median(costs.time), LIMIT, "{:.1%}".format, is_strict=True)]


def print_costs(costs: Costs) -> None:
    print(f"\n{f'a policy, batches of {BATCH}, {len(costs.time)} pairs':34}{'median':>8}{'half are between':>21}")
    for name, shares in (("more time", costs.time), ("more processor time", costs.processor)):
        ordered = sorted(shares)
        low, high = ordered[len(ordered) // 4], ordered[len(ordered) * 3 // 4]
        print(f"  {name:32}{median(shares):8.1%}{f'{low:.1%} and {high:.1%}':>21}")
