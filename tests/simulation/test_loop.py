"""Time goes to the next timer at once; machines are held and die between steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.simulation.loop import Machine, SimLoop, Stuck


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    with closing(SimLoop()) as loop:
        yield loop


def test_hours_take_no_time(loop: SimLoop) -> None:
    async def wait() -> float:
        await asyncio.sleep(3600.0)
        return loop.time()

    assert loop.run_until_complete(wait()) == 3600.0


def test_nobody_is_waited_for_who_never_comes(loop: SimLoop) -> None:
    async def wait() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="for ever"):
        loop.run_until_complete(wait())


async def _count(seen: list[float], loop: SimLoop) -> None:
    try:
        for _ in range(5):
            await asyncio.sleep(1.0)
            seen.append(loop.time())
    finally:
        seen.append(-1.0)


def test_a_machine_that_is_held_goes_on_where_it_was(loop: SimLoop) -> None:
    machine, seen = Machine(1), list[float]()

    async def story() -> None:
        loop.start(_count(seen, loop), machine)
        await asyncio.sleep(1.5)
        machine.is_held = True
        await asyncio.sleep(8.5)
        assert seen == [1.0]
        loop.release(machine)
        await asyncio.sleep(10.0)

    loop.run_until_complete(story())
    assert seen == [1.0, 10.0, 11.0, 12.0, 13.0, -1.0]


def test_of_a_machine_that_dies_nothing_more_is_heard(loop: SimLoop) -> None:
    machine, seen = Machine(1), list[float]()

    async def story() -> None:
        loop.start(_count(seen, loop), machine)
        await asyncio.sleep(2.5)
        machine.is_dead = True
        await asyncio.sleep(10.0)

    loop.run_until_complete(story())
    assert seen == [1.0, 2.0]
