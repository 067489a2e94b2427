# ruff: noqa: D102, S101
# The names say what is promised; an assert is what a test is made of.
"""What a store promises about notes of running jobs and about shared values."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from holdfast.clock import new_token
from holdfast.ports import Claim, Exchange, Note, Query, Store, Value, ValueChange
from holdfast.testing.store_suite.steps import (
    HOUR_S,
    RETURNING,
    Advance,
    bury,
    change,
    claim,
    enqueue,
    failed_attempt,
    new_job,
    record_of,
    settle,
    start,
)
from holdfast.types import Change, End, JobState, Notes


async def change_value(store: Store, key: str, expected: int, data: bytes | None) -> bool:
    """Compare and set one value."""
    (is_changed,) = (await store.exchange(Exchange(changes=[ValueChange(key, expected, data)]))).changed
    return is_changed


async def values_of(store: Store, seen: int = 0) -> dict[str, Value]:
    """Every value that is newer, by key."""
    return {value.key: value for value in (await store.exchange(Exchange(seen=seen))).values}


class NoteSuite:
    """Checkpoints, steps and progress outlive the attempt."""

    @pytest.mark.parametrize("returning", RETURNING)
    async def test_notes_are_on_the_next_delivery(self, store: Store, returning: Change) -> None:
        delivery = await start(store)
        for note in (
            Note(id=delivery.id, token=delivery.token, checkpoint=b"1"),
            Note(id=delivery.id, token=delivery.token, step=("fetch", b'"page"')),
            Note(id=delivery.id, token=delivery.token, checkpoint=b"2", step=("parse", b"null")),
        ):
            assert await store.note(note) is True
        await settle(store, delivery, returning)
        (again,) = await claim(store)
        assert again.notes == Notes(b"2", {"fetch": b'"page"', "parse": b"null"})

    async def test_fields_that_are_none_stay_as_they_are(self, store: Store) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1", progress=0.25))
        await store.note(Note(id=delivery.id, token=delivery.token))
        assert (await record_of(store, delivery.id)).progress == 0.25
        await settle(store, delivery, Change.RETRY)
        (again,) = await claim(store)
        assert again.notes == Notes(b"1", {})

    async def test_progress_is_on_the_record_at_once(self, store: Store) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, progress=0.5))
        assert (await record_of(store, delivery.id)).progress == 0.5

    async def test_a_step_that_is_noted_twice_is_one_step(self, store: Store) -> None:
        delivery = await start(store)
        note = Note(id=delivery.id, token=delivery.token, step=("fetch", b"1"))
        assert await store.note(note) is True
        assert await store.note(note) is True
        await settle(store, delivery, Change.RETRY)
        (again,) = await claim(store)
        assert again.notes == Notes(None, {"fetch": b"1"})

    async def test_a_wrong_token_notes_nothing(self, store: Store) -> None:
        delivery = await start(store)
        stolen = Note(id=delivery.id, token=new_token(), checkpoint=b"x", step=("s", b"1"), progress=0.9)
        assert await store.note(stolen) is False
        assert (await record_of(store, delivery.id)).progress is None
        await settle(store, delivery, Change.RETRY)
        (again,) = await claim(store)
        assert again.notes is None

    async def test_a_settled_job_takes_no_notes(self, store: Store) -> None:
        delivery = await start(store)
        await settle(store, delivery, Change.RETRY)
        assert await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"x")) is False

    async def test_a_cancelled_job_takes_no_notes(self, store: Store) -> None:
        delivery = await start(store)
        await change(store, Change.CANCEL, delivery.id)
        assert await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"x")) is False

    async def test_an_unknown_job_takes_no_notes(self, store: Store) -> None:
        assert await store.note(Note(id="nobody", token=new_token(), checkpoint=b"x")) is False

    @pytest.mark.parametrize("settling", [*RETURNING, Change.BURY])
    async def test_the_whole_record_has_the_notes(self, store: Store, settling: Change) -> None:
        delivery = await start(store)
        assert (await record_of(store, delivery.id)).notes is None
        await store.note(Note(id=delivery.id, token=delivery.token, progress=0.5))
        assert (await record_of(store, delivery.id)).notes is None
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1", step=("fetch", b"2")))
        await store.note(Note(id=delivery.id, token=delivery.token, step=("", b"3")))
        noted = Notes(b"1", {"fetch": b"2", "": b"3"})
        assert (await record_of(store, delivery.id)).notes == noted
        await settle(store, delivery, settling, reason="why")
        assert (await record_of(store, delivery.id)).notes == noted

    async def test_a_page_of_records_has_no_notes(self, store: Store) -> None:
        noted, plain = await start(store), await start(store)
        await store.note(Note(id=noted.id, token=noted.token, checkpoint=b"1"))
        assert [record.notes for record in (await store.find(Query())).items] == [None, None]
        records = await store.get([plain.id, noted.id, "nobody"])
        assert [None if record is None else record.notes for record in records] == [None, Notes(b"1", {}), None]

    async def test_notes_are_on_the_record_while_it_waits_to_be_replayed_and_after(self, store: Store) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, step=("page", b"<p>")))
        await bury(store, delivery)
        assert (await record_of(store, delivery.id)).notes == Notes(None, {"page": b"<p>"})
        await change(store, Change.REPLAY, delivery.id, payload=b'{"stored":true}')
        record = await record_of(store, delivery.id)
        assert (record.payload, record.notes) == (b'{"stored":true}', Notes(None, {"page": b"<p>"}))

    @pytest.mark.parametrize("options", [{}, {"reason": "why"}])
    async def test_notes_go_when_the_job_completes(self, store: Store, options: dict[str, Any]) -> None:
        other, delivery = await start(store), await start(store)
        for one in (other, delivery):
            await store.note(Note(id=one.id, token=one.token, checkpoint=b"1", progress=0.5, step=("page", b"<p>")))
        await settle(store, delivery, Change.RETRY, attempt=failed_attempt(delivery))
        (again,) = await claim(store)
        assert await settle(store, again, Change.COMPLETE, result=b"2", **options) is True
        record = await record_of(store, delivery.id)
        assert (record.notes, record.progress, record.result, len(record.attempts)) == (None, 0.5, b"2", 2)
        assert (await record_of(store, other.id)).notes == Notes(b"1", {"page": b"<p>"})

    async def test_notes_go_with_what_comes_completed_and_stay_with_what_comes_dead(self, store: Store) -> None:
        jobs = [new_job(), new_job()]
        await enqueue(store, *jobs)
        for delivery in await claim(store):
            await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1"))
        ends = [End(change=one) for one in (Change.COMPLETE, Change.BURY)]
        await store.enqueue([structs.replace(job, end=end) for job, end in zip(jobs, ends, strict=True)])
        completed, letter = [await record_of(store, job.id) for job in jobs]
        assert (completed.state, completed.notes) == (JobState.COMPLETED, None)
        assert (letter.state, letter.notes) == (JobState.DEAD_LETTER, Notes(b"1", {}))

    async def test_notes_survive_a_replay(self, store: Store) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1", step=("fetch", b"2")))
        await bury(store, delivery)
        await change(store, Change.REPLAY, delivery.id)
        (again,) = await claim(store)
        assert again.notes == Notes(b"1", {"fetch": b"2"})

    async def test_notes_of_a_removed_job_do_not_come_back_with_its_id(self, store: Store) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1", step=("fetch", b"2")))
        await bury(store, delivery)
        await change(store, Change.REMOVE, delivery.id)
        await store.enqueue([structs.replace(new_job(), id=delivery.id)])
        record = await record_of(store, delivery.id)
        assert (record.attempts, record.notes) == ((), None)
        (other,) = await claim(store)
        assert (other.id, other.notes) == (delivery.id, None)

    async def test_notes_of_a_pruned_job_do_not_come_back_with_its_id(self, store: Store, advance: Advance) -> None:
        delivery = await start(store)
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=b"1"))
        await bury(store, delivery, keep_s=HOUR_S)
        advance(HOUR_S + 1)
        assert await store.prune(10) == 1
        await store.enqueue([structs.replace(new_job(), id=delivery.id)])
        assert (await record_of(store, delivery.id)).notes is None
        (again,) = await claim(store)
        assert (again.id, again.notes) == (delivery.id, None)

    async def test_a_large_checkpoint_comes_back_whole(self, store: Store) -> None:
        delivery = await start(store)
        checkpoint = bytes(range(256)) * 4000
        await store.note(Note(id=delivery.id, token=delivery.token, checkpoint=checkpoint))
        await settle(store, delivery, Change.RETRY)
        (again,) = await claim(store)
        assert again.notes is not None
        assert again.notes.checkpoint == checkpoint
        assert (await record_of(store, delivery.id)).notes == again.notes


class ValueSuite:
    """Compare and set."""

    async def test_a_value_is_made_changed_and_removed(self, store: Store) -> None:
        assert await change_value(store, "k", 0, b"one")
        first = (await values_of(store))["k"]
        assert (first.key, first.data) == ("k", b"one")
        assert first.version > 0
        assert await change_value(store, "k", first.version, b"two")
        second = (await values_of(store))["k"]
        assert second.data == b"two"
        assert second.version > first.version
        assert await change_value(store, "k", second.version, None)
        third = (await values_of(store, seen=second.version))["k"]
        assert third.data is None
        assert third.version > second.version

    async def test_a_wrong_version_changes_nothing(self, store: Store) -> None:
        await change_value(store, "k", 0, b"one")
        value = (await values_of(store))["k"]
        assert not await change_value(store, "k", 0, b"two")
        assert not await change_value(store, "k", value.version + 1, b"two")
        assert not await change_value(store, "other", value.version, b"two")
        assert await values_of(store) == {"k": value}

    async def test_a_removed_value_is_none_and_may_be_made_again(self, store: Store) -> None:
        await change_value(store, "k", 0, b"one")
        first = (await values_of(store))["k"].version
        await change_value(store, "k", first, None)
        removed = (await values_of(store, seen=first))["k"].version
        assert not await change_value(store, "k", first, b"two")
        assert not await change_value(store, "k", removed, b"two")
        assert await change_value(store, "k", 0, b"two")
        assert (await values_of(store))["k"].data == b"two"

    async def test_versions_rise_over_all_keys(self, store: Store) -> None:
        for key in ("a", "b", "c"):
            await change_value(store, key, 0, b"1")
        first = await values_of(store)
        assert first["a"].version < first["b"].version < first["c"].version
        await change_value(store, "a", first["a"].version, b"2")
        newer = await values_of(store, seen=first["c"].version)
        assert list(newer) == ["a"]
        assert newer["a"].version > first["c"].version

    async def test_versions_rise_over_a_removal(self, store: Store) -> None:
        await change_value(store, "a", 0, b"1")
        first = (await values_of(store))["a"].version
        await change_value(store, "a", first, None)
        await change_value(store, "b", 0, b"1")
        newer = await values_of(store, seen=first)
        assert first < newer["a"].version < newer["b"].version

    async def test_a_removal_is_told_to_those_who_come_within_the_hour(self, store: Store, advance: Advance) -> None:
        await change_value(store, "a", 0, b"1")
        first = (await values_of(store))["a"].version
        await change_value(store, "a", first, None)
        await change_value(store, "b", 0, b"1")
        advance(HOUR_S - 300)
        await store.prune(100)
        assert (await values_of(store, seen=first))["a"].data is None

    async def test_removed_values_are_pruned_and_versions_rise_all_the_same(
        self, store: Store, advance: Advance
    ) -> None:
        for key in ("a", "b"):
            await change_value(store, key, 0, b"1")
            await change_value(store, key, (await values_of(store))[key].version, None)
        last = (await values_of(store))["b"].version
        advance(HOUR_S + 1)
        await store.prune(100)
        assert "a" not in await values_of(store)
        assert await change_value(store, "a", 0, b"2")
        assert (await values_of(store, seen=last))["a"].data == b"2"

    async def test_only_newer_values_come_back_oldest_first(self, store: Store) -> None:
        for key in ("c", "a", "b"):
            await change_value(store, key, 0, b"1")
        everything = (await store.exchange(Exchange())).values
        assert [value.key for value in everything] == ["c", "a", "b"]
        newest = everything[-1].version
        assert list((await store.exchange(Exchange(seen=newest))).values) == []
        assert [v.key for v in (await store.exchange(Exchange(seen=everything[0].version))).values] == ["a", "b"]

    async def test_the_newest_version_is_told_as_it_was_before_the_changes(self, store: Store) -> None:
        assert (await store.exchange(Exchange(changes=[ValueChange("a", 0, b"1")]))).newest == 0
        first = (await values_of(store))["a"].version
        reply = await store.exchange(Exchange(changes=[ValueChange("a", first, None)], seen=first))
        assert reply.newest == first
        (removed,) = reply.values
        assert (await store.exchange(Exchange(seen=removed.version))).newest == removed.version

    async def test_who_knows_more_than_the_store_is_told_how_far_it_is(self, store: Store) -> None:
        await change_value(store, "a", 0, b"1")
        newest = (await values_of(store))["a"].version
        reply = await store.exchange(Exchange(seen=newest + 5))
        assert (reply.newest, list(reply.values)) == (newest, [])
        reply = await store.exchange(Exchange(changes=[ValueChange("b", 0, b"2")], seen=newest + 5))
        assert (reply.newest, list(reply.values)) == (newest, [])

    async def test_the_era_stays_while_the_same_server_answers(self, store: Store) -> None:
        eras = [(await store.exchange(Exchange(seen=seen))).era for seen in (0, 0, 5)]
        eras.append((await store.exchange(Exchange(changes=[ValueChange("a", 0, b"1")]))).era)
        await start(store)
        eras.append((await store.exchange(Exchange(claim=Claim(worker="w1", token=new_token(), limit=5)))).era)
        assert len(set(eras)) == 1

    async def test_an_exchange_answers_after_its_own_changes(self, store: Store) -> None:
        answer = await store.exchange(Exchange(changes=[ValueChange("k", 0, b"1"), ValueChange("k", 0, b"2")]))
        assert list(answer.changed) == [True, False]
        assert [(value.key, value.data) for value in answer.values] == [("k", b"1")]

    async def test_a_failed_change_does_not_stop_its_neighbours(self, store: Store) -> None:
        await change_value(store, "taken", 0, b"1")
        delivery = await start(store)
        changes = [ValueChange("taken", 0, b"2"), ValueChange("free", 0, b"3")]
        assert list((await store.exchange(Exchange(changes=changes))).changed) == [False, True]
        assert await settle(store, delivery, Change.COMPLETE)

    async def test_racing_changes_have_one_winner(self, store: Store) -> None:
        won = await asyncio.gather(*(change_value(store, "k", 0, bytes([n])) for n in range(10)))
        assert sum(won) == 1
        assert (await values_of(store))["k"].data == bytes([won.index(True)])

    async def test_values_are_any_bytes_under_any_key(self, store: Store) -> None:
        key, data = "odd ' \x00 🦀 key", bytes(range(256)) * 100
        assert await change_value(store, key, 0, data)
        assert (await values_of(store))[key].data == data
