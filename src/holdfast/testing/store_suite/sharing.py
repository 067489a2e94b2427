# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises about claims that take only so many of each lane."""

from __future__ import annotations

import pytest

from holdfast.clock import new_token
from holdfast.ports import Store
from holdfast.testing.store_suite.steps import Advance, claim, claimed_ids, enqueue, new_job, settle
from holdfast.types import Change


class PerLaneSuite:
    """`Claim.per_lane`: the jobs of one lane do not take the places of the others."""

    async def test_each_lane_gives_at_most_so_many(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job(gates=(f"site-{n // 5}",)) for n in range(15)))
        assert await claimed_ids(store, per_lane=2) == [ids[n] for n in (0, 1, 5, 6, 10, 11)]
        assert await claimed_ids(store, per_lane=2) == [ids[n] for n in (2, 3, 7, 8, 12, 13)]

    @pytest.mark.parametrize("lanes", [1, 2])
    async def test_what_a_lane_does_not_give_now_keeps_its_place(self, store: Store, lanes: int) -> None:
        ids = await enqueue(store, *(new_job(queue=f"q{n % lanes}") for n in range(6 * lanes)))
        got = [await claimed_ids(store, per_lane=1) for _ in range(7)]
        assert got == [*(ids[n * lanes : (n + 1) * lanes] for n in range(6)), []]

    async def test_queue_task_and_gates_make_the_lane(self, store: Store) -> None:
        a, _, b, c, d = await enqueue(
            store,
            new_job(task="a", queue="x"),
            new_job(task="a", queue="x"),
            new_job(task="b", queue="x"),
            new_job(task="a", queue="y"),
            new_job(task="a", queue="x", gates=("g",)),
        )
        assert await claimed_ids(store, per_lane=1) == [a, b, c, d]

    async def test_owners_do_not_make_a_lane(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job(project=f"p{n}", user=f"u{n}", tenant=f"t{n}") for n in range(3)))
        assert await claimed_ids(store, per_lane=2) == ids[:2]

    async def test_gates_in_another_order_are_the_same_lane(self, store: Store) -> None:
        ids = await enqueue(store, new_job(gates=("a", "b")), new_job(gates=("b", "a")), new_job(gates=("a", "b", "a")))
        assert await claimed_ids(store, per_lane=1) == ids[:1]

    @pytest.mark.parametrize("lanes", [1, 3])
    async def test_the_limit_and_the_caps_hold_beside_it(self, store: Store, lanes: int) -> None:
        jobs = [new_job(queue=f"q{n % lanes}", gates=("db",)) for n in range(12 * lanes)]
        ids = await enqueue(store, *jobs)
        assert await claimed_ids(store, per_lane=9, limit=2) == ids[:2]
        assert await claimed_ids(store, per_lane=9, caps={"db": 3}) == ids[2:5]
        rest = [one for n, one in enumerate(ids) if n >= 5 and n % lanes > 0]
        assert await claimed_ids(store, per_lane=2, caps={"queue:q0": 0}) == rest[:4]

    async def test_the_order_is_the_same_as_without_it(self, store: Store) -> None:
        low, high, other, middle = await enqueue(
            store,
            new_job(queue="x", priority=1),
            new_job(queue="x", priority=9),
            new_job(queue="y", priority=0),
            new_job(queue="y", priority=5),
        )
        assert await claimed_ids(store, per_lane=1) == [high, middle]
        assert await claimed_ids(store, per_lane=1) == [low, other]

    async def test_a_lane_of_few_before_lanes_of_many_gives_all_of_them(self, store: Store) -> None:
        few = [new_job(queue="few") for _ in range(30)]
        many = [new_job(queue=f"q{n % 40}") for n in range(400)]
        ids = await enqueue(store, *few, *many)
        got = await claimed_ids(store, limit=100, per_lane=50)
        assert got == ids[:100]

    async def test_a_lane_of_many_before_others_gives_no_more_than_it_may(self, store: Store) -> None:
        first = await enqueue(store, *(new_job(queue="first") for _ in range(60)))
        rest = await enqueue(store, *(new_job(queue=f"q{n % 3}") for n in range(30)))
        got = await claimed_ids(store, limit=60, per_lane=25)
        assert got == [*first[:25], *rest]

    @pytest.mark.parametrize("lanes", [1, 2])
    @pytest.mark.parametrize("most", [0, -1])
    async def test_none_of_each_lane_is_nothing(self, store: Store, lanes: int, most: int) -> None:
        await enqueue(store, *(new_job(queue=f"q{n % lanes}") for n in range(4)))
        assert await claim(store, per_lane=most) == []
        assert len(await claim(store)) == 4

    async def test_a_claim_that_is_sent_again_brings_no_more_of_a_lane(self, store: Store) -> None:
        await enqueue(store, *(new_job(queue=f"q{n % 2}") for n in range(8)))
        token = new_token()
        first = await claim(store, per_lane=1, token=token)
        assert len(first) == 2
        assert await claim(store, per_lane=1, token=token) == first

    async def test_jobs_that_become_due_count_for_their_lane(self, store: Store, advance: Advance) -> None:
        ids = await enqueue(store, *(new_job(queue=f"q{n % 2}", delay_s=50) for n in range(6)))
        (now,) = await enqueue(store, new_job(queue="q0"))
        assert await claimed_ids(store, per_lane=2) == [now]
        advance(55)
        assert sorted(await claimed_ids(store, per_lane=2)) == sorted(ids[:4])

    async def test_what_was_claimed_before_does_not_count(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(4)))
        first, second = await claim(store, per_lane=2)
        assert await claimed_ids(store, per_lane=1) == ids[2:3]
        await settle(store, first, Change.RELEASE)
        await settle(store, second, Change.COMPLETE)
        assert await claimed_ids(store, per_lane=2) == [first.id, ids[3]]
