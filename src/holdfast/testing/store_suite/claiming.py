# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to workers that claim."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.clock import new_token
from holdfast.ports import Store
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    LEASE_S,
    RETURNING,
    Advance,
    beat,
    change,
    claim,
    claimed_ids,
    enqueue,
    exchange_claim,
    is_near,
    new_job,
    now_of,
    record_of,
    settle,
    start,
)
from holdfast.types import Change, JobState


class ClaimSuite:
    """The order of claims, their bounds, and what a delivery says."""

    async def test_a_delivery_says_all_about_its_job(self, store: Store) -> None:
        token = new_token()
        job = new_job(payload=b"[1]", queue="mail", tenant="acme", user="ada", project="engine", trace="00-a-b-01")
        await enqueue(store, job)
        (delivery,) = await claim(store, token=token)
        assert (delivery.id, delivery.task, delivery.queue, delivery.payload) == (job.id, "greet", "mail", b"[1]")
        assert (delivery.tenant, delivery.user, delivery.project) == ("acme", "ada", "engine")
        assert (delivery.token, delivery.trace) == (token, "00-a-b-01")
        assert (delivery.attempt, delivery.retries, delivery.elapsed_s, delivery.notes) == (1, 0, 0.0, None)
        assert (delivery.is_suspect, delivery.is_alone) == (False, False)
        assert (delivery.orphaned, delivery.blame, delivery.worker) == (0, "", "")
        now = await now_of(store)
        assert is_near(delivery.created_at, now)
        assert delivery.due_at == delivery.created_at
        assert is_near(delivery.claimed_at, now)

    async def test_a_claimed_job_is_running_and_its_attempt_counted(self, store: Store) -> None:
        delivery = await start(store)
        record = await record_of(store, delivery.id)
        assert (record.state, record.attempt, record.worker) == (JobState.RUNNING, 1, "w1")
        assert (record.ended_at, record.attempts) == (None, ())

    async def test_a_job_is_claimed_once(self, store: Store) -> None:
        await start(store)
        assert await claim(store) == []
        assert await claim(store, worker="w2") == []

    async def test_priority_comes_before_due_time_before_age(self, store: Store, advance: Advance) -> None:
        late = new_job(delay_s=200)
        early = new_job(delay_s=100)
        urgent_late = new_job(priority=5, delay_s=300)
        lazy = new_job(priority=-1)
        old, young = new_job(delay_s=250), new_job(delay_s=250)
        await enqueue(store, late, early, urgent_late, lazy, old, young)
        advance(400)
        expected = [urgent_late, early, late, old, young, lazy]
        assert await claimed_ids(store) == [job.id for job in expected]

    async def test_the_order_holds_over_lanes(self, store: Store) -> None:
        jobs = [new_job(task=f"t{n % 3}", queue=f"q{n % 2}", gates=(f"g{n % 5}",), priority=n // 4) for n in range(24)]
        await enqueue(store, *jobs)
        by_priority = sorted(jobs, key=lambda job: -job.priority)  # stable: age within a priority
        got = await claimed_ids(store, limit=10) + await claimed_ids(store, limit=100)
        assert got == [job.id for job in by_priority]

    async def test_a_claim_brings_no_more_than_its_limit(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(5)))
        assert await claimed_ids(store, limit=2) == ids[:2]
        assert await claimed_ids(store, limit=0) == []
        assert await claimed_ids(store, limit=2) == ids[2:4]
        assert await claimed_ids(store, limit=2) == ids[4:]

    async def test_a_claim_brings_only_jobs_of_its_queues(self, store: Store) -> None:
        mail, web, other = await enqueue(store, new_job(queue="mail"), new_job(queue="web"), new_job(queue="other"))
        assert await claimed_ids(store, queues=("mail", "web", "nothing")) == [mail, web]
        assert await claimed_ids(store, queues=()) == []
        assert await claimed_ids(store) == [other]

    async def test_a_worker_without_a_heartbeat_gets_nothing(self, store: Store) -> None:
        await enqueue(store)
        assert (await exchange_claim(store, worker="stranger")).deliveries in ([], ())
        assert len(await claim(store)) == 1

    async def test_a_worker_that_was_given_up_gets_nothing(self, store: Store, advance: Advance) -> None:
        await beat(store, "w1")
        advance(LEASE_S + 30)
        await beat(store, "w2")
        await store.reclaim("w2", new_token(), 10)
        await enqueue(store)
        assert list((await exchange_claim(store, worker="w1")).deliveries) == []
        assert len(await claim(store, worker="w2")) == 1

    async def test_a_worker_that_took_leave_gets_nothing(self, store: Store) -> None:
        await beat(store, "w1")
        await beat(store, "w1", lease_s=0)
        await enqueue(store)
        assert list((await exchange_claim(store, worker="w1")).deliveries) == []

    async def test_an_idle_claim_says_when_the_next_job_is_due(self, store: Store, advance: Advance) -> None:
        await beat(store, lease_s=HOUR_S * 9)
        assert (await exchange_claim(store)).next_due_s is None
        await enqueue(store, new_job(delay_s=HOUR_S * 2), new_job(delay_s=HOUR_S))
        assert (await exchange_claim(store)).next_due_s == pytest.approx(HOUR_S, abs=20)
        advance(HOUR_S / 2)
        assert (await exchange_claim(store)).next_due_s == pytest.approx(HOUR_S / 2, abs=20)
        advance(HOUR_S / 2)
        answer = await exchange_claim(store)
        assert len(answer.deliveries) == 1
        assert answer.next_due_s == pytest.approx(HOUR_S, abs=20)

    @pytest.mark.parametrize("delay_s", [0.0, 60.0])
    async def test_a_cancelled_job_among_others_is_passed_over(
        self, store: Store, advance: Advance, delay_s: float
    ) -> None:
        ids = await enqueue(store, *(new_job(delay_s=delay_s) for _ in range(5)))
        await change(store, Change.CANCEL, ids[1], ids[2], ids[4])
        advance(61)
        assert await claimed_ids(store) == [ids[0], ids[3]]

    async def test_a_cancelled_delayed_job_is_not_waited_for(self, store: Store) -> None:
        first, _ = await enqueue(store, new_job(delay_s=HOUR_S), new_job(delay_s=HOUR_S * 2))
        await change(store, Change.CANCEL, first)
        await beat(store)
        assert (await exchange_claim(store)).next_due_s == pytest.approx(HOUR_S * 2, abs=20)

    async def test_a_cancelled_delayed_job_is_never_claimed(self, store: Store, advance: Advance) -> None:
        (job_id,) = await enqueue(store, new_job(delay_s=60))
        await change(store, Change.CANCEL, job_id)
        advance(120)
        assert await claim(store) == []

    async def test_a_claim_that_is_sent_again_answers_the_same(self, store: Store) -> None:
        await enqueue(store, *(new_job() for _ in range(4)))
        token = new_token()
        first = await claim(store, limit=2, token=token)
        assert len(first) == 2
        assert await claim(store, limit=2, token=token) == first
        assert (await record_of(store, first[0].id)).attempt == 1

    async def test_a_claim_that_is_sent_again_brings_only_what_still_runs(self, store: Store) -> None:
        await enqueue(store, *(new_job() for _ in range(4)))
        token = new_token()
        first, second = await claim(store, limit=2, token=token)
        await settle(store, first, Change.COMPLETE)
        assert await claim(store, limit=2, token=token) == [second]
        await settle(store, second, Change.COMPLETE)
        assert await claim(store, limit=2, token=token) == [], "the token was used: it claims nothing more"

    async def test_a_claim_of_none_asks_what_runs_under_its_token(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(3)))
        token = new_token()
        first, *others = await claim(store, limit=2, token=token)
        await settle(store, first, Change.COMPLETE)
        assert await claimed_ids(store, limit=0, token=token) == [one.id for one in others] == ids[1:2]
        assert await claimed_ids(store, limit=0, token=new_token()) == []

    async def test_a_claim_that_is_sent_again_after_a_later_one_answers_the_same(self, store: Store) -> None:
        await enqueue(store, *(new_job() for _ in range(4)))
        token = new_token()
        first = await claim(store, limit=1, token=token)
        await claim(store, limit=1)
        assert await claim(store, limit=1, token=token) == first

    async def test_racing_workers_share_the_jobs_out_without_a_double(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(60)))
        for n in range(6):
            await beat(store, f"w{n}")
        answers = await asyncio.gather(*(exchange_claim(store, 15, f"w{n}") for n in range(6)))
        got = [delivery.id for answer in answers for delivery in answer.deliveries]
        assert sorted(got) == sorted(ids)

    @pytest.mark.parametrize("returning", RETURNING)
    async def test_each_claim_counts_an_attempt_unless_it_is_refunded(self, store: Store, returning: Change) -> None:
        delivery = await start(store)
        await settle(store, delivery, returning)
        (second,) = await claim(store)
        assert (second.attempt, second.retries) == (2, 1)
        await settle(store, second, Change.RELEASE, is_refunded=True)
        (third,) = await claim(store)
        assert (third.attempt, third.retries) == (2, 1)
        assert (await record_of(store, delivery.id)).attempt == 2

    @pytest.mark.parametrize("refunded", [Change.PARK, Change.RELEASE])
    async def test_a_refunded_attempt_is_no_retry(self, store: Store, refunded: Change) -> None:
        delivery = await start(store)
        for _ in range(5):
            await settle(store, delivery, refunded, is_refunded=True)
            (delivery,) = await claim(store)
        assert delivery.retries == 0

    async def test_an_attempt_that_failed_is_not_refunded(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY, is_refunded=True)
        (again,) = await claim(store)
        assert again.retries == 1


class CapSuite:
    """Gates: paused queues, open breakers and used up limits are passed over."""

    async def test_a_shut_gate_is_passed_over(self, store: Store) -> None:
        shut, open_, plain = await enqueue(store, new_job(gates=("db",)), new_job(gates=("api",)), new_job())
        assert await claimed_ids(store, caps={"db": 0}) == [open_, plain]
        assert await claimed_ids(store) == [shut]

    async def test_a_job_behind_two_gates_needs_both(self, store: Store) -> None:
        (both,) = await enqueue(store, new_job(gates=("a", "b")))
        assert await claimed_ids(store, caps={"a": 0, "b": 5}) == []
        assert await claimed_ids(store, caps={"a": 5, "b": 0}) == []
        assert await claimed_ids(store, caps={"a": 1, "b": 1}) == [both]

    async def test_a_shut_queue_is_passed_over(self, store: Store) -> None:
        shut, open_ = await enqueue(store, new_job(queue="mail"), new_job(queue="web"))
        assert await claimed_ids(store, caps={"queue:mail": 0}) == [open_]
        assert await claimed_ids(store) == [shut]

    async def test_a_shut_task_is_passed_over(self, store: Store) -> None:
        shut, open_ = await enqueue(store, new_job(task="send"), new_job(task="fetch"))
        assert await claimed_ids(store, caps={"task:send": 0}) == [open_]
        assert await claimed_ids(store) == [shut]

    async def test_a_gate_is_not_mistaken_for_a_queue_or_a_task(self, store: Store) -> None:
        ids = await enqueue(store, new_job(task="mail", queue="web"), new_job(task="x", gates=("mail",)))
        assert await claimed_ids(store, caps={"queue:mail": 0, "task:web": 0, "web": 0, "x": 0}) == ids

    async def test_a_cap_bounds_all_lanes_with_its_gate_together(self, store: Store) -> None:
        jobs = [new_job(task=f"t{n % 3}", queue=f"q{n % 2}", gates=("db", f"g{n}")) for n in range(6)]
        free = new_job()
        ids = await enqueue(store, *jobs, free)
        assert await claimed_ids(store, caps={"db": 2}) == [*ids[:2], free.id]
        assert await claimed_ids(store, caps={"db": 3, "unknown": 0}) == ids[2:5]

    async def test_a_cap_counts_each_claim_anew(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job(gates=("db",)) for _ in range(3)))
        got = [await claimed_ids(store, caps={"db": 1}) for _ in range(3)]
        assert got == [[one] for one in ids]

    async def test_caps_of_queue_task_and_gate_hold_together(self, store: Store) -> None:
        ids = await enqueue(
            store,
            new_job(task="a", queue="x"),
            new_job(task="b", queue="x"),
            new_job(task="a", queue="y"),
            new_job(task="b", queue="y", gates=("g",)),
            new_job(task="c", queue="y", gates=("g",)),
        )
        got = await claimed_ids(store, caps={"queue:x": 1, "task:a": 1, "g": 1})
        assert got == [ids[0], ids[3]]

    async def test_what_is_behind_a_shut_gate_keeps_its_place(self, store: Store) -> None:
        ids = await enqueue(store, new_job(priority=9, gates=("db",)), new_job())
        assert await claimed_ids(store, limit=1, caps={"db": 0}) == ids[1:]
        late = new_job(priority=9, gates=("db",))
        await enqueue(store, late)
        assert await claimed_ids(store) == [ids[0], late.id]

    async def test_many_lanes_all_get_their_turn(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job(gates=(f"site-{n}",)) for n in range(400)))
        got: list[str] = []
        for _ in range(40):
            got += await claimed_ids(store, limit=100)
        assert sorted(got) == sorted(ids)
