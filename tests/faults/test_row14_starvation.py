"""Row 14: several processes write to one SQLite file as fast as they can. None starves, no heartbeat is late."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise

from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, LEASE_S, SETTINGS, poll

WORKERS = 4
FLAT_OUT = replace(SETTINGS, room=Room(concurrency=100, threads=4, isolates=1))


def test_four_processes_flat_out_share_the_file_and_lose_no_lease(arena: Arena, is_full: bool, report: Report) -> None:
    jobs = 200_000 if is_full else 40_000  # enough that what one process is ahead for a moment is little of it
    arena.app.queues.pause("default")
    arena.enqueue([arena.call("work", n) for n in range(jobs)], at_once=1_000)
    seen: dict[str, list[float]] = defaultdict(list)
    waits: list[float] = []
    with arena.fleet() as fleet:
        pids = [fleet.start(FLAT_OUT) for _ in range(WORKERS)]
        poll(lambda: len(arena.stats().workers) == WORKERS, 20, "all workers register")
        arena.app.queues.resume("default")

        def look() -> None:
            for worker in arena.stats().workers:
                if worker.seen_at not in seen[worker.id]:
                    seen[worker.id].append(worker.seen_at)
            began_s = CLOCK.monotonic()
            arena.enqueue([arena.call("work", len(waits))])
            waits.append(CLOCK.monotonic() - began_s)

        poll(lambda: look() or _ended(arena) >= jobs, 300, "all jobs end")  # type: ignore[func-returns-value]
        arena.quiesce(20)
        fleet.stop()
        log = fleet.log()
        evidence = arena.evidence(fleet)

    share = _smallest_share(evidence, pids)
    gaps = [later - sooner for times in seen.values() for sooner, later in pairwise(times)]
    late_s = max(gaps) - (SETTINGS.heartbeat_s or 0.0)
    assert checker.check(evidence) == []
    assert completed(evidence) == jobs + len(waits)
    assert checker.duplicates(evidence) == 0
    assert late_s <= LEASE_S / 2
    for complaint in ("locked", "does not answer", "stops its work", "came too late", "took back", "heartbeat failed"):
        assert complaint not in log, log
    assert share >= 0.5
    report(
        "several processes write as fast as they can",
        injected=WORKERS,
        figures=figures_of(evidence),
        note=f"smallest share {share:.0%} of a fair one, latest heartbeat {1000 * late_s:.0f} ms late, longest wait of "
        f"a producer {1000 * max(waits):.0f} ms, leases lost {log.count('stops its work') + log.count('took back')}",
    )


def _ended(arena: Arena) -> int:
    return sum(tally.n for tally in arena.stats().tallies if tally.state.is_terminal)


def _smallest_share(evidence: checker.Evidence, pids: list[int]) -> float:
    """The fewest jobs that one of them ran, as a share of what would be fair, while all of them were at it."""
    starts = [one for one in evidence.effects if one.what == "start"]
    first = max(min(one.at for one in starts if one.pid == pid) for pid in pids)
    last = min(max(one.at for one in starts if one.pid == pid) for pid in pids)
    counts = Counter(one.pid for one in starts if first <= one.at <= last)
    return min(counts[pid] for pid in pids) * len(pids) / counts.total()
