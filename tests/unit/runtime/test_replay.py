"""Replays send each letter once, canaries first, at their rate, whoever dies on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from holdfast.clock import new_id, new_token
from holdfast.errors import ConfigError, IllegalChange, NotFound, StoreError
from holdfast.ports import (
    Changed,
    Claim,
    Exchange,
    Exchanged,
    Operation,
    Query,
    Settlement,
    Value,
    ValueChange,
    WorkerRecord,
)
from holdfast.runtime import replay as driver
from holdfast.runtime import replays as desks
from holdfast.runtime.replay import HOLD_S, Replay, ReplayState, decode, key_of, step
from holdfast.runtime.replays import Preview, Replays
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import Attempt, Change, FailureType, Group, JobState, NewJob

WORKER = WorkerRecord(id="w", lease_s=86_400.0)
ALL = Query()


class Bench:
    """A memory store, and a worker on it that does what it is told."""

    def __init__(self, clock: ManualClock, store: MemoryStore | None = None) -> None:
        self.clock = clock
        self.store = store or MemoryStore(clock)
        self.runs: Counter[str] = Counter()

    async def dead(self, n: int, fingerprint: str = "1-a", payload: bytes = b'{"n":1}') -> list[str]:
        """So many dead letters of one cause."""
        ids = [new_id() for _ in range(n)]
        await self.store.enqueue([NewJob(id=one, task="t", payload=payload) for one in ids])
        await self.work(Change.BURY, fingerprint)
        self.clock.advance(1.0)
        return ids

    async def work(self, change: Change, fingerprint: str = "", limit: int = 1_000_000) -> list[str]:
        """Claim what can be had, and settle it so."""
        await self.store.heartbeat(WORKER)
        claim = Claim(worker="w", token=new_token(), limit=limit)
        deliveries = (await self.store.exchange(Exchange(claim=claim))).deliveries
        now = self.clock.now()
        settlements = [
            Settlement(
                id=one.id,
                token=one.token,
                change=change,
                attempt=Attempt(
                    number=one.attempt,
                    started_at=now,
                    ended_at=now,
                    outcome=change,
                    failure_type=FailureType.PERMANENT if fingerprint else None,
                    error_name="ValueError" if fingerprint else "",
                    message="no good" if fingerprint else "",
                    fingerprint=fingerprint,
                ),
            )
            for one in deliveries
        ]
        assert all((await self.store.exchange(Exchange(settlements=settlements))).settled)
        self.runs.update(one.id for one in deliveries)
        return [one.id for one in deliveries]

    async def count(self, state: JobState) -> int:
        return len((await self.store.find(Query(states=(state,), limit=1_000_000))).items)

    async def value(self, replay: Replay) -> Value:
        values = (await self.store.exchange(Exchange(seen=0))).values
        return next(one for one in values if one.key == key_of(replay.id))

    async def step(self, replay: Replay, worker: str = "w", **options: Any) -> Replay:
        newest = await step(self.store, await self.value(replay), worker, self.clock.now(), **options)
        assert newest is not None
        return decode(newest)


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    return Bench(clock)


@pytest.fixture
def replays(bench: Bench) -> Replays:
    return Replays(bench.store)


# ---- the whole of it


async def test_all_letters_go_once_and_the_replay_is_done(bench: Bench, replays: Replays) -> None:
    await bench.dead(950)
    started = await replays.start(ALL)
    assert (started.total, started.sent, started.state) == (950, 0, ReplayState.RUNNING)
    ended = await bench.step(started)
    assert (ended.state, ended.sent, ended.skipped, ended.why) == (ReplayState.DONE, 950, 0, "")
    assert await bench.count(JobState.QUEUED) == 950


async def test_a_letter_that_ended_in_the_very_instant_counts_and_comes_back_once(bench: Bench) -> None:
    (one,) = await bench.dead(1)
    replays = Replays(bench.store)
    await bench.store.change(Operation(change=Change.REPLAY, ids=[one]))
    await bench.work(Change.BURY, "1-a")  # dead again, in the instant the replay begins
    started = await replays.start(ALL)
    assert started.total == 1
    halfway = await bench.step(started, batches=1)
    assert (halfway.sent, await bench.count(JobState.QUEUED)) == (1, 1)
    await bench.work(Change.BURY, "1-a")
    assert (await bench.step(started)).state is ReplayState.DONE
    assert await bench.count(JobState.DEAD_LETTER) == 1


async def test_letters_that_die_after_the_start_or_come_back_dead_are_not_sent(bench: Bench, replays: Replays) -> None:
    old = await bench.dead(30)
    started = await replays.start(ALL)
    bench.clock.advance(1.0)
    new = await bench.dead(30)
    for _ in range(10):
        await bench.step(started, batch=10, batches=1)
        await bench.work(Change.BURY, "1-a")
    assert (await replays.show(started.id)).state is ReplayState.DONE
    assert {bench.runs[one] for one in old} == {2}
    assert {bench.runs[one] for one in new} == {1}


async def test_a_filter_leaves_the_others_alone(bench: Bench, replays: Replays) -> None:
    await bench.dead(3, "1-a")
    await bench.dead(4, "1-b")
    started = await replays.start(Query(fingerprint="1-b"))
    assert (await bench.step(started)).sent == 4
    left = await bench.store.find(Query(states=(JobState.DEAD_LETTER,)))
    assert {one.fingerprint for one in left.items} == {"1-a"}


async def test_two_replays_of_one_group_queue_each_letter_once(bench: Bench, replays: Replays) -> None:
    await bench.dead(100)
    first, second = await replays.start(ALL), await replays.start(ALL)
    for _ in range(20):
        await bench.step(first, "w1", batch=7, batches=1)
        await bench.step(second, "w2", batch=7, batches=1)
    ended = [await replays.show(one.id) for one in (first, second)]
    assert [one.state for one in ended] == [ReplayState.DONE] * 2
    assert sum(one.sent for one in ended) == 100
    assert [one.sent + one.skipped for one in ended] == [100, 100]
    assert await bench.count(JobState.QUEUED) == 100


async def test_starting_twice_with_one_id_makes_one_replay(bench: Bench, replays: Replays) -> None:
    await bench.dead(3)
    first = await replays.start(ALL, replay_id="click-1")
    assert await replays.start(Query(task="other"), replay_id="click-1") == first
    assert await replays.list() == [first]


async def test_a_dry_run_counts_and_shows_and_stores_nothing(bench: Bench, replays: Replays) -> None:
    ids = await bench.dead(12, payload=b'{"a":1,"b":2}')
    preview = await replays.start(ALL, edit={"b": None, "c": 3}, dry_run=True)
    assert isinstance(preview, Preview)
    assert preview.total == 12
    assert [one.id for one in preview.sample] == ids[:-6:-1]
    assert {(one.payload, one.original_payload) for one in preview.sample} == {(b'{"a":1,"c":3}', b'{"a":1,"b":2}')}
    assert await replays.list() == []
    assert await bench.count(JobState.DEAD_LETTER) == 12


# ---- deaths


class DyingStore(MemoryStore):
    """Dies before or after the n-th call that writes, once."""

    left = 0
    is_after = False
    sent: Counter[str]

    async def change(self, operation: Operation) -> list[Changed]:
        self._die(is_after=False)
        answer = await super().change(operation)
        self.sent.update(one.id for one in answer if one.is_done)
        self._die(is_after=True)
        return answer

    async def exchange(self, exchange: Exchange) -> Exchanged:
        self._die(is_after=False)
        answer = await super().exchange(exchange)
        self._die(is_after=True)
        return answer

    def _die(self, *, is_after: bool) -> None:
        self.left -= not is_after
        if self.left == 0 and is_after == self.is_after:
            self.left = -1
            raise StoreError("died")


@pytest.mark.parametrize("comes_back_dead", [False, True])
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 8))
async def test_killed_at_any_call_no_letter_goes_twice_or_is_missed(
    clock: ManualClock, dies_at: int, is_after: bool, comes_back_dead: bool
) -> None:
    store = DyingStore(clock)
    store.sent = Counter()
    bench = Bench(clock, store)
    ids = await bench.dead(25, payload=b'{"a":1}')
    started = await Replays(store).start(ALL, canary=2, edit={"b": 2})
    store.sent.clear()
    deaths = 0
    for n in range(30):
        value = await bench.value(started)
        store.left, store.is_after = (-1 if deaths else dies_at), is_after
        try:
            await step(store, value, f"w{n}", clock.now(), batch=6, batches=3)
        except StoreError:
            deaths += 1
        store.left = -1
        dead_again = comes_back_dead and (await Replays(store).show(started.id)).verdict == "passed"
        await bench.work(Change.BURY if dead_again else Change.COMPLETE, "1-a" if dead_again else "")
        clock.advance(HOLD_S + 1)
    ended = await Replays(store).show(started.id)
    assert (ended.state, ended.sent, ended.skipped) == (ReplayState.DONE, 25, 0)
    assert store.sent == Counter(ids)
    records = await store.get(ids)
    assert {one.payload for one in records if one} == {b'{"a":1,"b":2}'}
    assert deaths == 1


async def test_a_batch_that_was_begun_is_left_to_its_worker_until_its_time_is_over(clock: ManualClock) -> None:
    store = DyingStore(clock)
    store.sent = Counter()
    bench = Bench(clock, store)
    await bench.dead(5)
    started = await Replays(store).start(ALL)
    value = await bench.value(started)
    store.left, store.is_after = 2, False  # the batch is written down, and then it dies
    with pytest.raises(StoreError):
        await step(store, value, "w1", clock.now())
    assert len((await bench.step(started, "w2")).pending) == 5
    clock.advance(HOLD_S)
    assert (await bench.step(started, "w2")).sent == 5


async def test_letters_that_another_replay_sent_and_that_died_again_are_not_sent_by_a_batch_that_is_late(
    clock: ManualClock,
) -> None:
    store = DyingStore(clock)
    store.sent = Counter()
    bench = Bench(clock, store)
    ids = await bench.dead(5)
    late, other = await Replays(store).start(ALL), await Replays(store).start(ALL)
    value = await bench.value(late)
    store.left, store.is_after = 2, False  # the batch is written down, and then its worker dies
    with pytest.raises(StoreError):
        await step(store, value, "w1", clock.now())
    assert (await bench.step(other, "w2")).sent == 5
    clock.advance(HOLD_S)
    await bench.work(Change.BURY, "1-a")
    assert (await bench.step(late, "w2")).state is ReplayState.DONE
    await bench.work(Change.BURY, "1-a")
    assert bench.runs == Counter(dict.fromkeys(ids, 2))


async def test_a_hold_from_before_the_clock_was_set_back_holds_nobody(clock: ManualClock) -> None:
    store = DyingStore(clock)
    store.sent = Counter()
    bench = Bench(clock, store)
    await bench.dead(5)
    started = await Replays(store).start(ALL)
    value = await bench.value(started)
    store.left, store.is_after = 2, False
    with pytest.raises(StoreError):
        await step(store, value, "w1", clock.now())
    newest = await step(store, await bench.value(started), "w2", clock.now() - 7200)
    assert newest is not None
    assert decode(newest).sent == 5


async def test_a_worker_that_slept_on_its_batch_sends_nothing_again(bench: Bench, replays: Replays) -> None:
    ids = await bench.dead(5)
    started = await replays.start(ALL)
    stale = await bench.value(started)
    assert (await bench.step(started, "w2")).sent == 5
    await bench.work(Change.BURY, "1-a")
    newest = await step(bench.store, stale, "w1", bench.clock.now())
    assert newest is not None
    assert (decode(newest).state, decode(newest).sent) == (ReplayState.DONE, 5)
    assert bench.runs == Counter(dict.fromkeys(ids, 2))


# ---- canaries


async def test_canaries_go_first_and_the_rest_once_all_have_completed(bench: Bench, replays: Replays) -> None:
    await bench.dead(20)
    started = await replays.start(ALL, canary=3)
    waiting = await bench.step(started)
    assert (waiting.sent, waiting.verdict, len(waiting.canaries)) == (3, "waiting", 3)
    await bench.work(Change.COMPLETE, limit=2)
    assert (await bench.step(started)).sent == 3
    await bench.work(Change.COMPLETE)
    ended = await bench.step(started)
    assert (ended.state, ended.verdict, ended.sent) == (ReplayState.DONE, "passed", 20)


@pytest.mark.parametrize("change", [Change.BURY, Change.RETRY, Change.FAIL])
async def test_a_canary_that_fails_with_the_same_cause_stops_the_replay(
    bench: Bench, replays: Replays, change: Change
) -> None:
    await bench.dead(20)
    started = await replays.start(ALL, canary=2)
    await bench.step(started)
    await bench.work(Change.COMPLETE, limit=1)
    await bench.work(change, "1-a")
    ended = await bench.step(started)
    assert (ended.state, ended.verdict, ended.sent) == (ReplayState.STOPPED, "failed", 2)
    assert "failed again with the same cause: ValueError: no good" in ended.why
    assert ended.ended_at == bench.clock.now()
    assert (await bench.step(started)).sent == 2
    assert await bench.count(JobState.DEAD_LETTER) == (19 if change is Change.BURY else 18)


async def test_a_canary_that_is_retried_for_another_cause_is_waited_for(bench: Bench, replays: Replays) -> None:
    await bench.dead(5)
    started = await replays.start(ALL, canary=1)
    await bench.step(started)
    await bench.work(Change.RETRY, "1-other")
    assert (await bench.step(started)).verdict == "waiting"
    await bench.work(Change.COMPLETE)
    assert (await bench.step(started)).state is ReplayState.DONE


async def test_a_canary_that_dies_of_another_cause_stops_the_replay(bench: Bench, replays: Replays) -> None:
    await bench.dead(5)
    started = await replays.start(ALL, canary=1)
    await bench.step(started)
    await bench.work(Change.BURY, "1-other")
    ended = await bench.step(started)
    assert (ended.state, ended.verdict) == (ReplayState.STOPPED, "failed")
    assert "with another cause: ValueError: no good" in ended.why


async def test_when_every_canary_was_cancelled_nobody_knows_and_it_stops(bench: Bench, replays: Replays) -> None:
    await bench.dead(5)
    started = await replays.start(ALL, canary=1)
    picked = (await bench.step(started)).canaries[0].id
    await bench.store.change(Operation(change=Change.CANCEL, ids=[picked]))
    ended = await bench.step(started)
    assert (ended.state, ended.why) == (ReplayState.STOPPED, "no canary completed: they were cancelled")


async def test_a_canary_whose_record_is_gone_has_ended_well(bench: Bench, replays: Replays) -> None:
    await bench.dead(5)
    started = await replays.start(ALL, canary=1)
    await bench.step(started)
    (one,) = await bench.work(Change.COMPLETE)
    await bench.store.change(Operation(change=Change.REMOVE, ids=[one]))
    assert (await bench.step(started)).state is ReplayState.DONE


@pytest.mark.parametrize("n", [0, 1, 3])
async def test_more_canaries_than_letters_is_fine(bench: Bench, replays: Replays, n: int) -> None:
    await bench.dead(n)
    started = await replays.start(ALL, canary=5)
    await bench.step(started)
    await bench.work(Change.COMPLETE)
    ended = await bench.step(started)
    assert (ended.state, ended.sent, ended.verdict) == (ReplayState.DONE, n, "passed" if n else "")


async def test_a_canary_that_somebody_else_took_is_replaced(bench: Bench, replays: Replays) -> None:
    ids = await bench.dead(5)
    started = await replays.start(ALL, canary=2)
    send = bench.store.change
    is_first = True

    async def change(operation: Operation) -> list[Changed]:
        nonlocal is_first
        if is_first:
            is_first = False
            await send(Operation(change=Change.REMOVE, ids=[ids[-1]]))
        return await send(operation)

    bench.store.change = change  # type: ignore[method-assign]
    waiting = await bench.step(started)
    assert [one.id for one in waiting.canaries] == [ids[-2], ids[-3]]
    assert (waiting.sent, waiting.skipped) == (2, 1)


# ---- the rate


async def test_the_rate_is_kept_over_steps_workers_and_pauses(bench: Bench, replays: Replays) -> None:
    await bench.dead(1000)
    started = await replays.start(ALL, rate="10/second")
    sent = [(await bench.step(started)).sent]
    for n in range(20):
        bench.clock.advance(0.5)
        sent.append((await bench.step(started, f"w{n}")).sent)
    assert sent == [1 + 5 * n for n in range(21)]
    await replays.pause(started.id, "lunch")
    bench.clock.advance(3600)
    assert (await bench.step(started)).sent == 101
    resumed = await replays.resume(started.id)
    assert (resumed.state, resumed.why) == (ReplayState.RUNNING, "")
    assert (await bench.step(started)).sent == 101
    bench.clock.advance(0.5)
    assert (await bench.step(started)).sent == 106


async def test_parts_of_a_letter_add_up(bench: Bench, replays: Replays) -> None:
    await bench.dead(200)
    started = await replays.start(ALL, rate=10)
    for _ in range(40):
        await bench.step(started)
        bench.clock.advance(0.375)
    assert (await bench.step(started)).sent == 1 + 150


async def test_a_long_silence_gives_at_most_one_seconds_worth(bench: Bench, replays: Replays) -> None:
    await bench.dead(100)
    started = await replays.start(ALL, rate=10)
    bench.clock.advance(3600)
    assert (await bench.step(started)).sent == 10
    assert (await bench.step(started)).sent == 10


async def test_a_slow_rate_sends_one_letter_at_a_time(bench: Bench, replays: Replays) -> None:
    await bench.dead(10)
    started = await replays.start(ALL, rate="1/minute", canary=3)
    sent = []
    for _ in range(121):
        sent.append((await bench.step(started)).sent)
        bench.clock.advance(1.0)
    assert [sent[0], sent[59], sent[60], sent[119], sent[120]] == [1, 1, 2, 2, 3]


async def test_a_clock_that_was_set_back_does_not_stop_the_rate(bench: Bench, replays: Replays) -> None:
    await bench.dead(10)
    started = await replays.start(ALL, rate=1)
    await bench.step(started)
    now = bench.clock.now() - 7200
    for n in range(3):
        await step(bench.store, await bench.value(started), "w", now + n)
    assert (await replays.show(started.id)).sent == 4


# ---- steering


async def test_a_paused_or_stopped_replay_sends_nothing(bench: Bench, replays: Replays) -> None:
    await bench.dead(10)
    started = await replays.start(ALL)
    paused = await replays.pause(started.id, "why not")
    assert (paused.state, paused.why) == (ReplayState.PAUSED, "why not")
    assert (await bench.step(started)).sent == 0
    stopped = await replays.stop(started.id)
    assert (stopped.state, stopped.why, stopped.ended_at) == (
        ReplayState.STOPPED,
        "stopped by hand",
        bench.clock.now(),
    )
    assert await replays.resume(started.id) == stopped
    assert (await bench.step(started)).sent == 0


async def test_a_pause_in_the_middle_of_a_batch_is_kept_and_the_batch_is_counted(
    bench: Bench, replays: Replays
) -> None:
    await bench.dead(10)
    started = await replays.start(ALL)
    send = bench.store.change

    async def change(operation: Operation) -> list[Changed]:
        await replays.pause(started.id)
        return await send(operation)

    bench.store.change = change  # type: ignore[method-assign]
    paused = await bench.step(started, batch=4)
    assert (paused.state, paused.sent, paused.pending) == (ReplayState.PAUSED, 4, ())


async def test_replays_are_listed_newest_first_and_old_ones_are_forgotten(bench: Bench, replays: Replays) -> None:
    running = await replays.start(ALL, replay_id="running")
    await replays.pause(running.id)
    for n in range(60):
        bench.clock.advance(1.0)
        await replays.start(ALL, replay_id=f"r{n}")
        await replays.stop(f"r{n}")
    assert [one.id for one in await replays.list()] == [*(f"r{n}" for n in range(59, 9, -1)), "running"]


async def test_what_one_tenant_ends_does_not_push_out_what_another_has(bench: Bench) -> None:
    a, b, everybody = Replays(bench.store, tenant="a"), Replays(bench.store, tenant="b"), Replays(bench.store)
    for desk, name in ((b, "b"), (everybody, "all")):
        await desk.start(ALL, replay_id=name)
        await desk.stop(name)
    for n in range(55):
        bench.clock.advance(1.0)
        await a.start(ALL, replay_id=f"r{n}")
        await a.stop(f"r{n}")
    assert [one.id for one in await a.list()] == [f"r{n}" for n in range(54, 4, -1)]
    assert [one.id for one in await b.list()] == ["b"]
    assert "all" in [one.id for one in await everybody.list()]
    assert len(await everybody.list()) == 52


async def test_with_very_many_tenants_whoever_has_the_most_loses_the_oldest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desks, "_KEPT_IN_ALL", 10)
    counts = {"a": 1, "b": 12, "c": 3}
    for tenant, n in counts.items():
        desk = Replays(bench.store, tenant=tenant)
        for number in range(n):
            bench.clock.advance(1.0)
            await desk.start(ALL, replay_id=f"r{number}")
            await desk.stop(f"r{number}")
    await Replays(bench.store).start(ALL)
    kept = {tenant: len(await Replays(bench.store, tenant=tenant).list()) for tenant in counts}
    assert kept == {"a": 1, "b": 6, "c": 3}
    assert [one.id for one in await Replays(bench.store, tenant="b").list()] == [f"r{n}" for n in range(11, 5, -1)]


async def test_a_tenant_has_only_so_many_that_have_not_ended(bench: Bench) -> None:
    a, b = Replays(bench.store, tenant="a"), Replays(bench.store, tenant="b")
    for n in range(20):
        await a.start(ALL, replay_id=f"r{n}", rate=1e-6)
    await a.pause("r3")
    with pytest.raises(IllegalChange, match="20 replays are running or paused"):
        await a.start(ALL, replay_id="one more")
    assert (await a.start(ALL, replay_id="r3")).state is ReplayState.PAUSED
    assert isinstance(await a.start(ALL, dry_run=True), Preview)
    assert (await b.start(ALL, replay_id="one more")).state is ReplayState.RUNNING
    assert (await Replays(bench.store).start(ALL, replay_id="one more")).query.tenant is None
    await a.stop("r0")
    assert (await a.start(ALL, replay_id="one more")).state is ReplayState.RUNNING


async def test_replays_that_begin_at_the_same_moment_are_counted_too(bench: Bench) -> None:
    both = asyncio.Barrier(30)
    groups = bench.store.groups

    async def meet(query: Query) -> list[Group]:
        await both.wait()  # all have seen that there are none
        return await groups(query)

    bench.store.groups = meet  # type: ignore[method-assign]
    ended = await asyncio.gather(*[Replays(bench.store).start(ALL) for _ in range(30)], return_exceptions=True)
    assert sum(isinstance(one, IllegalChange) for one in ended) == 10
    assert len(await Replays(bench.store).list()) == 20


async def test_one_tenants_ids_are_its_own_and_say_nothing_about_others(bench: Bench) -> None:
    a, b, everybody = Replays(bench.store, tenant="a"), Replays(bench.store, tenant="b"), Replays(bench.store)
    await b.start(ALL, replay_id="deploy")
    await everybody.start(ALL, replay_id="whole")
    await everybody.start(Query(tenant="a"), replay_id="for a")
    for replay_id in ("deploy", "whole"):
        for verb in (a.show, a.pause, a.resume, a.stop):
            with pytest.raises(NotFound, match=replay_id):
                await verb(replay_id)
        started = await a.start(Query(tenant="b"), replay_id=replay_id)
        assert (started.id, started.query.tenant) == (replay_id, "a")
        assert (await a.stop(replay_id)).id == replay_id
    assert (await b.show("deploy")).state is ReplayState.RUNNING
    assert (await everybody.show("whole")).state is ReplayState.RUNNING
    assert (await a.pause("for a")).state is ReplayState.PAUSED
    assert {one.id for one in await a.list()} == {"deploy", "whole", "for a"}
    whole = {one.id: one for one in await everybody.list()}
    assert len(whole) == 5
    of_b = next(one for one in whole.values() if one.query.tenant == "b")
    assert of_b.id.endswith("~deploy")
    assert (await everybody.stop(of_b.id)).state is ReplayState.STOPPED
    assert (await b.show("deploy")).state is ReplayState.STOPPED


async def test_a_tenants_replay_sends_its_letters_once(bench: Bench) -> None:
    await bench.store.enqueue([NewJob(id=new_id(), task="t", payload=b"{}", tenant=one) for one in ("a", "a", "b")])
    await bench.work(Change.BURY, "1-a")
    started = await Replays(bench.store, tenant="a").start(ALL, replay_id="deploy")
    assert started.total == 2
    values = (await bench.store.exchange(Exchange(seen=0))).values
    await driver.drive(bench.store, values, "w", bench.clock.now())
    ended = await Replays(bench.store, tenant="a").show("deploy")
    assert (ended.state, ended.sent) == (ReplayState.DONE, 2)


async def test_an_id_that_a_newer_holdfast_has_used_is_refused(bench: Bench, replays: Replays) -> None:
    await bench.store.exchange(Exchange(changes=[ValueChange(key_of("x"), 0, b"[]")]))
    with pytest.raises(IllegalChange, match="newer"):
        await replays.start(ALL, replay_id="x")


async def test_drive_steps_only_replays(bench: Bench, replays: Replays) -> None:
    await bench.dead(3)
    started = await replays.start(ALL)
    values = [Value("breaker:x", 1, b"not a replay"), Value(key_of("gone"), 2, None), await bench.value(started)]
    await driver.drive(bench.store, values, "w", bench.clock.now())
    assert (await replays.show(started.id)).sent == 3


UNREADABLE = [b'{"id":"x","query":{},"created_at":1,"state":"draining"}', b'{"id":', b"[]"]


@pytest.mark.parametrize("data", UNREADABLE)
async def test_a_replay_that_cannot_be_read_is_passed_over(bench: Bench, replays: Replays, data: bytes) -> None:
    await bench.dead(3)
    started = await replays.start(ALL)
    unreadable = Value(key_of("x"), 1, data)
    await driver.drive(bench.store, [unreadable, await bench.value(started)], "w", bench.clock.now())
    ended = await replays.show(started.id)
    assert (ended.state, ended.sent) == (ReplayState.DONE, 3)


@pytest.mark.parametrize("data", UNREADABLE)
async def test_a_replay_that_cannot_be_read_keeps_nobody_from_theirs(
    bench: Bench, replays: Replays, data: bytes
) -> None:
    await bench.store.exchange(Exchange(changes=[ValueChange(key_of("x"), 0, data)]))
    await bench.dead(3)
    started = await replays.start(ALL)
    assert [one.id for one in await replays.list()] == [started.id]
    assert (await replays.pause(started.id)).state is ReplayState.PAUSED
    assert (await replays.show(started.id)).state is ReplayState.PAUSED
    with pytest.raises(NotFound):
        await replays.show("x")


async def test_what_cannot_work_is_refused(bench: Bench, replays: Replays) -> None:
    wrongs: list[dict[str, Any]] = [
        {"rate": 0},
        {"rate": "fast"},
        {"rate": -1.0},
        {"canary": -1},
        {"canary": 1.5},
        {"canary": 1001},
        {"edit": [1]},
        {"edit": {"a": object()}},
        {"edit": {"a": "x" * 16_377}},
        {"replay_id": ""},
        {"replay_id": "x" * 65},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            await replays.start(ALL, **wrong)
    for verb in (replays.show, replays.pause, replays.resume, replays.stop):
        with pytest.raises(NotFound, match="nope"):
            await verb("nope")


# ---- edits


async def test_an_edit_changes_each_letter_and_keeps_what_it_had(bench: Bench, replays: Replays) -> None:
    (one,) = await bench.dead(1, payload=b'{"url":"http://old","n":1}')
    (two,) = await bench.dead(1, payload=b'{"n":2}')
    (broken,) = await bench.dead(1, payload=b"{broken")
    started = await replays.start(ALL, edit={"url": "http://new"})
    ended = await bench.step(started)
    assert (ended.state, ended.sent, ended.skipped) == (ReplayState.DONE, 2, 1)
    first, second, third = await bench.store.get([one, two, broken])
    assert first is not None
    assert (first.payload, first.original_payload) == (b'{"url":"http://new","n":1}', b'{"url":"http://old","n":1}')
    assert second is not None
    assert second.payload == b'{"n":2,"url":"http://new"}'
    assert third is not None
    assert third.state is JobState.DEAD_LETTER
