"""Dead letters that are messages: where a replay sends them, and replays out of a DLQ topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from holdfast.errors import ConfigError, NotFound
from holdfast.policy import bounds
from holdfast.runtime.inbox import Filters, Inbox
from holdfast.runtime.payload import merged
from holdfast.runtime.replays import per_second
from holdfast.runtime.streams.dlq_replay import TopicReplay, Wanted, replay_topic
from holdfast.runtime.streams.letters import read_letter
from holdfast.runtime.streams.origins import QUEUE, message_origin
from holdfast.runtime.streams.passage import dlq_topic
from holdfast.types import JobRecord, JobState

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.policy.limiter import Rate
    from holdfast.runtime.streams.spec import StreamSpec
    from holdfast.types import FailureType


def check_arguments(app: App, letter: JobRecord, payload: bytes) -> None:
    """Invalid where the task, or a stream's replay, cannot take these; of a task that is not known here nothing is."""
    if message_origin(letter) is not None:
        read_letter(payload)
    else:
        decode_arguments(app, letter.task, payload)


def decode_arguments(app: App, name: str, payload: bytes) -> None:
    """The same by the name of the task or stream."""
    if name in app.stream_specs:
        read_letter(payload)
    elif (spec := app.specs.get(name)) is not None:
        spec.arguments.decode(payload)


def to_original_topic(letter: JobRecord, payload: bytes) -> bytes:
    """The payload that makes a replay send this message to its original topic; ConfigError where it is a job."""
    if message_origin(letter) is None:
        raise ConfigError(f"to_topic=True: {letter.id} is a job of {letter.task}, and no message of a stream")
    return merged(payload, b'{"to":"topic"}')


async def refuse_jobs(app: App, filters: Filters) -> None:
    """ConfigError where jobs may be among the dead letters of these filters: they have no topic to go to."""
    stats = await app.store.stats()
    of_jobs = {
        tally.task
        for tally in stats.tallies
        if tally.state is JobState.DEAD_LETTER and tally.n and not tally.queue.startswith(QUEUE)
    }
    if task := filters.get("task"):
        found = of_jobs & {task}
    elif filters.get("text") or not of_jobs:  # with a text only the newest letters are looked at for groups
        found = of_jobs
    else:
        found = of_jobs & {task for group in await Inbox(app.store).groups(**filters) for task in group.tasks}
    if found:
        raise ConfigError(
            f"to_topic=True: there are dead letters of the task {min(found)!r}, which are no messages; "
            "give task= the name of a stream"
        )


async def replay_dlq(
    app: App,
    topic: str,
    *,
    failure_type: FailureType | None,
    limit: int | None,
    rate: float | str | Rate | None,
    to_topic: bool,
    dry_run: bool,
) -> TopicReplay:
    """Replay a DLQ topic, or that of one stream; see `DeadLetterDesk.replay_topic`."""
    pace = per_second(rate)
    left = None if limit is None else bounds.whole("limit", limit, low=1)
    total = TopicReplay(topic=topic)
    for streams in _streams_of(app, topic):
        wanted = Wanted(
            topic=dlq_topic(streams[0].topic),
            like=streams[0].topic,
            groups=frozenset(one.group for one in streams),
            failure_type="" if failure_type is None else failure_type.value,
            limit=left,
            to="topic" if to_topic else "retry",
            rate=pace,
        )
        async with app.streams.source_of(streams[0]) as source:
            done = await replay_topic(source, app.store, app.clock, wanted, dry_run=dry_run)
        left = None if left is None else left - done.queued - done.sent
        total = replace(
            total,
            topic=done.topic,
            found=total.found + done.found,
            queued=total.queued + done.queued,
            sent=total.sent + done.sent,
            passed=total.passed + done.passed,
            foreign=total.foreign + done.foreign,
        )
        if left == 0:
            break
    return total


def _streams_of(app: App, topic: str) -> list[list[StreamSpec]]:
    """The streams whose DLQ topic this is, those that read from one place together; or the one of this name."""
    if topic in app.stream_specs:
        return [[app.stream_specs[topic]]]
    places: dict[str, list[StreamSpec]] = {}
    for _, spec in sorted(app.stream_specs.items()):
        if dlq_topic(spec.topic) == topic:
            places.setdefault(spec.url, []).append(spec)
    if places:
        return list(places.values())
    known = sorted({dlq_topic(spec.topic) for spec in app.stream_specs.values()})
    there = f"its streams have {', '.join(known)}" if known else "it has no streams"
    raise NotFound(f"no stream of this app has the DLQ topic {topic!r}: {there}")
