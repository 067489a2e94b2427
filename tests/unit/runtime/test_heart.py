"""A heart beats on its own thread, and says once that the lease is lost, whatever keeps it from being renewed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from holdfast.clock import SystemClock
from holdfast.errors import LeaseLost, StoreError
from holdfast.ports import Beat, WorkerRecord
from holdfast.runtime.heart import Heart
from holdfast.runtime.outage import Outage
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock

RECORD = WorkerRecord(id="w", lease_s=10.0)


class HeartClock(ManualClock):
    """Says until when the heart waits, so that the test moves the clock exactly there."""

    def __init__(self) -> None:
        super().__init__(auto=False)
        self.ends: list[float] = []

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        end = self.monotonic() + (seconds or 0.0)
        self.ends.append(end)
        while not event.wait(0.001):
            if self.monotonic() >= end:
                return event.is_set()
        return True


class Patient:
    """A heart on a clock that the test moves, and what it said."""

    def __init__(self, answer: Callable[[WorkerRecord], Awaitable[Beat]] | None = None) -> None:
        self.clock = HeartClock()
        self.store = MemoryStore(self.clock)
        self.beats: list[Beat] = []
        self.lost: list[str] = []
        self.sent = 0
        self.answer = answer or self.store.heartbeat
        self.is_well = True
        outer = self

        class Store(MemoryStore):
            async def heartbeat(self, worker: WorkerRecord) -> Beat:
                outer.sent += 1
                return await (outer.store.heartbeat if outer.is_well else outer.answer)(worker)

        self.heart = Heart(
            Store(),
            lambda: RECORD,
            every_s=2.0,
            clock=self.clock,
            outage=Outage(self.clock, lambda: 1.0),
            on_beat=self.beats.append,
            on_lost=self.lost.append,
            say=logging.getLogger("holdfast.worker").log,
        )

    async def beat(self) -> None:
        """Let one interval pass, and wait until the heart waits again, or has said that it is lost."""
        await until(lambda: bool(self.clock.ends))
        waits, said = len(self.clock.ends), len(self.lost)
        await self.advance()
        await until(lambda: len(self.clock.ends) > waits or len(self.lost) > said)

    async def advance(self) -> None:
        """To the instant of the next beat."""
        await until(lambda: bool(self.clock.ends))
        self.clock.advance(self.clock.ends[-1] - self.clock.monotonic())


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():
            await SystemClock().asleep(0.001)


async def test_it_registers_the_worker_and_renews_its_lease() -> None:
    patient = Patient()
    await patient.heart.start()
    for n in range(1, 11):
        await patient.beat()
        assert len(patient.beats) == n
    (record,) = (await patient.store.stats()).workers
    assert record.seen_at == pytest.approx(patient.clock.now())
    patient.heart.stop()
    assert patient.lost == []


async def test_a_store_that_does_not_take_the_id_keeps_it_from_starting() -> None:
    patient = Patient()
    await patient.store.heartbeat(WorkerRecord(id="w", lease_s=0.0))
    with pytest.raises(LeaseLost, match="given this worker up"):
        await patient.heart.start()
    patient.heart.stop()


async def test_it_is_lost_when_the_store_has_given_it_up() -> None:
    patient = Patient()
    await patient.heart.start()
    await patient.store.heartbeat(WorkerRecord(id="w", lease_s=0.0))
    await patient.beat()
    await until(lambda: patient.lost == ["the store has given it up"])
    patient.heart.stop()


@pytest.mark.parametrize("error", [StoreError("no connection"), OSError("broken pipe"), ZeroDivisionError()])
async def test_errors_of_whatever_kind_are_borne_until_the_lease_would_be_over(error: Exception) -> None:
    async def fail(worker: WorkerRecord) -> Beat:
        raise error

    patient = Patient(fail)
    await patient.heart.start()
    patient.is_well = False
    await until(lambda: bool(patient.clock.ends))
    while patient.clock.ends[-1] < 9.0:
        await patient.beat()
        assert patient.lost == []
    await patient.beat()  # a tenth of the lease is left for stopping the work
    assert len(patient.lost) == 1
    assert "could not be renewed" in patient.lost[0]
    assert patient.clock.monotonic() == pytest.approx(9.0)
    pauses = [end - before for before, end in pairwise(patient.clock.ends)]
    assert pauses[:4] == pytest.approx([0.2, 0.4, 0.5, 0.5])  # sooner than the next beat would have come
    assert patient.sent == 1 + 16, "a store that drops one in five would now and then cost a lease"
    patient.heart.stop()


async def test_one_error_is_forgotten_when_the_next_beat_succeeds() -> None:
    async def fail(worker: WorkerRecord) -> Beat:
        raise StoreError("no connection")

    patient = Patient(fail)
    await patient.heart.start()
    for is_well in (False, False, True, False, False, False, True):
        patient.is_well = is_well
        await patient.beat()
    assert patient.lost == []
    patient.heart.stop()


async def test_a_beat_that_is_never_answered_loses_the_lease_too() -> None:
    hanging = threading.Event()

    async def hang(worker: WorkerRecord) -> Beat:
        hanging.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    patient = Patient(hang)
    await patient.heart.start()
    patient.is_well = False
    await patient.advance()
    await until(hanging.is_set)
    assert patient.lost == []
    patient.clock.advance(7.0)
    await until(lambda: len(patient.lost) == 1)
    assert "no answer in time" in patient.lost[0]
    patient.heart.stop()


async def test_a_heart_that_waits_for_an_answer_is_stopped_at_once() -> None:
    hanging = threading.Event()

    async def hang(worker: WorkerRecord) -> Beat:
        hanging.set()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    patient = Patient(hang)
    await patient.heart.start()
    patient.is_well = False
    await patient.advance()
    await until(hanging.is_set)
    patient.heart.stop()
    assert patient.lost == []


async def test_what_was_cancelled_is_told() -> None:
    patient = Patient()

    async def tell(worker: WorkerRecord) -> Beat:
        return Beat(is_alive=True, cancelled=("job",))

    patient.answer = tell
    await patient.heart.start()
    patient.is_well = False
    await patient.beat()
    await until(lambda: [beat.cancelled for beat in patient.beats] == [("job",)])
    patient.heart.stop()
    patient.heart.stop()
