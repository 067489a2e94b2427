"""Health checks run side by side, each within its limit, and one that hangs costs one thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from holdfast.errors import ConfigError
from holdfast.runtime.checks import CheckRunner, HealthCheck, checked_check
from holdfast.testing import ManualClock


def check(look: Callable[[], Any], name: str = "a", timeout_s: float = 5.0) -> HealthCheck:
    return HealthCheck(name=name, look=look, timeout_s=timeout_s)


class Hanging:
    """A sync check that hangs until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.free = threading.Event()

    def __call__(self) -> None:
        self.begun += 1
        self.free.wait(60)


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    one = Hanging()
    yield one
    one.free.set()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-check-")]


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run


async def ended(task: asyncio.Task[Any], clock: ManualClock, seconds: float) -> Any:
    """Let a task come to its waits, then move the clock."""
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run
    clock.advance(seconds)
    return await task


async def fine() -> int:
    return 7


async def broken() -> NoReturn:
    raise ValueError("postgresql://a:hunter2@h/x\nis away")


async def cancelled() -> NoReturn:
    raise asyncio.CancelledError


def leaves() -> NoReturn:
    raise SystemExit(3)


async def aleaves() -> NoReturn:
    raise SystemExit(3)


async def ainterrupts() -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("look", "status", "error"),
    [
        (fine, "ok", None),
        (lambda: True, "ok", None),
        (lambda: None, "ok", None),
        (lambda: 0, "ok", None),
        (lambda: False, "failed", "it returned False"),
        (broken, "failed", "ValueError: postgresql://a:[redacted]@h/x is away"),
        (leaves, "failed", "SystemExit: 3"),
        (aleaves, "failed", "SystemExit: 3"),
        (ainterrupts, "failed", "KeyboardInterrupt"),
        (cancelled, "failed", "it was cancelled"),
        (lambda: fine(), "failed", "it returned an awaitable: make the check `async def`"),  # noqa: PLW0108 - on purpose
    ],
)
async def test_a_check_fails_by_raising_or_with_false(
    look: Callable[[], Any], status: str, error: str | None, clock: ManualClock
) -> None:
    result = (await CheckRunner(clock).run([check(look)]))["a"].result
    assert (result.status, result.error) == (status, error)


async def test_what_a_check_returns_is_handed_on(clock: ManualClock) -> None:
    assert (await CheckRunner(clock).run([check(fine)]))["a"].value == 7


async def test_checks_run_side_by_side(clock: ManualClock) -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def one() -> None:
        first.set()
        await second.wait()

    async def two() -> None:
        second.set()
        await first.wait()

    both = threading.Barrier(2, timeout=30)
    checks = [check(one, "1"), check(two, "2"), check(both.wait, "3"), check(both.wait, "4")]
    outcomes = await CheckRunner(clock).run(checks)
    assert [outcome.result.status for outcome in outcomes.values()] == ["ok"] * 4


async def test_a_sync_check_that_hangs_holds_neither_the_answer_nor_a_second_thread(
    clock: ManualClock, hanging: Hanging
) -> None:
    clock.advance(100)
    runner, slow = CheckRunner(clock), check(hanging, timeout_s=2.0)
    outcomes = await ended(asyncio.create_task(runner.run([slow])), clock, 2.0)
    assert (outcomes["a"].result.status, outcomes["a"].result.duration) == ("timeout", 2.0)
    assert outcomes["a"].result.error == "no answer within 2 s"
    clock.advance(10)
    for _ in range(5):
        result = (await runner.run([slow]))["a"].result  # at once: the clock does not move here
        assert (result.status, result.duration) == ("timeout", 12.0)
    assert hanging.begun == 1
    assert len(threads()) == 1
    hanging.free.set()
    await until(lambda: not threads())
    assert (await runner.run([slow]))["a"].result.status == "ok"
    assert hanging.begun == 2


async def test_a_forked_process_does_not_wait_for_a_thread_of_its_parent(
    clock: ManualClock, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, slow = CheckRunner(clock), check(hanging, timeout_s=1.0)
    await ended(asyncio.create_task(runner.run([slow])), clock, 1.0)
    monkeypatch.setattr("os.getpid", lambda: -1)
    again = asyncio.create_task(runner.run([slow]))
    await until(lambda: hanging.begun == 2 or again.done())
    hanging.free.set()
    assert (await again)["a"].result.status == "ok"


async def test_callers_at_the_same_time_share_one_run(clock: ManualClock, hanging: Hanging) -> None:
    runner, slow = CheckRunner(clock), check(hanging)
    callers = [asyncio.create_task(runner.run([slow])) for _ in range(10)]
    await until(lambda: hanging.begun == 1)
    hanging.free.set()
    assert [(await caller)["a"].result.status for caller in callers] == ["ok"] * 10
    assert hanging.begun == 1


async def test_an_async_check_is_cancelled_at_its_limit(clock: ManualClock) -> None:
    ends: list[str] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise

    runner = CheckRunner(clock)
    outcomes = await ended(asyncio.create_task(runner.run([check(forever, timeout_s=1.0)])), clock, 1.0)
    assert outcomes["a"].result.status == "timeout"
    await until(lambda: ends == ["cancelled"])


async def test_an_async_check_that_is_not_to_be_cancelled_is_not_begun_twice(clock: ManualClock) -> None:
    begun = 0
    free = asyncio.Event()

    async def stubborn() -> None:
        nonlocal begun
        begun += 1
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await free.wait()

    runner, one = CheckRunner(clock), check(stubborn, timeout_s=1.0)
    assert (await ended(asyncio.create_task(runner.run([one])), clock, 1.0))["a"].result.status == "timeout"
    assert (await runner.run([one]))["a"].result.status == "timeout"
    assert begun == 1
    free.set()


async def test_a_check_that_fails_when_nobody_waits_any_more_is_not_complained_of(
    clock: ManualClock, hanging: Hanging
) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    def fails() -> None:
        hanging()
        raise ValueError("late")

    await ended(asyncio.create_task(CheckRunner(clock).run([check(fails, timeout_s=1.0)])), clock, 1.0)
    hanging.free.set()
    await until(lambda: not threads())
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run
    assert complaints == []


async def test_a_caller_that_goes_away_takes_nothing_along(clock: ManualClock, hanging: Hanging) -> None:
    runner, slow = CheckRunner(clock), check(hanging)
    caller = asyncio.create_task(runner.run([slow]))
    await until(lambda: hanging.begun == 1)
    caller.cancel()
    other = asyncio.create_task(runner.run([slow]))
    for _ in range(5):
        await asyncio.sleep(0)  # noqa: TID251 - only lets others run
    hanging.free.set()
    assert (await other)["a"].result.status == "ok"
    assert hanging.begun == 1


@pytest.mark.parametrize(
    ("name", "look", "timeout", "words"),
    [
        ("", fine, 1, "name='': must be printable text of 1 to 100 characters"),
        ("a\nb", fine, 1, r"name='a\nb': must be printable text of 1 to 100 characters"),
        ("a", 7, 1, "7: a policy guards a function"),
        ("a", fine, 0, "timeout=0: must be a number, above 0"),
    ],
)
def test_a_check_that_cannot_work_is_refused(name: str, look: Any, timeout: float, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked_check(name, look, timeout=timeout, critical=False)
    assert str(caught.value) == words
