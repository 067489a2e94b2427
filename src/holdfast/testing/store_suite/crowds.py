# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to those who look for a few jobs among a great many."""

from __future__ import annotations

from holdfast.ports import Exchange, Query, Settlement, Store
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    Advance,
    bury,
    claim,
    complete,
    enqueue,
    failed_attempt,
    found_ids,
    new_job,
    now_of,
    settle,
    start,
)
from holdfast.types import Change, FailureType, JobState

DEAD = JobState.DEAD_LETTER


class CrowdSuite:
    """A few among a great many are found at once, and a walk along the cursor finds all."""

    async def test_a_few_of_each_kind_are_on_the_first_page(self, store: Store) -> None:
        few = await enqueue(
            store, new_job(task="rare", queue="q", tenant="acme", user="ada", project="p"), new_job("rare")
        )
        await enqueue(store, *(new_job(task="usual", tenant="globex", user="bob") for _ in range(1500)))
        for filters, wanted in (
            ({"task": "rare"}, few),
            ({"task": "rare", "states": (JobState.QUEUED,)}, few),
            ({"task": "rare", "tenant": "globex"}, []),
            *(({name: value}, few[:1]) for name, value in (("queue", "q"), ("tenant", "acme"), ("user", "ada"))),
            ({"project": "p"}, few[:1]),
            ({"task": "nobody"}, []),
            ({"user": "nobody"}, []),
        ):
            page = await store.find(Query(**filters))  # type: ignore[arg-type]
            assert [record.id for record in page.items] == wanted[::-1], filters

    async def test_jobs_that_have_not_ended_are_found_behind_a_great_many_that_have(self, store: Store) -> None:
        running = await start(store)
        parked = await start(store)
        await settle(store, parked, Change.PARK, delay_s=HOUR_S)
        delayed, ready = await enqueue(store, new_job(delay_s=HOUR_S), new_job(queue="later"))
        for _ in range(3):
            await enqueue(store, *(new_job() for _ in range(1000)))
            await complete(store, await claim(store, limit=1000, queues=("default",)))
        for states, wanted in (
            ((JobState.RUNNING,), [running.id]),
            ((JobState.QUEUED,), [ready, delayed]),
            ((JobState.WAITING,), [parked.id]),
            ((JobState.RETRYING,), []),
            ((JobState.QUEUED, JobState.RUNNING, JobState.WAITING), [ready, delayed, parked.id, running.id]),
        ):
            assert [record.id for record in (await store.find(Query(states=states))).items] == wanted, states
        first = await store.find(Query(states=(JobState.QUEUED,), limit=1))
        assert [record.id for record in first.items] == [ready]
        second = await store.find(Query(states=(JobState.QUEUED,), limit=1, cursor=first.cursor))
        assert ([record.id for record in second.items], second.cursor) == ([delayed], "")

    async def test_dead_letters_of_a_rare_cause_are_on_the_first_page(self, store: Store, advance: Advance) -> None:
        rare = await start(store, task="rare", tenant="acme")
        await bury(store, rare, fingerprint="1:rare", failure_type=FailureType.SYSTEM)
        begun = await now_of(store)
        advance(HOUR_S)
        await enqueue(store, *(new_job(tenant=f"t{n % 30}") for n in range(1500)))
        settlements = [
            Settlement(
                id=one.id, token=one.token, change=Change.BURY, attempt=failed_attempt(one, fingerprint=f"1:{n % 7}")
            )
            for n, one in enumerate(await claim(store, limit=1500))
        ]
        await store.exchange(Exchange(settlements=settlements))
        for filters in (
            {"fingerprint": "1:rare"},
            {"task": "rare"},
            {"tenant": "acme"},
            {"failure_type": FailureType.SYSTEM},
            {"fingerprint": "1:rare", "until": begun + 9 * HOUR_S},
            {"until": begun + 60.0},
        ):
            page = await store.find(Query(states=(DEAD,), **filters))
            assert [record.id for record in page.items] == [rare.id], filters
        assert len(await found_ids(store, states=(DEAD,), tenant="t3")) == 50
        assert len(await found_ids(store, states=(DEAD,), failure_type=FailureType.NETWORK, limit=200)) == 1500
        assert await found_ids(store, states=(DEAD,), tenant="t3", fingerprint="1:9") == []
