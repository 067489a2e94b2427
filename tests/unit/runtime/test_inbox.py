"""Dead letters are found, mended, sent back and removed; filters are checked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.clock import new_id, new_token
from holdfast.errors import ConfigError, HoldfastError, Invalid, NotFound
from holdfast.ports import Changed, Claim, Exchange, Query, Settlement, WorkerRecord
from holdfast.runtime import inbox as module
from holdfast.runtime.inbox import Inbox, LetterStats
from holdfast.runtime.replay import Replay
from holdfast.runtime.replays import Preview
from holdfast.stores.memory import MemoryStore
from holdfast.testing import ManualClock
from holdfast.types import Attempt, Change, FailureType, JobState, NewJob

START = 1_000_000_000.0


class Bench:
    """A store whose jobs a worker gives up at once."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.store = MemoryStore(clock)
        self.inbox = Inbox(self.store)

    async def job(self, **fields: Any) -> str:
        job = NewJob(id=new_id(), **({"task": "charge", "payload": b'{"n":1}'} | fields))
        await self.store.enqueue([job])
        return job.id

    async def dead(
        self, fingerprint: str = "1-a", failure_type: FailureType = FailureType.PERMANENT, **fields: Any
    ) -> str:
        """One letter, given up now; the clock is a second further then."""
        letter = await self.job(**fields)
        await self.settle(Change.BURY, fingerprint, failure_type)
        self.clock.advance(1.0)
        return letter

    async def settle(self, change: Change, fingerprint: str, failure_type: FailureType | None) -> None:
        await self.store.heartbeat(WorkerRecord(id="w", lease_s=86_400.0))
        claim = Claim(worker="w", token=new_token(), limit=1)
        (delivery,) = (await self.store.exchange(Exchange(claim=claim))).deliveries
        now = self.clock.now()
        attempt = Attempt(
            number=delivery.attempt,
            started_at=now,
            ended_at=now,
            outcome=change,
            failure_type=failure_type,
            error_name="ValueError",
            message=f"broken {fingerprint}",
            traceback="Traceback …",
            fingerprint=fingerprint,
        )
        settlement = Settlement(id=delivery.id, token=delivery.token, change=change, attempt=attempt)
        await self.store.exchange(Exchange(settlements=[settlement]))

    async def found(self, **filters: Any) -> list[str]:
        return [record.id for record in (await self.inbox.list(**filters)).items]


@pytest.fixture
def bench(clock: ManualClock) -> Bench:
    return Bench(clock)


async def test_only_dead_letters_are_listed_newest_first_page_by_page(bench: Bench) -> None:
    ids = [await bench.dead() for _ in range(5)]
    await bench.job()
    page = await bench.inbox.list(limit=3)
    rest = await bench.inbox.list(limit=3, cursor=page.cursor)
    assert [one.id for one in (*page.items, *rest.items)] == ids[::-1]
    assert not rest.cursor


async def test_each_filter_finds_its_letters(bench: Bench) -> None:
    one = await bench.dead("1-a", FailureType.NETWORK, task="charge", tenant="blue", payload=b'{"name":"Ann"}')
    two = await bench.dead("1-b", FailureType.PERMANENT, task="mail", tenant="red")
    assert await bench.found(failure_type=FailureType.NETWORK) == [one]
    assert await bench.found(failure_type="permanent") == [two]
    assert await bench.found(failure_type="") == [two, one]
    assert await bench.found(task="mail") == [two]
    assert await bench.found(tenant="blue") == [one]
    assert await bench.found(tenant="") == []
    assert await bench.found(group="1-b") == await bench.found(fingerprint="1-b") == [two]
    assert await bench.found(group="1-b", fingerprint="1-b") == [two]
    assert await bench.found(text="ann") == [one]
    assert await bench.found(task="mail", tenant="blue") == []


async def test_since_and_until_take_an_instant_in_three_ways(bench: Bench) -> None:
    one, two, three = [await bench.dead() for _ in range(3)]  # at START, one and two seconds later; now it is three
    assert await bench.found(since=START + 1) == [three, two]
    assert await bench.found(until=START + 1) == [one]
    assert await bench.found(since=timedelta(seconds=2)) == [three, two]
    assert await bench.found(until=timedelta(seconds=2), since=timedelta(days=1)) == [one]
    assert await bench.found(since=datetime.fromtimestamp(START + 2, UTC)) == [three]


async def test_filters_that_cannot_be_right_are_refused(bench: Bench) -> None:
    naive = datetime(2024, 1, 1)
    wrongs: list[tuple[str, Any]] = [
        ("failure_type", "sad"),
        ("since", naive),
        ("until", naive),
        ("since", "yesterday"),
        ("since", float("nan")),
        ("until", timedelta(seconds=-1)),
        ("limit", 0),
        ("limit", 1001),
        ("limit", "5"),
    ]
    for field, value in wrongs:
        with pytest.raises(ConfigError, match=f"^{field}="):
            await bench.inbox.list(**{field: value})
    with pytest.raises(ConfigError, match="give one of them"):
        await bench.inbox.list(group="1-a", fingerprint="1-b")
    unknown: dict[str, Any] = {"colour": "red"}
    with pytest.raises(TypeError, match="colour"):
        await bench.inbox.list(**unknown)


async def test_a_letter_is_read_with_its_attempts_and_what_is_none_is_not_found(bench: Bench) -> None:
    letter = await bench.dead()
    record = await bench.inbox.get(letter)
    assert (record.state, record.attempts[0].traceback) == (JobState.DEAD_LETTER, "Traceback …")
    queued = await bench.job()
    with pytest.raises(NotFound, match=f"job {queued} is queued, and no dead letter"):
        await bench.inbox.get(queued)
    with pytest.raises(LookupError, match="no dead letter has the id 'nope'") as caught:
        await bench.inbox.get("nope")
    assert isinstance(caught.value, HoldfastError)


async def test_a_retry_sends_a_letter_back_once_with_its_arguments_or_new_ones(bench: Bench) -> None:
    one, two = await bench.dead(), await bench.dead()
    assert await bench.inbox.retry(one) == Changed(one, is_done=True, state=JobState.QUEUED)
    assert await bench.inbox.retry(one) == Changed(one, is_done=False, state=JobState.QUEUED)
    assert (await bench.inbox.retry(two, {"n": 2, "m": None})).is_done
    first, second = await bench.store.get([one, two])
    assert first is not None
    assert (first.payload, first.original_payload) == (b'{"n":1}', None)
    assert second is not None
    assert (second.payload, second.original_payload) == (b'{"n":2,"m":null}', b'{"n":1}')
    assert await bench.inbox.retry("nope") == Changed("nope", is_done=False, state=None)


@pytest.mark.parametrize("payload", [[1], "x", {"a": object()}, {"a": float("nan")}, {1: 2}, {"a": "\ud800"}])
async def test_arguments_that_are_no_json_object_are_refused_and_nothing_is_sent(bench: Bench, payload: Any) -> None:
    letter = await bench.dead()
    with pytest.raises((ConfigError, Invalid), match="payload"):
        await bench.inbox.retry(letter, payload)
    assert (await bench.inbox.get(letter)).replays == 0


async def test_only_dead_letters_are_removed(bench: Bench) -> None:
    letter = await bench.dead()
    done = await bench.job()
    await bench.settle(Change.COMPLETE, "", None)
    assert await bench.inbox.remove(letter) == Changed(letter, is_done=True, state=None)
    assert await bench.inbox.remove(letter) == Changed(letter, is_done=False, state=None)
    assert await bench.inbox.remove(done) == Changed(done, is_done=False, state=JobState.COMPLETED)
    assert [one is None for one in await bench.store.get([letter, done])] == [True, False]


async def test_a_purge_removes_what_is_old_in_batches(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    for _ in range(5):
        await bench.dead(task="mail")
    other = await bench.dead(task="charge")
    bench.clock.advance(100)
    young = await bench.dead(task="mail")
    assert await bench.inbox.purge(timedelta(seconds=50), task="mail", failure_type="network") == 0
    assert await bench.inbox.purge(timedelta(seconds=50), task="mail", until=START + 1) == 1
    assert await bench.inbox.purge(timedelta(seconds=50), task="mail") == 4
    assert await bench.found() == [young, other]
    assert await bench.inbox.purge(0) == 2
    for wrong in (-1, timedelta(seconds=-1), float("inf")):
        with pytest.raises(ConfigError, match="older_than"):
            await bench.inbox.purge(wrong)


async def test_letters_are_counted_by_kind_and_grouped_by_cause(bench: Bench) -> None:
    assert await bench.inbox.stats() == LetterStats(total=0, by_failure_type={}, by_task={}, oldest=None, newest=None)
    await bench.dead("1-a", FailureType.NETWORK, task="charge")
    await bench.dead("1-b", FailureType.NETWORK, task="mail", queue="slow")
    await bench.dead("1-b", FailureType.NETWORK, task="mail")
    await bench.dead("1-c", FailureType.VALIDATION, task="mail")
    await bench.job(task="mail")
    assert await bench.inbox.stats() == LetterStats(
        total=4,
        by_failure_type={"network": 3, "validation": 1},
        by_task={"charge": 1, "mail": 3},
        oldest=START,
        newest=START + 3,
    )
    assert [(one.fingerprint, one.count) for one in await bench.inbox.groups(task="mail")] == [("1-b", 2), ("1-c", 1)]
    assert [one.count for one in await bench.inbox.groups(since=timedelta(seconds=2), failure_type="network")] == [1]


async def test_a_replay_takes_the_same_filters(bench: Bench) -> None:
    await bench.dead("1-a")
    await bench.dead("1-b", task="mail")
    await bench.dead("1-b", task="charge")
    preview = await bench.inbox.replay(group="1-b", dry_run=True)
    assert isinstance(preview, Preview)
    assert preview.total == 2
    replay = await bench.inbox.replay(group="1-b", task="mail", canary=1, rate=5, edit={"x": 1})
    assert isinstance(replay, Replay)
    assert (replay.total, replay.canary, replay.rate, replay.edit) == (1, 1, 5.0, {"x": 1})
    assert replay.query == Query(
        states=(JobState.DEAD_LETTER,), task="mail", fingerprint="1-b", until=replay.query.until
    )
    assert await bench.inbox.replays.list() == [replay]
