# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises to those who look: records, searches, groups and sums."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.ports import Query, Store
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    SETTLING,
    Advance,
    bury,
    change,
    claim,
    dead_letter,
    enqueue,
    found_ids,
    is_near,
    job_in,
    new_job,
    now_of,
    pages,
    record_of,
    settle,
    start,
)
from holdfast.types import Change, FailureType, JobState, Severity

DEAD = JobState.DEAD_LETTER


class FindSuite:
    """Every filter, in pages, newest first."""

    async def test_get_answers_in_the_order_asked_for(self, store: Store) -> None:
        first, second = await enqueue(store, new_job(), new_job())
        records = await store.get([second, "nobody", first, second])
        assert [record.id if record else None for record in records] == [second, None, first, second]
        assert await store.get([]) == []

    async def test_get_takes_many_ids(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(1500)))
        records = await store.get(ids)
        assert [record.id if record else None for record in records] == ids

    async def test_the_newest_comes_first(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job(priority=n % 3, delay_s=n) for n in range(7)))
        assert await found_ids(store) == ids[::-1]

    async def test_find_leaves_the_attempts_out(self, store: Store) -> None:
        job_id = await dead_letter(store)
        (record,) = (await store.find(Query())).items
        assert (record.id, record.attempts, record.message) == (job_id, (), "the line is dead")

    async def test_each_state_is_found(self, store: Store) -> None:
        for state in (*(one for one in JobState if one is not JobState.QUEUED), JobState.QUEUED):
            if state in {JobState.RETRYING, JobState.WAITING}:
                delivery = await start(store)
                settling = Change.RETRY if state is JobState.RETRYING else Change.PARK
                await settle(store, delivery, settling, delay_s=HOUR_S)
            else:
                await job_in(store, state)
        for state in JobState:
            (record,) = (await store.find(Query(states=(state,)))).items
            assert record.state is state
        assert len(await found_ids(store, states=(JobState.QUEUED, JobState.FAILED))) == 2

    @pytest.mark.parametrize(
        ("field", "value"),
        [("task", "fetch"), ("queue", "mail"), ("tenant", "acme"), ("user", "ada"), ("project", "x")],
    )
    async def test_each_filter_finds_its_own(self, store: Store, field: str, value: str) -> None:
        options: dict[str, Any] = {field: value}
        (wanted, _) = await enqueue(store, new_job(**options), new_job())
        assert await found_ids(store, **{field: value}) == [wanted]
        assert await found_ids(store, **{field: value + "x"}) == []

    async def test_the_empty_tenant_is_one_of_its_own(self, store: Store) -> None:
        plain, acme = await enqueue(store, new_job(), new_job(tenant="acme"))
        assert await found_ids(store, tenant="") == [plain]
        assert await found_ids(store) == [acme, plain]

    async def test_failures_are_found_by_type_and_fingerprint(self, store: Store) -> None:
        network = await dead_letter(store)
        delivery = await start(store)
        await bury(store, delivery, failure_type=FailureType.VALIDATION, fingerprint="1:bad-field")
        await job_in(store, JobState.COMPLETED)
        assert await found_ids(store, failure_type=FailureType.NETWORK) == [network]
        assert await found_ids(store, failure_type=FailureType.VALIDATION) == [delivery.id]
        assert await found_ids(store, fingerprint="1:bad-field") == [delivery.id]
        assert await found_ids(store, fingerprint="1:bad") == []

    async def test_filters_are_all_asked_for_at_once(self, store: Store) -> None:
        both, _, _ = await enqueue(store, new_job(task="a", queue="q"), new_job(task="a"), new_job(task="b", queue="q"))
        assert await found_ids(store, task="a", queue="q", states=(JobState.QUEUED,)) == [both]

    async def test_jobs_that_have_not_ended_are_found_by_when_they_were_enqueued(
        self, store: Store, advance: Advance
    ) -> None:
        (old,) = await enqueue(store)
        advance(HOUR_S)
        middle = await now_of(store) - HOUR_S / 2
        (young,) = await enqueue(store)
        assert await found_ids(store, since=middle) == [young]
        assert await found_ids(store, until=middle) == [old]

    async def test_jobs_that_have_ended_are_found_by_when_they_ended(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        begun = await now_of(store)
        advance(HOUR_S)
        await settle(store, delivery, Change.COMPLETE)
        assert await found_ids(store, since=begun + HOUR_S / 2) == [delivery.id]
        assert await found_ids(store, until=begun + HOUR_S / 2) == []
        assert await found_ids(store, until=begun + HOUR_S * 2) == [delivery.id]

    async def test_since_is_inclusive_and_until_is_not(self, store: Store) -> None:
        await enqueue(store)
        (record,) = (await store.find(Query())).items
        assert len(await found_ids(store, since=record.created_at)) == 1
        assert len(await found_ids(store, until=record.created_at)) == 0

    async def test_pages_follow_each_other_without_gap_or_double(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(7)))
        found = await pages(store, limit=3)
        assert [len(page.items) for page in found] == [3, 3, 1]
        assert [record.id for page in found for record in page.items] == ids[::-1]

    async def test_the_last_page_has_no_cursor(self, store: Store) -> None:
        await enqueue(store, *(new_job() for _ in range(4)))
        first = await store.find(Query(limit=2))
        assert first.cursor
        assert (await store.find(Query(limit=2, cursor=first.cursor))).cursor == ""
        assert (await store.find(Query(limit=4))).cursor == ""

    async def test_jobs_that_come_in_between_do_not_shift_the_pages(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(4)))
        first = await store.find(Query(limit=2))
        await enqueue(store, *(new_job() for _ in range(3)))
        second = await store.find(Query(limit=2, cursor=first.cursor))
        assert [record.id for record in (*first.items, *second.items)] == ids[::-1]

    async def test_jobs_that_go_in_between_do_not_shift_the_pages(self, store: Store) -> None:
        ids = await enqueue(store, *(new_job() for _ in range(4)))
        first = await store.find(Query(limit=2))
        await change(store, Change.CANCEL, ids[2], ids[3])
        await change(store, Change.REMOVE, ids[2], ids[3])
        second = await store.find(Query(limit=2, cursor=first.cursor))
        assert [record.id for record in second.items] == [ids[1], ids[0]]

    async def test_pages_of_a_filter_are_full(self, store: Store) -> None:
        await enqueue(store, *(new_job(task="even" if n % 2 == 0 else "odd") for n in range(12)))
        assert [len(page.items) for page in await pages(store, task="even", limit=4)] == [4, 2]


class SearchSuite:
    """Text search."""

    async def test_text_is_found_in_each_place(self, store: Store) -> None:
        delivery = await start(store, task="send_mail", payload=b'{"to": "ada@example.org"}', idempotency_key="ord-7")
        await bury(store, delivery, error_name="smtplib.SMTPError", message="mailbox is full")
        await enqueue(store)
        for text in (delivery.id, "send_m", "SMTPErr", "box is f", "retries used", "ada@exam", "ord-7"):
            assert await found_ids(store, text=text) == [delivery.id], text

    async def test_case_is_ignored_for_a_to_z(self, store: Store) -> None:
        (job_id,) = await enqueue(store, new_job(payload=b'{"Name": "ADA"}'))
        assert await found_ids(store, text="name") == [job_id]
        assert await found_ids(store, text="aDa") == [job_id]

    @pytest.mark.parametrize("text", ["%", "_", "\\", "'", '"', "*", "?", "[a]", "🦀", "ß"])
    async def test_no_character_has_a_meaning_of_its_own(self, store: Store, text: str) -> None:
        wanted, _ = await enqueue(
            store, new_job(task="plain", payload=f"[{text}]".encode()), new_job(task="plain", payload=b"{}")
        )
        assert await found_ids(store, text=text) == [wanted]

    async def test_text_goes_with_the_other_filters(self, store: Store) -> None:
        (wanted, _, _) = await enqueue(
            store,
            new_job(task="a", payload=b'["moon"]'),
            new_job(task="b", payload=b'["moon"]'),
            new_job(task="a", payload=b'["sun"]'),
        )
        assert await found_ids(store, text="moon", task="a") == [wanted]

    async def test_a_rare_text_among_many_is_found_by_following_the_cursor(self, store: Store) -> None:
        (rare,) = await enqueue(store, new_job(payload=b'{"needle": 1}'))
        begun = (await record_of(store, rare)).created_at
        for _ in range(6):
            await enqueue(store, *(new_job() for _ in range(1000)))
        assert await found_ids(store, text="needle") == [rare]
        assert await found_ids(store, until=begun + 1e-6) == [rare]


class GroupSuite:
    """Dead letters by cause."""

    async def test_letters_with_one_fingerprint_are_one_group_the_largest_first(
        self, store: Store, advance: Advance
    ) -> None:
        begun = await now_of(store)
        few = await start(store, task="a")
        await bury(store, few, fingerprint="1:few")
        for n in range(3):
            advance(HOUR_S)
            delivery = await start(store, task="ba"[n % 2])
            await bury(
                store,
                delivery,
                fingerprint="1:many",
                message=f"message {n}",
                failure_type=FailureType.STRUCTURAL,
                severity=Severity.CRITICAL,
                error_name="KeyError",
            )
        many, other = await store.groups(Query())
        assert (many.fingerprint, many.count, many.tasks) == ("1:many", 3, ("a", "b"))
        assert (many.failure_type, many.severity) == (FailureType.STRUCTURAL, Severity.CRITICAL)
        assert (many.error_name, many.message, many.sample_id) == ("KeyError", "message 2", delivery.id)
        assert is_near(many.first_at, begun + HOUR_S)
        assert is_near(many.last_at, begun + HOUR_S * 3)
        assert (other.fingerprint, other.count, other.tasks, other.sample_id) == ("1:few", 1, ("a",), few.id)

    async def test_only_dead_letters_are_in_groups(self, store: Store) -> None:
        delivery = await start(store)
        await bury(store, delivery)
        for ending in (Change.FAIL, Change.COMPLETE):
            await settle(store, await start(store), ending)
        (group,) = await store.groups(Query())
        assert group.count == 1
        await change(store, Change.REPLAY, delivery.id)
        assert await store.groups(Query()) == []

    async def test_groups_keep_to_the_filters_but_not_to_states_limit_and_cursor(self, store: Store) -> None:
        for task, tenant in (("a", "acme"), ("a", ""), ("b", "acme")):
            await dead_letter(store, task=task, tenant=tenant)
        assert [group.count for group in await store.groups(Query(task="a"))] == [2]
        assert [group.count for group in await store.groups(Query(tenant="acme"))] == [2]
        assert [group.count for group in await store.groups(Query(task="b", tenant=""))] == []
        odd = Query(states=(JobState.COMPLETED,), limit=1, cursor="1")
        assert [group.count for group in await store.groups(odd)] == [3]
        assert [group.count for group in await store.groups(Query(text="line is DEAD"))] == [3]
        assert [group.count for group in await store.groups(Query(failure_type=FailureType.SYSTEM))] == []


class StatsSuite:
    """One consistent look at everything."""

    async def test_an_empty_store_has_nothing(self, store: Store) -> None:
        stats = await store.stats()
        assert (list(stats.tallies), list(stats.workers), list(stats.counts)) == ([], [], [])
        assert dict(stats.oldest_ready_at) == {}

    async def test_the_tallies_say_what_a_search_finds(self, store: Store) -> None:
        await self._check_tallies(store)
        ids = await enqueue(
            store, *(new_job(task=f"t{n % 2}", queue=f"q{n % 3}", gates=(f"g{n % 4}",)) for n in range(20))
        )
        await self._check_tallies(store)
        deliveries = await claim(store, limit=14)
        await self._check_tallies(store)
        for n, delivery in enumerate(deliveries[:12]):
            await settle(store, delivery, SETTLING[n % len(SETTLING)], keep_s=0.0 if n == 0 else None)
        await self._check_tallies(store)
        await change(store, Change.CANCEL, *ids[12:18])
        await change(store, Change.REPLAY, *ids)
        await change(store, Change.REMOVE, *ids[:6])
        await self._check_tallies(store)
        await store.prune(100)
        await self._check_tallies(store)

    async def _check_tallies(self, store: Store) -> None:
        found = [record for page in await pages(store, limit=50) for record in page.items]
        counted = Counter((record.queue, record.task, record.state) for record in found)
        tallies = (await store.stats()).tallies
        assert {(one.queue, one.task, one.state): one.n for one in tallies if one.n} == dict(counted)
        assert len({(one.queue, one.task, one.state) for one in tallies}) == len(tallies), "a kind is told twice"

    async def test_the_oldest_job_that_could_run_is_told_for_each_queue(self, store: Store, advance: Advance) -> None:
        begun = await now_of(store)
        await enqueue(store, new_job(queue="a"), new_job(queue="b", delay_s=HOUR_S), new_job(queue="c", delay_s=9e6))
        advance(HOUR_S * 2)
        await enqueue(store, new_job(queue="a", priority=9))
        oldest = (await store.stats()).oldest_ready_at
        assert set(oldest) == {"a", "b"}
        assert is_near(oldest["a"], begun)
        assert is_near(oldest["b"], begun + HOUR_S)

    async def test_running_and_ended_jobs_are_not_ready(self, store: Store) -> None:
        await job_in(store, JobState.COMPLETED)
        await job_in(store, JobState.RUNNING)
        (cancelled,) = await enqueue(store)
        await change(store, Change.CANCEL, cancelled)
        assert dict((await store.stats()).oldest_ready_at) == {}
