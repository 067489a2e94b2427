"""The measuring that every store has in common: rounds in which all subjects take turns, then what is ours alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import jobs_flat
import jobs_holdfast
from jobs_holdfast import Holdfast
from jobs_results import DRAIN, MANY, ONE, OURS, RAW_LIFE, Results
from jobs_subject import Engine, Place, Raw, Subject
from jobs_timing import Failed

BEGAN = time.monotonic()


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int = 2
    one: int = 3_000
    """Jobs that are enqueued one by one, and that a peer without bulk drains."""
    many: int = 40_000
    """Jobs that are enqueued in batches, and drained."""
    sent: int = 120
    sent_to_peer: int = 30
    idle_s: float = 10.0
    held: int = 999_000
    claims: int = 100
    fleet: int = 80_000
    busy: int = 6_000
    """Jobs with 1 ms of processor time each."""


QUICK = Sizes(
    rounds=1,
    one=1_000,
    many=5_000,
    sent=20,
    sent_to_peer=10,
    idle_s=3.0,
    held=49_000,
    claims=20,
    fleet=20_000,
    busy=1_000,
)


def say(text: str) -> None:
    """For who waits: what is being done, and the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:4.0f} s  {text}", file=sys.stderr, flush=True)


@contextmanager
def noted(results: Results, name: str) -> Iterator[None]:
    """What fails inside is said in the tables, and the others are measured all the same."""
    try:
        yield
    except Failed as error:
        results.failed[name] = str(error)
        say(f"NOT MEASURED: {name}: {error}")


def measure_rounds(
    engine: Engine, subjects: Sequence[Subject], sizes: Sizes, results: Results, slow: Mapping[str, tuple[int, int]]
) -> None:
    """Enqueueing and draining: the subjects take turns, so that all of them meet the same machine.

    slow: how many jobs those who are slow enqueue in batches and drain, as their rates are no truer with more; they
    drain in the first round only.
    """
    for turn in range(sizes.rounds):
        for subject in subjects:
            if subject.name in results.failed:
                continue
            is_drained = not turn or subject.name not in slow
            if subject.is_variant and not is_drained:
                continue
            say(f"round {turn + 1} of {sizes.rounds}: {subject.name}")
            bulk, drained = (min(most, sizes.many) for most in slow.get(subject.name, (sizes.many, sizes.many)))
            with noted(results, subject.name):
                _measure(engine, subject, (min(sizes.one, drained), bulk, drained if is_drained else 0), results)


def _measure(engine: Engine, subject: Subject, counts: tuple[int, int, int], results: Results) -> None:
    one, bulk, drained = counts
    if not subject.has_bulk or not subject.is_variant:
        with engine.place() as place:
            rate = subject.enqueue(place, one)
            if not subject.is_variant:
                results.add(ONE, _producer(subject), rate)
            if drained and not subject.has_bulk:
                results.add(DRAIN, subject.name, subject.drain(place, one))
    if not subject.has_bulk:
        return
    with engine.place() as place:
        rate = subject.bulk(place, bulk)
        if not subject.is_variant or isinstance(subject, Holdfast):
            results.add(MANY, _producer(subject), rate)
        if drained == bulk:
            results.add(DRAIN, subject.name, subject.drain(place, bulk))
    if drained not in {0, bulk}:
        with engine.place() as place:
            subject.bulk(place, drained)
            results.add(DRAIN, subject.name, subject.drain(place, drained))
    if isinstance(subject, Raw):
        with engine.place() as place:
            results.add(DRAIN, RAW_LIFE, subject.whole_life(place, drained))


def _producer(subject: Subject) -> str:
    return OURS if isinstance(subject, Holdfast) else subject.name


def measure_starts(engine: Engine, subjects: Sequence[Subject], sizes: Sizes, results: Results) -> None:
    """Enqueue to start on an idle worker."""
    for subject in subjects:
        say(f"starts on an idle worker: {subject.name}")
        is_ours = isinstance(subject, Holdfast)
        with noted(results, f"{subject.name}, starts"), engine.place() as place:
            times = subject.starts_s(place, sizes.sent if is_ours else sizes.sent_to_peer)
            if times is not None:
                results.starts_ms[_producer(subject)] = [one * 1e3 for one in times]


def measure_flat(
    engine: Engine,
    sizes: Sizes,
    results: Results,
    url_of: Callable[[str, str], str],
    then: Callable[[Place], None] | None = None,
) -> None:
    """A claim with 1,000 jobs and with a million; url_of makes two stores out of one place, where more may follow."""
    say(f"a backlog of {sizes.held + jobs_flat.FREE:,} jobs")
    results.backlog = sizes.held + jobs_flat.FREE
    with noted(results, "a large backlog"), engine.place() as place:
        urls = [url_of(place.url, name) for name in ("small", "large")]
        small, large = jobs_holdfast.flat_ms(place, urls, (0, sizes.held), sizes.claims)
        results.claims_ms = {name: (small[name], large[name]) for name in jobs_flat.CAPS}
        if then is not None:
            then(place)


def measure_fleet(engine: Engine, sizes: Sizes, results: Results) -> None:
    """Four worker processes against one, and a worker that is killed."""
    for workers in (1, jobs_holdfast.FLEET):
        say(f"a handler of 1 ms, {workers} worker(s)")
        with noted(results, f"{workers} worker(s)"), engine.place() as place:
            results.busy_rates[workers] = jobs_holdfast.fleet(place, sizes.busy, workers, "busy")[0]
    say("a worker is killed")
    with noted(results, "a killed worker"), engine.place() as place:
        results.rescue_s = jobs_holdfast.rescue_s(place)
