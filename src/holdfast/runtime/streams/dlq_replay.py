"""Replays of a DLQ topic: the letters in it that were not replayed yet go back, by way of the inbox where it has them.

A topic is a log: a letter that was replayed is still there, with a marker behind it. So the topic is read once, to
learn which letters have none; of each no more is remembered than where it is. Those that the inbox holds as dead
letters are replayed from there, and whoever carries them writes the marker. Only where the inbox has no record of a
letter any more is it sent from here, and marked after that: killed between the two, it goes again with the next replay.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.clock import new_id
from holdfast.ports import Clock, Exchange, Operation, Source, Store
from holdfast.runtime.replay import patched
from holdfast.runtime.streams.letters import Letter, To, carried, settled_id
from holdfast.runtime.streams.passage import DlqEntry, from_dlq, from_marker, is_own_topic, marker, retry_topic
from holdfast.types import Change, JobState, Message, Outgoing

BATCH: Final = 100
"""Letters that go at once, and may go twice when the process dies."""
_NO_VALUES: Final = 2**62  # newer than every version
_GONE: Final = "MessageGone"
_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class TopicReplay(Struct, frozen=True, kw_only=True):
    """What a replay of a DLQ topic has done, or would do."""

    topic: str
    found: int = 0
    """Letters that have no marker yet, of the failure type that was asked for."""
    queued: int = 0
    """Of these, replayed from the inbox: workers carry them."""
    sent: int = 0
    """Of these, sent from here, because the inbox has no record of them any more."""
    passed: int = 0
    """Of these, left alone: the inbox says that they are under way or have ended, or there is nothing to send."""
    foreign: int = 0
    """Records of groups that no stream of the app has, or that are no letters of ours."""


class Wanted(Struct, frozen=True, kw_only=True):
    """Which letters of a topic, and where to."""

    topic: str
    like: str
    """The topic whose DLQ it is."""
    groups: Collection[str]
    failure_type: str = ""
    limit: int | None = None
    to: To = "retry"
    rate: float | None = None
    """Letters a second; None is as fast as it goes."""


class _Spot(Struct, frozen=True, gc=False):
    """Where the latest record of a letter is."""

    partition: int
    offset: int
    failed_at: float


class _Mark(Struct, frozen=True, gc=False):
    partition: int
    offset: int
    at: float


async def replay_topic(source: Source, store: Store, clock: Clock, wanted: Wanted, *, dry_run: bool) -> TopicReplay:
    """Replay what was not replayed yet; with dry_run, only count.

    It goes in batches: stopped or killed on the way, the next one goes on with the rest. Two at the same time may both
    send a letter of which the inbox has no record any more.
    """
    spots, foreign = await _unreplayed(source, wanted)
    done = TopicReplay(topic=wanted.topic, found=len(spots), foreign=foreign)
    pace = _Pace(clock, wanted.rate)
    replay_id = new_id()
    ids = list(spots)
    missing: list[str] = []
    for start in range(0, len(ids), pace.batch):
        batch = ids[start : start + pace.batch]
        dead, gone = await _sorted_out(store, batch)
        done = replace(done, passed=done.passed + len(batch) - len(dead) - len(gone))
        if wanted.limit is not None:
            dead = dead[: wanted.limit - done.queued - len(missing)]
            gone = gone[: wanted.limit - done.queued - len(missing) - len(dead)]
        missing += gone
        queued = len(dead) if dry_run else await _queue(store, dead, wanted.to, replay_id)
        done = replace(done, queued=done.queued + queued, passed=done.passed + len(dead) - queued)
        if queued and not dry_run:
            await pace.wait(queued)
        if wanted.limit is not None and done.queued + len(missing) >= wanted.limit:
            break
    if dry_run:
        return replace(done, sent=len(missing))
    places = {(spots[one].partition, spots[one].offset) for one in missing}
    sent = await _send(source, store, wanted, places, pace)
    return replace(done, sent=sent, passed=done.passed + len(missing) - sent)


async def _unreplayed(source: Source, wanted: Wanted) -> tuple[dict[str, _Spot], int]:
    """The letters of these groups whose latest record has no marker, and how many records are not ours."""
    spots: dict[str, _Spot] = {}
    marks: dict[str, _Mark] = {}
    others: set[str] = set()
    foreign = 0
    async for messages in source.read(wanted.topic):
        for message in messages:
            if (mark := from_marker(message)) is not None:
                known = marks.get(mark.letter)
                if known is None or mark.at >= known.at:
                    marks[mark.letter] = _Mark(message.partition, message.offset, mark.at)
                continue
            entry = from_dlq(message)
            if entry is None or not _is_ours(entry, wanted):
                foreign += 1
                continue
            spot = spots.get(entry.letter)
            if spot is None or entry.failed_at >= spot.failed_at:
                spots[entry.letter] = _Spot(message.partition, message.offset, entry.failed_at)
                is_other = bool(wanted.failure_type) and entry.failure_type != wanted.failure_type
                (others.add if is_other else others.discard)(entry.letter)
    left = {
        letter: spot
        for letter, spot in spots.items()
        if letter not in others and not _is_replayed(spot, marks.get(letter))
    }
    return left, foreign


def _is_ours(entry: DlqEntry, wanted: Wanted) -> bool:
    """Whoever may write to a topic could have written it: nothing is sent to another place on its word."""
    is_id = _ID.fullmatch(entry.letter) is not None
    is_of_stream = entry.group in wanted.groups and is_own_topic(entry.message.topic, wanted.like, entry.group)
    return is_id and is_of_stream and settled_id(entry.group, entry.message, entry.letter) == entry.letter


def _is_replayed(spot: _Spot, mark: _Mark | None) -> bool:
    """Whether a marker is about this record, and not about an earlier death of the same letter.

    A letter may die again before the marker of its replay is written, and without a key the two lie in different
    partitions: so the instants decide, and the order where it is certain.
    """
    if mark is None or (spot.partition == mark.partition and spot.offset > mark.offset):
        return False
    return spot.failed_at <= mark.at


async def _sorted_out(store: Store, ids: Sequence[str]) -> tuple[list[str], list[str]]:
    """Which of these the inbox has as dead letters, and of which it has no record."""
    records = await store.get(ids)
    pairs = list(zip(ids, records, strict=True))
    dead = [one for one, record in pairs if record is not None and record.state is JobState.DEAD_LETTER]
    return dead, [one for one, record in pairs if record is None]


async def _queue(store: Store, ids: Sequence[str], to: To, replay_id: str) -> int:
    """Replay dead letters of the inbox; how many were."""
    if not ids:
        return 0
    payloads: dict[str, bytes] = {}
    if to == "topic":
        records = [record for record in await store.get(ids) if record is not None]
        payloads = {one.id: data for one in records if (data := patched(one, {"to": to})) is not None}
        ids = [one for one in ids if one in payloads]
    changed = await store.change(Operation(change=Change.REPLAY, ids=ids, payloads=payloads, replay=replay_id))
    return sum(one.is_done for one in changed)


async def _send(source: Source, store: Store, wanted: Wanted, places: Collection[tuple[int, int]], pace: _Pace) -> int:
    """Read the topic again, and send the records of these places from here."""
    if not places:
        return 0
    if wanted.to == "retry":
        await source.ensure([retry_topic(wanted.like, group, 0) for group in sorted(wanted.groups)], like=wanted.like)
    sent = 0
    async for batch in _batches(source, wanted.topic, places, pace.batch):
        now = (await store.exchange(Exchange(seen=_NO_VALUES))).now
        await source.send([_carried(entry, wanted) for _, entry in batch])
        await source.send([_marker(wanted.topic, message, entry, now) for message, entry in batch])
        sent += len(batch)
        await pace.wait(len(batch))
    return sent


async def _batches(
    source: Source, topic: str, places: Collection[tuple[int, int]], size: int
) -> AsyncIterator[list[tuple[Message, DlqEntry]]]:
    batch: list[tuple[Message, DlqEntry]] = []
    async for messages in source.read(topic):
        for message, entry in _entries(messages, places):
            batch.append((message, entry))
            if len(batch) >= size:
                yield batch
                batch = []
    if batch:
        yield batch


def _entries(messages: Iterable[Message], places: Collection[tuple[int, int]]) -> Iterable[tuple[Message, DlqEntry]]:
    for message in messages:
        entry = from_dlq(message) if (message.partition, message.offset) in places else None
        if entry is not None and entry.error_type.rpartition(".")[2] != _GONE:  # of that one nothing was ever known
            yield message, entry


def _carried(entry: DlqEntry, wanted: Wanted) -> Outgoing:
    return carried(Letter(entry.message, entry.group, wanted.to), "", topic=wanted.like)


def _marker(topic: str, message: Message, entry: DlqEntry, now: float) -> Outgoing:
    """Beside the letter, in its own partition, and not before it died by any clock."""
    mark = marker(topic, entry.letter, at=max(now, entry.failed_at), key=message.key)
    return replace(mark, partition=message.partition)


class _Pace:
    """How much goes at once, and how long to wait after it."""

    def __init__(self, clock: Clock, rate: float | None) -> None:
        self._clock = clock
        self._rate = rate
        self.batch = BATCH if rate is None else max(1, min(BATCH, int(rate)))

    async def wait(self, n: int) -> None:
        """So many have gone."""
        if self._rate is not None:
            await self._clock.asleep(n / self._rate)
