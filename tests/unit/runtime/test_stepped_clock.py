"""The store's clock is set while a job runs: that makes no run longer or shorter, and nobody's retries run out."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import App, RetryPolicy, Transient
from holdfast.types import JobState


@pytest.mark.parametrize("step_s", [7_200.0, -7_200.0])
def test_a_clock_that_is_set_meanwhile_is_no_run_time(step_s: float) -> None:
    app = App("memory://")
    is_stepped = asyncio.Event()

    @app.task(retry=RetryPolicy(max_retries=2, initial_delay=0.001, total_timeout=3_600.0))
    async def long(other: str) -> None:
        if not is_stepped.is_set():
            app.store.clock_offset_s += step_s  # type: ignore[attr-defined]
            is_stepped.set()
            while not await _has_ended(app, other):  # what settles it tells the worker of the new time
                await asyncio.sleep(0)  # noqa: TID251 - only lets others run
        raise Transient("never")

    @app.task
    async def short() -> None:
        await is_stepped.wait()

    job = long.enqueue(short.enqueue().id)
    app.run_until_idle()
    record = job.refresh().record
    app.close()
    assert record.state is JobState.DEAD_LETTER
    assert [attempt.number for attempt in record.attempts] == [1, 2, 3]
    assert all(0.0 <= attempt.ended_at - attempt.started_at < 60.0 for attempt in record.attempts)


async def _has_ended(app: App, job: str) -> bool:
    (record,) = await app.store.get([job])
    return record is not None and record.state.is_terminal
