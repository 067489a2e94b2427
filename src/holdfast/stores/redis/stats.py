"""Counts what there is: from the tallies, never by looking at the jobs."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from msgspec import msgpack

from holdfast.ports import Count, Stats, Tally
from holdfast.stores.redis.call import Call
from holdfast.stores.redis.scripts import STATS
from holdfast.stores.redis.state import STATES
from holdfast.stores.redis.workers import read_worker

_KINDS: Final = 8
_decode_lane = msgpack.Decoder(list[str]).decode


def stats_call(since_minute: int | None) -> Call[Stats]:
    """Everything counted, in one look."""
    return Call(STATS, (since_minute,), _read)


def _read(reply: list[Any]) -> Stats:
    now, tallies, lanes, workers, counts, ages, totals = reply
    names = {int(number): _decode_lane(name)[:2] for number, name in _pairs(lanes)}
    oldest: dict[str, float] = {}
    for lane, due_at in _pairs(ages):
        queue = names[int(lane)][0]
        oldest[queue] = min(float(due_at), oldest.get(queue, float(due_at)))
    records = [read_worker(text) for _, text in _pairs(workers)]
    return Stats(
        now=float(now),
        tallies=_tallies(tallies, names),
        workers=sorted(records, key=lambda worker: (worker.started_at, worker.id)),
        counts=_counts(counts),
        totals=_counts([0, totals]),
        oldest_ready_at=oldest,
    )


def _tallies(reply: list[bytes], names: dict[int, list[str]]) -> list[Tally]:
    sums: Counter[tuple[str, str, int]] = Counter()
    for kind, n in _pairs(reply):
        lane, state = divmod(int(kind), _KINDS)
        if int(n):
            queue, task = names[lane]
            sums[queue, task, state] += int(n)
    tallies = [Tally(queue, task, STATES[state], n) for (queue, task, state), n in sums.items() if n]
    return sorted(tallies, key=lambda one: (one.queue, one.task, one.state))


def _counts(reply: list[Any]) -> list[Count]:
    counts: list[Count] = []
    for minute, fields in _pairs(reply):
        for field, n in _pairs(fields):
            name, _, task = field.decode().partition(" ")
            counts.append(Count(int(minute), task, name, int(n)))
    return sorted(counts, key=lambda one: (one.minute, one.task, one.name))


def _pairs(reply: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(reply[::2], reply[1::2], strict=True))
