"""The way from one machine to the store: requests and replies take time, are lost, come late or twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TYPE_CHECKING, Final, TypeVar

from holdfast.errors import StoreAway
from holdfast.testing.faulty import FaultyStore
from tests.simulation.loop import MACHINE, Machine, outside
from tests.simulation.weather import LEASE_S

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")
PATIENCE_S: Final = 1.0
"""After so long without a reply a caller hears that nobody answers."""
_DELAYS: Final = {"away": LEASE_S, "lost": LEASE_S, "late": LEASE_S, "slow": 3 * LEASE_S}
"""What becomes of a heartbeat, and for how long the lease may be over for it."""


class Wire(FaultyStore):
    """A machine's own way to the store of its world."""

    def __init__(self, world: World, machine: Machine) -> None:
        super().__init__(world.store, world.clock)
        self._world = world
        self._machine = machine
        self._outside: Context = outside()

    async def _pass(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        if verb == "wait":  # nobody is told anything by it
            return await call()
        world, dice = self._world, self._world.dice
        fate = world.fate_of_call()
        if verb == "heartbeat" and fate in _DELAYS:
            world.note_fault("heartbeat", self._machine, _DELAYS[fate])
        world.trace(verb, fate)
        if fate == "dies_before":
            world.kill(self._machine)
            await _for_ever()
        await asyncio.sleep(self._travel_s(fate))
        if fate == "away" or self._is_cut():
            await asyncio.sleep(dice.random() * PATIENCE_S)
            raise StoreAway("simulated: no connection")
        if fate == "late":
            wait_s = dice.random() * PATIENCE_S
            world.loop.call_later(wait_s + dice.random() * 2.0, self._do_unheard, call, context=self._outside)
            await asyncio.sleep(wait_s)
            raise StoreAway("simulated: no answer in time")
        answer = self._outside.run(_driven, call())
        if fate == "twice":
            world.loop.call_later(dice.random() * 0.5, self._do_unheard, call, context=self._outside)
        if fate == "dies_after":
            world.kill(self._machine)
            await _for_ever()
        await asyncio.sleep(self._travel_s(fate))
        if fate == "lost" or self._is_cut():
            await asyncio.sleep(dice.random() * PATIENCE_S)
            raise StoreAway("simulated: the reply is lost")
        return answer

    def _pass_now(self, verb: str, call: Callable[[], T]) -> T:
        return call()

    def _travel_s(self, fate: str) -> float:
        slowness = 2.0 if fate == "slow" else self._world.weather.latency_s
        return slowness * self._world.dice.random()

    def _is_cut(self) -> bool:
        return self._world.is_cut(self._machine)

    def _do_unheard(self, call: Callable[[], Awaitable[object]]) -> None:
        self._world.trace("unheard", "")
        _driven(call())


def _driven(awaitable: Awaitable[T]) -> T:
    """The answer of a verb that waits for nothing, in one step and in nobody's name."""
    assert MACHINE.get() is None
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    raise AssertionError("a verb of the memory store waits")


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
