"""What tests can provoke with the memory broker: members that come, go and are expelled, and a broker that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

import pytest

from holdfast.errors import ConfigError, LeaseLost, NotSent, SourceAway, SourceError
from holdfast.ports import Progress
from holdfast.streams.memory import MemoryBroker, MemorySource
from holdfast.testing import ManualClock
from holdfast.types import Outgoing, Place


class Owner:
    def __init__(self, takes_for_ever: bool = False, error: Exception | None = None) -> None:
        self.events: list[object] = []
        self._takes_for_ever = takes_for_ever
        self._error = error

    def assigned(self, positions: Mapping[Place, int]) -> None:
        self.events.append(("assigned", dict(positions)))

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        self.events.append(("revoked", list(places)))
        if self._takes_for_ever:
            await asyncio.get_running_loop().create_future()
        if self._error is not None:
            raise self._error
        return {}

    def lost(self, places: Collection[Place]) -> None:
        self.events.append(("lost", list(places)))

    def away(self, why: str) -> None:
        self.events.append(("away", why))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)  # noqa: TID251  # lets the others run


@pytest.fixture
def broker() -> MemoryBroker:
    return MemoryBroker(partitions=2)


async def member(broker: MemoryBroker, clock: ManualClock, owner: Owner) -> MemorySource:
    source = MemorySource("orders", "billing", clock, broker=broker)
    await source.open("orders", [], owner)
    await settle()
    return source


async def test_a_wait_ends_when_the_clock_has_come_that_far(broker: MemoryBroker, clock: ManualClock) -> None:
    source = await member(broker, clock, Owner())
    waiting = asyncio.create_task(source.receive(10, 5.0))
    await settle()
    assert not waiting.done()
    clock.advance(5.0)
    assert list(await waiting) == []


async def test_who_is_expelled_is_told_and_joins_again_with_its_next_receive(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    owner = Owner()
    source = await member(broker, clock, owner)
    await source.send([Outgoing("orders", b"x", partition=0)])
    (message,) = await source.receive(10, 0.0)
    broker.expel(source)
    await source.commit({("orders", 0): Progress(position=1)})  # passed over
    with pytest.raises(LeaseLost):
        await source.transact([], {("orders", 0): Progress(position=1)})
    assert list(await source.receive(10, 0.0)) == []
    await settle()
    assert list(await source.receive(10, 0.0)) == [message]
    everything = {("orders", 0): 0, ("orders", 1): 0}
    assert owner.events == [("assigned", everything), ("lost", list(everything)), ("assigned", everything)]


async def test_an_owner_that_takes_too_long_loses_its_partitions(broker: MemoryBroker, clock: ManualClock) -> None:
    slow, other = Owner(takes_for_ever=True), Owner()
    await member(broker, clock, slow)
    await member(broker, clock, other)
    assert other.events == []
    clock.advance(10.0)
    await settle()
    assert slow.events[1:] == [("revoked", [("orders", 1)]), ("lost", [("orders", 1)])]
    assert other.events == [("assigned", {("orders", 1): 0})]


async def test_an_owner_that_fails_holds_nobody_up(
    broker: MemoryBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = Owner(error=RuntimeError("no")), Owner()
    await member(broker, clock, broken)
    await member(broker, clock, other)
    assert broken.events[1:] == [("revoked", [("orders", 1)]), ("lost", [("orders", 1)])]
    assert other.events == [("assigned", {("orders", 1): 0})]
    assert "an owner failed" in caplog.text


async def test_a_broker_that_is_away_is_said_and_refuses_everything(broker: MemoryBroker, clock: ManualClock) -> None:
    owner = Owner()
    source = await member(broker, clock, owner)
    broker.go_away("no network")
    progress = {("orders", 0): Progress(position=1)}
    for call in (
        source.receive(1, 0.0),
        source.send([Outgoing("orders", b"x")]),
        source.commit(progress),
        source.transact([Outgoing("orders", b"x")], progress),
        source.lags(["orders"]),
        source.ensure(["a"], like="orders"),
    ):
        with pytest.raises(SourceAway, match="no network"):
            await call
    broker.come_back()
    assert owner.events[1:] == [("away", "no network"), ("away", "")]
    assert [lag.lag for lag in await source.lags(["orders"])] == [0, 0]


async def test_a_paused_partition_that_was_lost_is_not_paused_when_it_comes_back(
    broker: MemoryBroker, clock: ManualClock
) -> None:
    source = await member(broker, clock, Owner())
    source.pause([("orders", 0)])
    broker.expel(source)
    await source.send([Outgoing("orders", b"x", partition=0)])
    await source.receive(1, 0.0)
    await settle()
    assert [message.value for message in await source.receive(1, 0.0)] == [b"x"]


async def test_all_of_a_send_is_refused_or_nothing(broker: MemoryBroker, clock: ManualClock) -> None:
    source = MemorySource("orders", "billing", clock, broker=broker)
    with pytest.raises(NotSent, match="no partition 7"):
        await source.send([Outgoing("orders", b"x"), Outgoing("orders", b"y", partition=7)])
    assert [batch async for batch in source.read("orders")] == []


async def test_a_topic_has_one_number_of_partitions(broker: MemoryBroker) -> None:
    broker.create_topic("orders", 3)
    broker.create_topic("orders")
    with pytest.raises(SourceError, match="has 3 partitions already"):
        broker.create_topic("orders", 2)


async def test_settings_that_cannot_work_are_refused(clock: ManualClock) -> None:
    with pytest.raises(ConfigError, match="partitions=0"):
        MemoryBroker(partitions=0)
    with pytest.raises(ConfigError, match="handover_s=0"):
        MemorySource("orders", "billing", clock, handover_s=0)
    with pytest.raises(ConfigError, match="start='x'"):
        MemorySource("orders", "billing", clock, start="x")  # type: ignore[arg-type]
