"""Replays of a DLQ topic: each letter goes once, from the inbox where it is there, and out of the topic where not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import App, Permanent
from holdfast.errors import ConfigError, Invalid, NotFound, SourceAway
from holdfast.ports import Query, Source
from holdfast.runtime.streams import dlq_replay
from holdfast.runtime.streams.dlq_replay import TopicReplay
from holdfast.runtime.streams.letters import letter_id
from holdfast.runtime.streams.passage import from_retry, marker, to_dlq
from holdfast.testing import ManualClock
from holdfast.types import Attempt, Change, JobState, Message, Outgoing

DLQ = "orders.dlq"


class Shop:
    """An app whose handler refuses what it is told to, over topics in memory."""

    def __init__(self, groups: tuple[str, ...] = ("billing",)) -> None:
        self.app = App("memory://", clock=ManualClock())
        self.seen: dict[str, list[str]] = {group: [] for group in groups}
        self.bad: set[str] = set()
        for group in groups:
            self._stream(group)

    def _stream(self, group: str) -> None:
        @self.app.stream("memory://orders", group=group, name=group)
        async def handle(order: dict[str, Any]) -> None:
            self.seen[group].append(order["id"])
            if order["id"] in self.bad:
                raise Permanent(f"{order['id']} is refused")

    async def send(self, *messages: Outgoing) -> None:
        """Write these."""
        async with self.app.streams.source_of(next(iter(self.app.stream_specs.values()))) as source:
            await source.send(messages)

    async def refuse(self, *ids: str) -> None:
        """Let orders of these ids be given up, and mend what was wrong with them."""
        self.bad = set(ids)
        await self.send(*(Outgoing("orders", b'{"id":"%s"}' % one.encode(), one.encode()) for one in ids))
        await self.app.arun_until_idle()
        self.bad = set()
        for seen in self.seen.values():
            seen.clear()

    async def in_topic(self, topic: str) -> list[Message]:
        """What is in a topic."""
        async with self.app.streams.source_of(next(iter(self.app.stream_specs.values()))) as source:
            return [message async for batch in source.read(topic) for message in batch]

    async def forget(self) -> None:
        """Delete every record of the inbox, as pruning does."""
        while records := (await self.app.store.find(Query(limit=500))).items:
            for record in records:
                await self.app.dead_letters.aremove(record.id)


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def replayed(shop: Shop, topic: str = DLQ, **options: Any) -> tuple[int, int, int, int]:
    """A replay: how many were found, went by way of the inbox, went from the topic, and were left alone."""
    done = await shop.app.dead_letters.areplay_topic(topic, **options)
    assert done.topic == DLQ
    return done.found, done.queued, done.sent, done.passed


# ---------------------------------------------------------------- by way of the inbox


async def test_what_the_inbox_has_is_replayed_from_there_and_marked_in_both(shop: Shop) -> None:
    await shop.refuse("a", "b")
    assert await replayed(shop) == (2, 2, 0, 0)
    await shop.app.arun_until_idle()
    assert sorted(shop.seen["billing"]) == ["a", "b"]
    states = [record.state for record in (await shop.app.store.find(Query())).items]
    assert states == [JobState.COMPLETED] * 2
    assert await replayed(shop) == (0, 0, 0, 0)


async def test_letters_that_are_under_way_are_left_alone(shop: Shop) -> None:
    await shop.refuse("a", "b")
    assert await replayed(shop, limit=1) == (2, 1, 0, 0)
    assert await replayed(shop) == (2, 1, 0, 1), "no worker has carried the first one yet, so it has no marker"
    assert await replayed(shop) == (2, 0, 0, 2)
    await shop.app.arun_until_idle()
    assert sorted(shop.seen["billing"]) == ["a", "b"]


async def test_a_letter_that_dies_again_can_be_replayed_again(shop: Shop) -> None:
    await shop.refuse("a")
    shop.bad = {"a"}
    for _ in range(2):
        assert await replayed(shop) == (1, 1, 0, 0)
        await shop.app.arun_until_idle()
    assert shop.seen["billing"] == ["a", "a"]
    shop.bad = set()
    assert await replayed(shop) == (1, 1, 0, 0)
    await shop.app.arun_until_idle()
    assert await replayed(shop) == (0, 0, 0, 0)


# ---------------------------------------------------------------- out of the topic


async def test_what_the_inbox_has_forgotten_is_sent_out_of_the_topic_once(shop: Shop) -> None:
    await shop.refuse("a", "b", "c")
    await shop.forget()
    assert await replayed(shop) == (3, 0, 3, 0)
    assert await replayed(shop) == (0, 0, 0, 0)
    await shop.app.arun_until_idle()
    assert sorted(shop.seen["billing"]) == ["a", "b", "c"]


async def test_key_value_and_headers_are_what_they_were(shop: Shop) -> None:
    shop.bad = {"a"}
    value = b'{ "id": "a",\n "n": 1.10 }'
    own = (("trace", b"1"), ("retry-count", b"mine"), ("none", None))
    await shop.send(Outgoing("orders", value, b"key\xff", own))
    await shop.app.arun_until_idle()
    await shop.forget()
    assert await replayed(shop) == (1, 0, 1, 0)
    (message,) = await shop.in_topic("orders.billing.retry.0")
    passage = from_retry(message)
    assert (passage.message.key, passage.message.value, passage.message.headers) == (b"key\xff", value, own)
    assert (passage.message.topic, passage.message.offset, passage.attempt, passage.letter) == ("orders", 0, 1, "")


async def test_it_goes_to_the_original_topic_only_when_asked(shop: Shop) -> None:
    await shop.refuse("a", "b")
    first, second = (await shop.app.store.find(Query())).items
    await shop.app.dead_letters.aremove(second.id)
    before = len(await shop.in_topic("orders"))
    assert await replayed(shop, to_topic=True) == (2, 1, 1, 0)
    await shop.app.arun_until_idle()
    assert len(await shop.in_topic("orders")) == before + 2
    assert await shop.in_topic("orders.billing.retry.0") == []
    sent = (await shop.in_topic("orders"))[before:]
    assert [one.headers for one in sent] == [(), ()]
    (record,) = await shop.app.store.get([first.id])
    assert record is not None
    assert record.state is JobState.COMPLETED


async def test_an_error_between_a_letter_and_its_marker_sends_it_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.refuse("a")
    await shop.forget()
    open_source = shop.app.open_source

    def failing(spec: Any) -> Source:
        source = open_source(spec)
        send = source.send

        async def once(messages: Any) -> None:
            if messages[0].topic == DLQ:
                raise SourceAway("gone")
            await send(messages)

        monkeypatch.setattr(source, "send", once)
        return source

    monkeypatch.setattr(shop.app, "open_source", failing)
    with pytest.raises(SourceAway):
        await replayed(shop)
    monkeypatch.setattr(shop.app, "open_source", open_source)
    assert await replayed(shop) == (1, 0, 1, 0)
    assert len(await shop.in_topic("orders.billing.retry.0")) == 2


# ---------------------------------------------------------------- which


async def test_a_dry_run_counts_and_does_nothing(shop: Shop) -> None:
    await shop.refuse("a", "b")
    (newest, _) = (await shop.app.store.find(Query())).items
    await shop.app.dead_letters.aremove(newest.id)
    for _ in range(2):
        assert await replayed(shop, dry_run=True) == (2, 1, 1, 0)
    await shop.app.arun_until_idle()
    assert shop.seen["billing"] == []


async def test_only_those_of_a_failure_type_go(shop: Shop) -> None:
    await shop.refuse("a")
    await shop.send(Outgoing("orders", b"no JSON", b"x"))
    await shop.app.arun_until_idle()
    assert await replayed(shop, failure_type="validation", dry_run=True) == (1, 1, 0, 0)
    assert await replayed(shop, failure_type="network") == (0, 0, 0, 0)
    assert await replayed(shop, failure_type="permanent") == (1, 1, 0, 0)
    with pytest.raises(ConfigError, match="failure_type='odd'"):
        await replayed(shop, failure_type="odd")


async def test_a_limit_counts_what_goes_from_either(shop: Shop) -> None:
    await shop.refuse("a", "b", "c", "d")
    for record in (await shop.app.store.find(Query())).items[:2]:
        await shop.app.dead_letters.aremove(record.id)
    assert sum((await replayed(shop, limit=3))[1:3]) == 3
    assert sum((await replayed(shop, limit=3))[1:3]) == 1
    with pytest.raises(ConfigError, match="limit=0"):
        await replayed(shop, limit=0)


async def test_a_rate_is_kept(shop: Shop) -> None:
    await shop.refuse("a", "b", "c")
    await shop.forget()
    clock = shop.app.clock
    assert isinstance(clock, ManualClock)
    clock.sleeps.clear()
    assert await replayed(shop, rate="60/minute") == (3, 0, 3, 0)
    assert clock.sleeps == [1.0, 1.0, 1.0]


async def test_each_group_gets_its_own_and_a_stream_by_its_name_alone() -> None:
    shop = Shop(("billing", "shipping"))
    await shop.refuse("a")
    assert await replayed(shop, "billing") == (1, 1, 0, 0)
    await shop.app.arun_until_idle()
    assert shop.seen == {"billing": ["a"], "shipping": []}
    assert await replayed(shop) == (1, 1, 0, 0), "that of the other group"
    await shop.app.arun_until_idle()
    assert shop.seen == {"billing": ["a"], "shipping": ["a"]}


async def test_a_topic_that_is_no_ones_dlq_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound, match=r"no stream of this app has the DLQ topic 'x.dlq': its streams have orders.dlq"):
        await shop.app.dead_letters.areplay_topic("x.dlq")
    with pytest.raises(NotFound, match="it has no streams"):
        await App("memory://").dead_letters.areplay_topic("x.dlq")


# ---------------------------------------------------------------- hostile and odd records


def dead(message: Message, *, group: str = "billing", at: float = 5.0, id: str = "") -> Outgoing:  # noqa: A002
    """A record of the DLQ."""
    attempt = Attempt(number=1, started_at=at, ended_at=at, worker="w", outcome=Change.BURY)
    return to_dlq(
        message, topic=DLQ, group=group, attempt=attempt, retry_count=0, letter_id=id or letter_id(group, message)
    )


async def test_what_others_wrote_into_the_topic_is_passed_over(shop: Shop) -> None:
    order = Message("orders", 0, 1, b"k", b"{}")
    await shop.send(
        Outgoing(DLQ, b"a word", b"k"),
        dead(order, group="another"),
        dead(replace(order, topic="elsewhere")),
        dead(order, id="not an id"),
        dead(order, id="../../x"),
    )
    done = await shop.app.dead_letters.areplay_topic(DLQ)
    assert done == TopicReplay(topic=DLQ, foreign=5)


async def test_a_marker_that_was_written_after_the_next_death_does_not_hide_it(shop: Shop) -> None:
    order = Message("orders", 0, 1, b"k", b"{}")
    mark = marker(DLQ, letter_id("billing", order), at=8.0, key=b"k")
    await shop.send(dead(order, at=5.0), dead(order, at=9.0), mark)
    assert await replayed(shop, dry_run=True) == (1, 0, 1, 0)


async def test_a_death_behind_its_marker_counts_though_the_clock_was_set_back(shop: Shop) -> None:
    order = Message("orders", 0, 1, b"k", b"{}")
    mark = marker(DLQ, letter_id("billing", order), at=8.0, key=b"k")
    await shop.send(dead(order, at=5.0), mark)
    assert await replayed(shop, dry_run=True) == (0, 0, 0, 0)
    await shop.send(dead(order, at=6.0))
    assert await replayed(shop, dry_run=True) == (1, 0, 1, 0)


async def test_a_letter_from_the_future_is_marked_and_does_not_go_for_ever(shop: Shop) -> None:
    await shop.send(dead(Message("orders", 0, 1, b"k", b"{}"), at=4e9))
    assert await replayed(shop) == (1, 0, 1, 0)
    assert await replayed(shop) == (0, 0, 0, 0)


async def test_a_long_topic_goes_in_batches(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlq_replay, "BATCH", 7)
    await shop.send(*(dead(Message("orders", 0, n, b"%d" % n, b"{}")) for n in range(30)))
    assert await replayed(shop) == (30, 0, 30, 0)
    assert await replayed(shop) == (0, 0, 0, 0)
    carried = [from_retry(one).message.offset for one in await shop.in_topic("orders.billing.retry.0")]
    assert carried == list(range(30))


# ---------------------------------------------------------------- the inbox's own replays to the topic


async def test_a_letter_is_retried_to_its_topic(shop: Shop) -> None:
    await shop.send(Outgoing("orders", b'{"id":"a","n":1.10}', b"k"))
    shop.bad = {"a"}
    await shop.app.arun_until_idle()
    shop.bad = set()
    (letter,) = (await shop.app.dead_letters.alist()).items
    assert (await shop.app.dead_letters.aretry(letter.id, to_topic=True)).is_done
    await shop.app.arun_until_idle()
    assert [one.value for one in await shop.in_topic("orders")] == [b'{"id":"a","n":1.10}'] * 2


async def test_a_replay_to_the_topic_is_refused_where_jobs_are_among_the_letters(shop: Shop) -> None:
    @shop.app.task(name="charge")
    def charge() -> None:
        raise Permanent("no")

    await charge.aenqueue()
    await shop.refuse("a")
    for filters in ({}, {"task": "charge"}, {"text": "no"}, {"failure_type": "permanent"}):
        with pytest.raises(ConfigError, match="dead letters of the task 'charge', which are no messages"):
            await shop.app.dead_letters.areplay(to_topic=True, **filters)  # type: ignore[arg-type]
    job = next(one for one in (await shop.app.dead_letters.alist()).items if one.task == "charge")
    with pytest.raises(ConfigError, match="is a job of charge"):
        await shop.app.dead_letters.aretry(job.id, to_topic=True)
    await shop.app.dead_letters.areplay(to_topic=True, task="billing")
    before = len(await shop.in_topic("orders"))
    await shop.app.arun_until_idle()
    assert len(await shop.in_topic("orders")) == before + 1


async def test_an_edit_that_makes_no_message_any_more_is_refused(shop: Shop) -> None:
    await shop.refuse("a")
    (letter,) = (await shop.app.dead_letters.alist()).items
    with pytest.raises(Invalid, match="cannot be read"):
        await shop.app.dead_letters.aretry(letter.id, {"order": 1})
