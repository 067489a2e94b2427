"""The end of a soak: the two ledgers beside the store, when everything has come to rest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

from msgspec import json

from holdfast.ports import Stats
from holdfast.runtime.worker import WorkerSettings
from holdfast.types import JobRecord
from tests.faults.soak_ledger import ClientBook, EffectBook
from tests.faults.soak_plan import Plan, Seen
from tests.faults.soak_shop import DOOMED, TASKS, TICK_EVERY_S, doomed_below, doomed_to, is_doomed, is_refused
from tests.faults.soak_verdicts import Verdict, at_least, at_most, bounded_backlog, flats, none_of, soon_again
from tests.faults.workers import recovery_bound

_SLOWEST_ANSWER_S: Final = 5.0
_OLDEST_PAGE_S: Final = 1.0
"""A server looks at the store anew after half a second; the rest is for a busy machine."""
_OVER: Final = frozenset({"completed", "cancelled"})
_KILLED: Final = "ended with 137"
_ENDED: Final = re.compile(r"worker process (\d+) (is replaced|ended with \d+|could not start)")


def judge(
    plan: Plan,
    seen: Seen,
    client: ClientBook,
    effects: EffectBook,
    records: Sequence[JobRecord],
    stats: Stats,
    now_s: float,
) -> list[Verdict]:
    """Every verdict. records: all that the store still has; now_s: when they were read, in monotonic time."""
    acked, ticks = client.acked, len(effects.ticks)
    mended = sum(effects.has_ended(number) for number in range(acked) if is_refused(number))
    fewest, most = (ticked_s / TICK_EVERY_S for ticked_s in seen.ticked_s)
    bound_s = recovery_bound(plan.lease_s, start_s=seen.start_s, sweep_s=WorkerSettings().sweep_s)
    letters = seen.letters | kept_letters(plan, client, effects, now_s)
    missed = missed_letters(plan, seen, client, effects, records, now_s)
    miscounts = [*seen.miscounts, *miscounted(plan, seen, client, effects, records, stats)]
    return [
        none_of("no job is lost", lost(client, effects, missed), acked),
        at_least("dead letters that had to be there, and were looked for", len(letters), 1),
        none_of("no job runs again but for a failure or a kill", effects.unexcused(), acked),
        none_of(
            "the store has what the ledgers say", discrepancies(plan, client, effects, records, now_s), len(records)
        ),
        none_of("the counts add up", miscounts, len(seen.gaps_s)),
        at_least("pages whose counts were compared with the store's", seen.pages, 1),
        none_of("nobody ends by himself", ended_by_themselves(seen), len(seen.killed)),
        none_of("the server answers", seen.complaints, len(seen.answers_s)),
        at_most("the server's slowest answer", max(seen.answers_s, default=0.0), _SLOWEST_ANSWER_S, "s"),
        at_most("the longest time without a heartbeat", max(seen.gaps_s, default=0.0), plan.lease_s, "s"),
        at_least("kills that hit a running job", seen.hits, 1),
        soon_again(effects.recoveries, bound_s),
        at_least("dead letters that were replayed and completed", mended, 1),
        at_least("ticks of the schedule that ran", ticks, fewest - 3),
        at_most("ticks of the schedule", ticks, most + 2, "ticks"),
        bounded_backlog([one["live"] for one in seen.samples], seen.rate, seen.drained_s, plan.limit_s),
        *flats(seen.samples),
    ]


def lost(client: ClientBook, effects: EffectBook, missed: AbstractSet[int]) -> list[int]:
    """The jobs that were acked and whose handler never came to its end, and the letters that were missed."""
    never = {
        number
        for number in range(client.acked)
        if not (effects.has_failed(number) if is_doomed(number) else effects.has_ended(number))
    }
    return sorted(never | missed)


def dead(client: ClientBook, effects: EffectBook, missed: AbstractSet[int]) -> int:
    """How many jobs failed for good by the handlers' ledger, without the letters that were missed."""
    return sum(effects.has_failed(number) and number not in missed for number in doomed_to(client.acked))


def kept_letters(
    plan: Plan, client: ClientBook, effects: EffectBook, now_s: float, *, settled_s: float = 0.0
) -> set[int]:
    """The jobs that have to be dead letters in the store now.

    Those that failed for good within half of the time for which letters are kept, whatever the clocks say. settled_s:
    while workers are killed, at least so long ago, as it takes a moment to say so; and what a kill may have hit is
    left out, for it may be on its way to another worker [0.0: everything is at rest].
    """
    early_s, late_s = now_s - plan.keep_s / 2, now_s - settled_s
    found = {number for number in doomed_to(client.acked) if early_s < effects.failed_s(number) <= late_s}
    return {number for number in found if not effects.is_excused(number)} if settled_s else found


def missed_letters(
    plan: Plan, seen: Seen, client: ClientBook, effects: EffectBook, records: Iterable[JobRecord], now_s: float
) -> set[int]:
    """The dead letters that were not there when they were looked for, at the end or before it."""
    return seen.missed | (kept_letters(plan, client, effects, now_s) - letters_among(records))


def letters_among(records: Iterable[JobRecord]) -> set[int]:
    """The numbers of those that are dead letters."""
    return {number_of(record) for record in records if record.state == "dead_letter"}


def number_of(record: JobRecord) -> int:
    """Of a job, out of its arguments."""
    number: int = json.decode(record.payload)["number"]
    return number


def discrepancies(
    plan: Plan, client: ClientBook, effects: EffectBook, records: Iterable[JobRecord], now_s: float
) -> list[str]:
    """What is in the store and should not be, or the other way round."""
    found = []
    numbers = Counter[int]()
    for record in records:
        number = number_of(record)
        numbers[number] += 1
        expected = "dead_letter" if is_doomed(number) else "completed"
        if record.state != expected:
            found.append(f"{number} is {record.state.value}, not {expected}")
        elif number >= client.attempted:
            found.append(f"nobody enqueued {number}")
        elif expected == "completed" and not effects.has_ended(number):
            found.append(f"{number} is completed, and no handler has come to its end")
        elif expected == "dead_letter" and not effects.has_failed(number):
            found.append(f"{number} is a dead letter, and no handler has failed")
    found += [f"{number} is there {n} times" for number, n in numbers.items() if n > 1]
    late_s = now_s - plan.keep_s / 2  # what has ended since then is kept by now, whatever the clocks say
    for number in range(client.acked):
        if number not in numbers and effects.has_ended(number) and effects.ended_s(number) > late_s:
            found.append(f"{number} was pruned before its time")
    gone = kept_letters(plan, client, effects, now_s) - numbers.keys()
    return found + [f"the dead letter of {number} was pruned before its time" for number in sorted(gone)]


def miscounted(
    plan: Plan, seen: Seen, client: ClientBook, effects: EffectBook, records: Iterable[JobRecord], stats: Stats
) -> list[str]:
    """Where the store's counts are not those of its jobs, or its totals not those of the ledgers."""
    counted = Counter[str]()
    for tally in stats.tallies:
        if tally.task in (*TASKS, DOOMED):
            counted[f"{tally.task} {tally.state.value}"] += tally.n
    there = Counter(f"{record.task} {record.state.value}" for record in records)
    found = [] if +counted == there else [f"{dict(+counted)} are counted, {dict(there)} are there"]
    completed = sum(one.n for one in stats.totals if one.task in TASKS and one.name == "completed")
    buried = sum(one.n for one in stats.totals if one.task == DOOMED and one.name == "dead")
    ended = client.acked - doomed_below(client.acked)
    failed = sum(map(effects.has_failed, doomed_to(client.acked)))
    # What was counted of a settlement that came too late is taken back, unless its worker is killed before.
    more = len(seen.killed) * plan.slots
    if not ended <= completed <= ended + more:
        found.append(f"{completed} completions are counted in all, of {ended} jobs")
    if not failed <= buried <= failed + more:
        found.append(f"{buried} dead letters are counted in all, of {failed} jobs that failed for good")
    return found


def page_miscounts(page: Mapping[str, Any], before: Stats, after: Stats, come: int) -> list[str]:
    """Whether the page counts other jobs than the store, which was looked at before and after it.

    come: at most so many jobs were enqueued between the two. So no more than these are open beyond those of the look
    before; and whatever the look after still has was open, or is one of these.
    """
    late_s = before.now - page["now_at"]
    if late_s > 0.0:  # it is of a look before ours
        return [f"the page is {late_s:.1f} s old"] if late_s > _OLDEST_PAGE_S else []
    shown = sum(n for state, n in page["states"].items() if state not in _OVER)
    low, high = _open(after) - come, _open(before) + come
    return [] if low <= shown <= high else [f"{shown} open jobs on the page, {low} to {high} are"]


def _open(stats: Stats) -> int:
    return sum(tally.n for tally in stats.tallies if tally.state.value not in _OVER)


def ended_by_themselves(seen: Seen) -> list[str]:
    """The processes that ended though nobody killed them, and those that did not end well when asked to."""
    found = [
        f"{pid} {word}" for pid, word in _ENDED.findall(seen.log) if word != _KILLED or int(pid) not in seen.killed
    ]
    return found + [f"{name} with exit code {code}" for name, code in seen.codes.items() if code]
