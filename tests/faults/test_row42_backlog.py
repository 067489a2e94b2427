"""Row 42: a million jobs wait. Claims, the page and the workers are as quick as with few, and take no more memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.faults.backlog import Backlog, claims_in_turns, claims_of
from tests.faults.conftest import IS_FULL, full_only
from tests.faults.report import Report
from tests.faults.soak_places import open_place

MILLION: Final = 1_000_000
BACKLOG: Final = "HOLDFAST_BACKLOG"
"""The environment variable with another number of jobs, on SQLite, at full size: 10000000 takes half an hour."""
A_MILLION_WITHIN_S: Final = 900.0
"""What `make faults` gives to each test; where more wait it is longer, as many times as they are more."""
ANSWERED_WITHIN_S: Final = 1.0
DRAINS: Final = 3
MOST_DRAINS: Final = 8
MORE_MIB: Final = 64.0
"""What a worker may take more than beside a small store, and a server more than at first: a million jobs are 500."""


def longer(jobs: int) -> list[pytest.MarkDecorator]:
    """A time limit of its own for a test with more jobs than a million."""
    return [pytest.mark.timeout(A_MILLION_WITHIN_S * jobs / MILLION)] if jobs > MILLION else []


@pytest.mark.parametrize(("jobs", "limits_s"), [(20_000, []), (MILLION, []), (10 * MILLION, [9_000.0])])
def test_more_jobs_than_a_million_have_more_time(jobs: int, limits_s: list[float]) -> None:
    assert [one.args for one in longer(jobs)] == [(limit_s,) for limit_s in limits_s]


def jobs_on(engine: str, is_full: bool) -> int:
    """How many wait."""
    if not is_full:
        return 20_000
    return int(os.environ.get(BACKLOG, MILLION)) if engine == "sqlite" else MILLION


@pytest.mark.parametrize(("stalled", "p99"), [(2, 1.0), (3, 50.0)])
def test_a_stall_counts_when_it_is_in_most_blocks_and_a_hiccup_of_the_machine_does_not(
    stalled: int, p99: float
) -> None:
    quick, slow = [0.001] * 200, [*[0.001] * 190, *[0.05] * 10]
    found = claims_of([*[slow] * stalled, *[quick] * (5 - stalled)])
    assert (found.p50, found.p99, found.overall_p99) == pytest.approx((1.0, p99, 50.0))


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("sqlite", marks=longer(jobs_on("sqlite", IS_FULL))),
        pytest.param("postgres", marks=full_only),
        pytest.param("redis", marks=full_only),
    ],
)
def test_a_backlog_slows_neither_claims_nor_the_page_nor_the_drain(
    engine: str, tmp_path: Path, is_full: bool, report: Report
) -> None:
    jobs = jobs_on(engine, is_full)
    few, chunk, rounds, blocks = (20_000, 10_000, 200, 5) if is_full else (4_000, 1_000, 20, 3)
    with (
        open_place(engine, tmp_path) as place,
        Backlog(place.fresh_url(), tmp_path / "small") as small,
        Backlog(place.fresh_url(), tmp_path / "large") as large,
    ):
        small.begin_worker()
        large.begin_worker()
        large.begin_server()
        small.fill(few, few // 100)
        rate = large.fill(jobs, jobs // 100)
        large.await_server()
        server_before = large.server_usage().rss_mib
        answers = large.answers_s(3)
        assert large.overview() == large.counts() == {"queued": jobs, "dead_letter": jobs // 100}
        server = large.server_usage().rss_mib

        small.await_worker()
        large.await_worker()
        base, claims = claims_in_turns(small, large, blocks=blocks, rounds=rounds)
        drains: list[tuple[float, float]] = []
        while len(drains) < DRAINS or (len(drains) < MOST_DRAINS and not _is_quick_enough(drains)):
            small.top_up(few)
            drains.append((small.drain_rate(chunk), large.drain_rate(chunk)))
        left = large.counts()
        workers = (small.worker_usage().rss_mib, large.worker_usage().rss_mib)

    slowest = max(answers, key=answers.__getitem__)
    drain_rates = [max(column) for column in zip(*drains, strict=True)]
    note = (
        f"{rate:,.0f} enqueued a second; a claim of 100: p50 {claims.p50:.1f} ms, p99 {claims.p99:.1f} ms in the "
        f"median of {blocks} blocks of {rounds} (with {few:,} jobs {base.p50:.1f} and {base.p99:.1f}), p99 over all "
        f"of them {claims.overall_p99:.1f} ms ({base.overall_p99:.1f}); "
        f"slowest answer of the page {1e3 * answers[slowest]:.0f} ms, {slowest}; "
        f"drained at {drain_rates[1]:,.0f} jobs a second at best of {len(drains)} times (with {few:,} at "
        f"{drain_rates[0]:,.0f}); "
        f"worker {workers[1]:.0f} MiB (with {few:,} jobs {workers[0]:.0f}), "
        f"server {server:.0f} MiB ({server_before:.0f} before)"
    )
    assert sum(left.values()) == jobs + jobs // 100 + len(drains), left  # and one to wake the worker, each time
    assert claims.p50 <= 3 * base.p50 + 2.0, note
    assert claims.p99 <= 3 * base.p99 + 2.0, note
    assert answers[slowest] < ANSWERED_WITHIN_S, note
    assert _is_quick_enough(drains), note
    assert workers[1] <= workers[0] + MORE_MIB, note
    assert server <= server_before + MORE_MIB, note
    report(f"a backlog of {jobs:,} jobs", injected=1, note=note)


def _is_quick_enough(drains: Sequence[tuple[float, float]]) -> bool:
    """Whether the best drain of the large store is half as quick as the best of the small one: others on the machine
    only ever slow them down.
    """
    return max(large for _, large in drains) >= 0.5 * max(small for small, _ in drains)
