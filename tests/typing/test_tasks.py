"""A task keeps its function's type. mypy is what runs this file: an ignore that is not needed is an error."""

from __future__ import annotations

from typing import assert_type

import pytest

from holdfast import App, Invalid, Job, JobContext, RetryPolicy
from holdfast.app import RunResult
from holdfast.app.task import Call

app = App("memory://")


@app.task
def charge(order: int, *, cents: int) -> str:
    return f"{order}: {cents}"


@app.task(retry=RetryPolicy(max_retries=0), timeout=5)
async def acharge(order: int, cents: int = 0) -> str:
    return f"{order}: {cents}"


@app.task
def with_context(job: JobContext, order: int) -> int:
    return order + job.attempt


@app.task(queue="mail")
async def awith_context(job: JobContext, order: int) -> int:
    return order + job.attempt


def test_a_call_has_the_functions_type() -> None:
    assert_type(charge(1, cents=2), str)
    assert_type(with_context(1), int)


async def test_an_async_call_is_awaited() -> None:
    assert_type(await acharge(1), str)
    assert_type(await awith_context(1), int)


async def test_a_job_has_the_type_of_its_result() -> None:
    assert_type(charge.enqueue(1, cents=2), Job[str])
    assert_type(acharge.enqueue(1), Job[str])
    assert_type(with_context.enqueue(1), Job[int])
    assert_type(await awith_context.aenqueue(1), Job[int])
    assert_type(awith_context.options(priority=1).enqueue(1), Job[int])
    assert_type(charge.bind(1, cents=2), Call[str])
    assert_type(charge.enqueue_many([charge.bind(1, cents=2)]), list[Job[str]])
    assert_type(await awith_context.arun(1), RunResult[int])
    jobs = await app.aenqueue_many([charge.bind(1, cents=2), with_context.bind(1)])  # of whichever tasks
    assert len(jobs) == 2
    await app.arun_until_idle()
    assert_type((await charge.enqueue(1, cents=2).arefresh()).state.is_terminal, bool)


def test_a_run_has_the_type_of_its_result() -> None:
    result = awith_context.run(1)
    assert_type(result, RunResult[int])
    assert_type(result.value, int | None)
    assert result.value == 2


def test_wrong_calls_are_seen_by_the_type_checker() -> None:
    for wrong in (_text, _missing, _context, _many, _options):
        with pytest.raises((Invalid, TypeError)):
            wrong()


def _text() -> None:
    charge.enqueue("x", cents=2)  # type: ignore[arg-type]


def _missing() -> None:
    charge.enqueue(1)  # type: ignore[call-arg]


def _context() -> None:
    with_context.enqueue(1, 2)  # type: ignore[call-arg]


def _many() -> None:
    acharge.options(priority=1).bind("x")  # type: ignore[arg-type]


def _options() -> None:
    charge.options(delays=5)  # type: ignore[call-arg]
