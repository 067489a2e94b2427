# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to workers about their leases."""

from __future__ import annotations

from holdfast.ports import Beat, Store, WorkerRecord
from holdfast.testing.store_suite.steps import (
    LEASE_S,
    Advance,
    beat,
    change,
    claim,
    enqueue,
    is_near,
    new_job,
    now_of,
    orphan,
    reclaim,
    settle,
    start,
)
from holdfast.types import Change


async def _held(store: Store, worker: str = "w1") -> dict[bytes, int]:
    return dict((await store.heartbeat(WorkerRecord(id=worker, lease_s=LEASE_S))).held)


class HeartbeatSuite:
    """Leases begin, are renewed, and end for good."""

    async def test_a_heartbeat_registers_a_worker_as_it_describes_itself(self, store: Store) -> None:
        worker = WorkerRecord(
            id="w1",
            lease_s=LEASE_S,
            host="moon",
            pid=7,
            queues=("mail", "web"),
            running=3,
            started_at=12.5,
            counts={"completed": 4},
        )
        assert await store.heartbeat(worker) == Beat(is_alive=True)
        (seen,) = (await store.stats()).workers
        assert (seen.id, seen.lease_s, seen.host, seen.pid) == ("w1", LEASE_S, "moon", 7)
        assert (tuple(seen.queues), seen.running, seen.started_at) == (("mail", "web"), 3, 12.5)
        assert dict(seen.counts) == {"completed": 4}
        assert is_near(seen.seen_at, await now_of(store))

    async def test_the_latest_heartbeat_is_what_is_shown(self, store: Store, advance: Advance) -> None:
        await beat(store)
        first = (await store.stats()).workers[0]
        advance(30)
        await store.heartbeat(WorkerRecord(id="w1", lease_s=LEASE_S, running=9))
        (seen,) = (await store.stats()).workers
        assert seen.running == 9
        assert is_near(seen.seen_at, first.seen_at + 30)

    async def test_a_heartbeat_tells_how_many_jobs_run_under_each_token(self, store: Store, advance: Advance) -> None:
        await beat(store)
        await enqueue(store, new_job(), new_job(), new_job())
        first = await claim(store, limit=2)
        second = await claim(store, limit=1)
        assert await _held(store) == {first[0].token: 2, second[0].token: 1}
        await settle(store, first[0], Change.COMPLETE)
        await settle(store, second[0], Change.RETRY, delay_s=60.0)
        assert await _held(store) == {first[0].token: 1}
        await change(store, Change.CANCEL, first[1].id)
        assert await _held(store) == {}

    async def test_what_it_is_to_judge_is_among_them(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        (delivery,) = await reclaim(store, "w2")
        assert await _held(store, "w2") == {delivery.token: 1}

    async def test_what_came_by_a_claim_that_nobody_heard_of_can_be_asked_for(self, store: Store) -> None:
        job = new_job()
        await beat(store)
        await enqueue(store, job)
        await claim(store)  # whose answer is lost
        (token,) = await _held(store)
        (again,) = await claim(store, limit=0, token=token)
        assert (again.id, again.worker) == (job.id, "")
        assert await settle(store, again, Change.RELEASE) is True
        assert await _held(store) == {}

    async def test_renewal_keeps_the_lease(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        for _ in range(5):
            advance(LEASE_S * 0.6)
            assert await beat(store)
            assert await reclaim(store) == []
        assert await settle(store, delivery, Change.COMPLETE) is True

    async def test_a_lease_may_be_renewed_late_while_nobody_has_given_the_worker_up(
        self, store: Store, advance: Advance
    ) -> None:
        delivery = await orphan(store, advance)
        assert await beat(store, "w1")
        assert await reclaim(store) == []
        assert await settle(store, delivery, Change.COMPLETE) is True

    async def test_each_worker_has_a_lease_of_its_own(self, store: Store, advance: Advance) -> None:
        await start(store, worker="w1")
        other = await start(store, worker="w3")
        advance(LEASE_S * 0.6)
        await beat(store, "w3")
        advance(LEASE_S * 0.6)
        assert [one.worker for one in await reclaim(store)] == ["w1"]
        assert await settle(store, other, Change.COMPLETE) is True

    async def test_a_worker_that_was_given_up_does_not_come_back(self, store: Store, advance: Advance) -> None:
        await orphan(store, advance)
        await reclaim(store)
        assert await beat(store, "w1") is False
        assert await beat(store, "w1") is False
        assert [worker.id for worker in (await store.stats()).workers] == ["w2"]

    async def test_an_idle_worker_is_given_up_too(self, store: Store, advance: Advance) -> None:
        await beat(store, "w1")
        advance(LEASE_S + 30)
        assert await reclaim(store) == []
        assert await beat(store, "w1") is False

    async def test_leave_orphans_what_is_held_at_once(self, store: Store) -> None:
        delivery = await start(store)
        await beat(store, "w1", lease_s=0)
        (orphan_,) = await reclaim(store)
        assert (orphan_.id, orphan_.worker) == (delivery.id, "w1")

    async def test_a_worker_that_took_leave_does_not_come_back(self, store: Store) -> None:
        await beat(store, "w1")
        await beat(store, "w1", lease_s=0)
        assert await beat(store, "w1") is False
        assert list((await store.stats()).workers) == []

    async def test_a_stranger_may_take_leave(self, store: Store) -> None:
        await beat(store, "w9", lease_s=0)
        assert await beat(store, "w9") is False
        assert list((await store.stats()).workers) == []

    async def test_leave_may_be_taken_twice(self, store: Store) -> None:
        await start(store)
        await beat(store, "w1", lease_s=0)
        await beat(store, "w1", lease_s=0)
        assert len(await reclaim(store)) == 1

    async def test_a_cancelled_running_job_is_told_to_its_worker_once(self, store: Store) -> None:
        await enqueue(store, *(new_job() for _ in range(3)))
        first, second, _ = await claim(store)
        await beat(store, "w2")
        await change(store, Change.CANCEL, first.id, second.id)
        assert (await store.heartbeat(WorkerRecord(id="w2", lease_s=LEASE_S))).cancelled == ()
        told = (await store.heartbeat(WorkerRecord(id="w1", lease_s=LEASE_S))).cancelled
        assert sorted(told) == sorted([first.id, second.id])
        assert (await store.heartbeat(WorkerRecord(id="w1", lease_s=LEASE_S))).cancelled == ()

    async def test_a_cancelled_job_that_did_not_run_is_told_to_nobody(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY)
        await change(store, Change.CANCEL, delivery.id)
        assert (await store.heartbeat(WorkerRecord(id="w1", lease_s=LEASE_S))).cancelled == ()
