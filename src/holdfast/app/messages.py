"""Dead letters that are no jobs: what an edit may not change, where a replay sends messages, and DLQ topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from holdfast.errors import ConfigError, Invalid, NotFound
from holdfast.policy import bounds
from holdfast.runtime.crawl_origins import QUEUE as CRAWLS
from holdfast.runtime.crawl_origins import page_origin
from holdfast.runtime.inbox import Filters, Inbox
from holdfast.runtime.page_edits import FIXED as FIXED_OF_PAGES
from holdfast.runtime.page_edits import check_page
from holdfast.runtime.payload import merged
from holdfast.runtime.replays import per_second
from holdfast.runtime.ring_letters import FIXED as FIXED_OF_RINGS
from holdfast.runtime.ring_letters import read_ring_letter, refuse_moved_elements
from holdfast.runtime.ring_origins import QUEUE as RINGS
from holdfast.runtime.ring_origins import ring_origin
from holdfast.runtime.streams.dlq_replay import TopicReplay, Wanted, replay_topic
from holdfast.runtime.streams.letters import FIXED, read_letter, refuse_moved
from holdfast.runtime.streams.origins import QUEUE, message_origin
from holdfast.runtime.streams.passage import dlq_topic
from holdfast.types import JobRecord, JobState

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.policy.limiter import Rate
    from holdfast.runtime.streams.spec import StreamSpec
    from holdfast.types import FailureType


def check_arguments(app: App, letter: JobRecord, payload: bytes) -> None:
    """Invalid where the task, or a stream's replay, cannot take these; of a task that is not known here nothing is.

    A message stays the one it is: an edit that says another place or time of it is refused too; and so do the elements
    of a ring, and a page.
    """
    if message_origin(letter) is not None:
        read_letter(payload)
        refuse_moved(letter.original_payload or letter.payload, payload)
    elif ring_origin(letter) is not None:
        refuse_moved_elements(letter.original_payload or letter.payload, payload)
        read_ring_letter(payload)
    elif page_origin(letter) is not None:
        check_page(letter.original_payload or letter.payload, payload)
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


async def check_replay(
    app: App, filters: Filters, edit: Mapping[str, Any] | None, *, canary: int, to_topic: bool = False
) -> None:
    """ConfigError or Invalid for a replay that could not do to messages, or to jobs, what it says."""
    edit = edit or {}
    if to_topic:
        if found := await _tasks(app, filters, lambda queue: not queue.startswith(QUEUE)):
            raise ConfigError(
                f"to_topic=True: there are dead letters of the task {min(found)!r}, which are no messages; "
                "give task= the name of a stream"
            )
        _refuse_blind_canaries(canary)
    fixed = next((name for name in FIXED if name in edit), "")
    is_blind = bool(canary) and edit.get("to") == "topic"
    if (fixed or is_blind) and await _tasks(app, filters, lambda queue: queue.startswith(QUEUE)):
        if fixed:
            raise Invalid(f"edit: the {fixed} of a message cannot be edited: it says which message it is")
        _refuse_blind_canaries(canary)
    fixed = next((name for name in FIXED_OF_RINGS if name in edit), "")
    if fixed and await _tasks(app, filters, lambda queue: queue.startswith(RINGS)):
        raise Invalid(f"edit: the {fixed} of a ring's letter cannot be edited: it says which elements they are")
    fixed = next((name for name in FIXED_OF_PAGES if name in edit), "")
    if fixed and await _tasks(app, filters, lambda queue: queue.startswith(CRAWLS)):
        raise Invalid(f"edit: the {fixed} of a page cannot be edited: it says which page it is")


def _refuse_blind_canaries(canary: int) -> None:
    if canary:
        raise ConfigError(
            f"canary={canary!r}: goes with replays to a message's own group alone; what is sent to its original topic "
            "has ended with that, whatever becomes of it there"
        )


async def _tasks(app: App, filters: Filters, is_wanted: Callable[[str], bool]) -> set[str]:
    """The tasks, streams, consumers and crawls of which there may be dead letters of these filters, by queue."""
    stats = await app.store.stats()
    known = {
        tally.task
        for tally in stats.tallies
        if tally.state is JobState.DEAD_LETTER and tally.n and is_wanted(tally.queue)
    }
    if task := filters.get("task"):
        return known & {task}
    if filters.get("text") or not known:  # with a text only the newest letters are looked at for groups
        return known
    return known & {task for group in await Inbox(app.store).groups(**filters) for task in group.tasks}


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
