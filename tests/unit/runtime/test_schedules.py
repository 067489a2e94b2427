"""Every tick makes one job: with many workers, deaths at any line, clocks that jump, pauses and new timings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from holdfast.errors import ConfigError, StoreError
from holdfast.policy.schedule import Every
from holdfast.ports import Enqueued, Exchange, Exchanged, Query
from holdfast.runtime.schedules import Schedule, Schedules, ScheduleStatus, tick_id
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import NewJob

NOON = 1_704_888_000.0


def hourly(**options: Any) -> Schedule:
    fields: dict[str, Any] = {"name": "report", "task": "send_report", "timing": 3600}
    return Schedule(**(fields | options))


async def ticks_in(store: MemoryStore) -> list[float]:
    """The ticks that made jobs, by the time in their ids, oldest first."""
    page = await store.find(Query(limit=1000))
    return sorted((UUID(record.id).int >> 80) / 1000 for record in page.items)


class DyingStore(MemoryStore):
    """Dies before or after the n-th call that writes."""

    def __init__(self, clock: ManualClock, dies_at: int, is_after: bool) -> None:
        super().__init__(clock)
        self.left = dies_at
        self.is_after = is_after

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        self._die_before()
        answer = await super().enqueue(jobs, connection)
        self._die_after()
        return answer

    async def exchange(self, exchange: Exchange) -> Exchanged:
        self._die_before()
        answer = await super().exchange(exchange)
        self._die_after()
        return answer

    def _die_before(self) -> None:
        self.left -= 1
        if self.left == 0 and not self.is_after:
            raise StoreError("died before")

    def _die_after(self) -> None:
        if self.left == 0 and self.is_after:
            raise StoreError("died after")


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


async def test_a_schedule_starts_at_first_sight_and_fires_each_tick_once(store: MemoryStore) -> None:
    schedules = Schedules(store, [hourly(payload={"to": "all"}, queue="mail", priority=3, tenant="t")])
    made = [await schedules.fire(NOON + 10 + second) for second in range(0, 7300, 10)]
    assert [ids for ids in made if ids] == [[tick_id("report", NOON + 3600)], [tick_id("report", NOON + 7200)]]
    (record,) = await store.get([tick_id("report", NOON + 3600)])
    assert record is not None
    assert (record.task, record.payload, record.queue, record.priority, record.tenant) == (
        "send_report",
        b'{"to":"all"}',
        "mail",
        3,
        "t",
    )


async def test_the_id_of_a_tick_is_a_uuid7_of_its_own_time() -> None:
    made = UUID(tick_id("report", NOON))
    assert (made.version, made.variant, made.int >> 80) == (7, "specified in RFC 4122", int(NOON * 1000))
    assert len({tick_id(name, tick) for name in ("a", "b") for tick in (NOON, NOON + 1)}) == 4


async def test_many_workers_fire_each_tick_once(store: MemoryStore) -> None:
    workers = [Schedules(store, [hourly()]) for _ in range(5)]
    made: list[str] = []
    for second in range(0, 7201, 60):
        for worker in workers:
            made += await worker.fire(NOON + second)
    assert made == [tick_id("report", NOON + 3600), tick_id("report", NOON + 7200)]
    assert await ticks_in(store) == [NOON + 3600, NOON + 7200]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
async def test_killed_at_any_call_each_tick_fires_once(clock: ManualClock, dies_at: int, is_after: bool) -> None:
    store = DyingStore(clock, dies_at, is_after)
    schedules = Schedules(store, [hourly(), hourly(name="other")])
    deaths = 0
    for second in range(0, 3 * 3600 + 1, 600):
        try:
            await schedules.fire(NOON + second)
        except StoreError:
            deaths += 1
            schedules = Schedules(store, [hourly(), hourly(name="other")])
            await schedules.fire(NOON + second)
    assert deaths == 1
    assert await ticks_in(store) == sorted([NOON + 3600, NOON + 7200, NOON + 10800] * 2)


async def test_of_the_ticks_missed_while_all_was_down_the_latest_fires_once(store: MemoryStore) -> None:
    await Schedules(store, [hourly()]).fire(NOON)
    later = Schedules(store, [hourly()])
    assert await later.fire(NOON + 5 * 3600 + 1800) == [tick_id("report", NOON + 5 * 3600)]
    assert await later.fire(NOON + 5 * 3600 + 1801) == []


async def test_missed_ticks_are_skipped_when_asked_for(store: MemoryStore) -> None:
    skipping = hourly(missed="skip")
    await Schedules(store, [skipping]).fire(NOON)
    later = Schedules(store, [skipping])
    assert await later.fire(NOON + 5 * 3600 + 1800) == []
    assert await later.fire(NOON + 6 * 3600 + 1) == [tick_id("report", NOON + 6 * 3600)]


async def test_a_clock_that_jumps_two_hours_never_fires_a_tick_twice(store: MemoryStore) -> None:
    schedules = Schedules(store, [hourly(timing=60)])
    made: list[str] = []
    for start in (NOON, NOON + 7200, NOON, NOON - 7200, NOON + 7000):
        for second in range(0, 600, 20):
            made += await schedules.fire(start + second)
    assert len(made) == len(set(made)) == len(await ticks_in(store))
    assert await schedules.fire(NOON + 7200 + 600) == [tick_id("report", NOON + 7800)]


async def test_a_new_timing_starts_anew(store: MemoryStore) -> None:
    await Schedules(store, [hourly()]).fire(NOON)
    changed = Schedules(store, [hourly(timing=Every(1800))])
    assert await changed.fire(NOON + 7201) == []
    assert await changed.fire(NOON + 9000) == [tick_id("report", NOON + 9000)]


async def test_a_paused_schedule_fires_nothing_in_any_worker_and_makes_up_for_nothing(store: MemoryStore) -> None:
    worker, person = Schedules(store, [hourly()]), Schedules(store, [hourly()])
    await worker.fire(NOON)
    await person.pause("report", NOON + 60)
    assert await worker.fire(NOON + 3600) == []
    (status,) = await person.list(NOON + 3600)
    assert status == ScheduleStatus(
        name="report", task="send_report", timing="every 3600 s", next_at=None, last_at=None, is_paused=True
    )
    await person.resume("report", NOON + 7300)
    await person.resume("report", NOON + 7400)
    assert await worker.fire(NOON + 7300) == []
    assert await worker.fire(NOON + 10_800) == [tick_id("report", NOON + 10_800)]
    (status,) = await person.list(NOON + 10_801)
    assert (status.last_at, status.next_at, status.is_paused) == (NOON + 10_800, NOON + 14_400, False)


async def test_a_schedule_may_be_paused_before_it_was_ever_seen(store: MemoryStore) -> None:
    await Schedules(store, [hourly()]).pause("report", NOON)
    assert await Schedules(store, [hourly()]).fire(NOON + 3600) == []


async def test_resuming_what_is_not_paused_loses_no_tick(store: MemoryStore) -> None:
    schedules = Schedules(store, [hourly()])
    await schedules.fire(NOON)
    await schedules.resume("report", NOON + 3605)
    assert await schedules.fire(NOON + 3606) == [tick_id("report", NOON + 3600)]


async def test_the_store_is_left_alone_while_nothing_is_due(clock: ManualClock) -> None:
    store = DyingStore(clock, dies_at=3, is_after=False)
    schedules = Schedules(store, [hourly()])
    await schedules.fire(NOON)
    for second in range(3600):
        assert await schedules.fire(NOON + second) == []
    with pytest.raises(StoreError):
        await schedules.fire(NOON + 3600)


async def test_what_cannot_work_is_refused(store: MemoryStore) -> None:
    wrongs: list[dict[str, Any]] = [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "x" * 201},
        {"missed": "twice"},
        {"timing": "*/0 * * * *"},
        {"timing": None},
        {"payload": {"a": object()}},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=f"{next(iter(wrong))}|line"):
            hourly(**wrong)
    with pytest.raises(ConfigError, match="two schedules"):
        Schedules(store, [hourly(), hourly()])
    with pytest.raises(ConfigError, match="no such schedule; there are: report"):
        await Schedules(store, [hourly()]).pause("nope", NOON)


async def test_while_a_deploy_changes_the_timing_no_tick_of_either_is_lost_or_fired_twice(store: MemoryStore) -> None:
    old = Schedules(store, [hourly(timing="* * * * *")])
    new = Schedules(store, [hourly(timing="*/2 * * * *")])
    await old.fire(NOON)
    for second in range(600, 4200, 5):
        await old.fire(NOON + second)
        await new.fire(NOON + second + 0.5)
    fired = [tick for tick in await ticks_in(store) if tick > NOON + 600]
    assert fired == [NOON + 60 * minute for minute in range(11, 70)]


async def test_a_timing_that_comes_back_after_long_starts_anew(store: MemoryStore) -> None:
    await Schedules(store, [hourly()]).fire(NOON)
    await Schedules(store, [hourly(timing=1800)]).fire(NOON + 10)
    for day in range(1, 5):
        await Schedules(store, [hourly(timing=1800)]).fire(NOON + 10 + 86_400 * day)
    assert await Schedules(store, [hourly()]).fire(NOON + 5 * 86_400) == []
