"""The numbers of `/retry/stats`."""

from __future__ import annotations

from typing import Final

from holdfast.app import App
from holdfast.ops.api import schemas
from holdfast.ops.api.shapes import tasks_per_second
from holdfast.types import BreakerMode, JobState

_NOT_OPEN: Final = frozenset({BreakerMode.CLOSED, BreakerMode.DISABLED})
_FAILED: Final = "failed:"


async def retry_stats(app: App) -> schemas.RetryStats:
    """T4: attempts of all time, each counted as exactly one of successful, failed and retried."""
    stats = await app.store.stats()
    totals: dict[str, int] = {}
    for count in stats.totals:
        totals[count.name] = totals.get(count.name, 0) + count.n
    successful, failed, retried = (totals.get(name, 0) for name in ("completed", "failed", "retried"))
    executed = successful + failed + retried
    breakers = [view.mode for view in await app.breakers.alist()]
    open_circuits = sum(mode not in _NOT_OPEN for mode in breakers)
    letters: dict[str, int] = {}
    for tally in stats.tallies:
        if tally.state is JobState.DEAD_LETTER and tally.n:
            letters[tally.task] = letters.get(tally.task, 0) + tally.n
    return schemas.RetryStats(
        execution_stats=schemas.ExecutionStats(
            total_executed=executed,
            successful=successful,
            failed=failed,
            retried=retried,
            success_rate=_per_cent(successful, executed),
            failure_rate=_per_cent(failed, executed),
            retry_rate=_per_cent(retried, executed),
        ),
        circuit_breaker_stats=schemas.CircuitBreakerStats(
            total_circuit_breakers=len(breakers),
            open_circuits=open_circuits,
            closed_circuits=len(breakers) - open_circuits,
        ),
        dead_letter_stats=schemas.DeadLetterStats(total_dead_letters=sum(letters.values()), by_task_type=letters),
        failures_by_error_type={
            name.removeprefix(_FAILED): n for name, n in sorted(totals.items()) if name.startswith(_FAILED)
        },
        tasks_per_second_per_worker={worker.id: tasks_per_second(worker) for worker in stats.workers},
    )


def _per_cent(part: int, whole: int) -> float:
    return round(100.0 * part / whole, 2) if whole else 0.0
