"""Durable replays: dead letters go back to the queue, canaries first, at a set rate, whoever dies on the way.

A replay is a value in the store. Any worker drives it, one batch at a time:

    write down which letters go next ─▶ send them ─▶ count them and forget the list

Killed on any line, the next worker finds the list and sends it again under the same replay id, which the store does
not allow twice for a letter. Only letters that were dead when the replay began count, so none is sent in circles.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import Invalid
from holdfast.ports import Changed, Exchange, Operation, Query, Store, Value, ValueChange
from holdfast.runtime.payload import merged
from holdfast.types import Change, JobRecord, JobState

_logger = logging.getLogger("holdfast.worker")

PREFIX: Final = "replay:"
"""The keys of replays in the store begin so."""
BATCH: Final = 200
"""Letters sent in one go."""
BATCHES: Final = 10
"""Batches sent in one step."""
HOLD_S: Final = 10.0
"""How long a batch that was begun belongs to its worker; after that another one finishes it."""
BURST_S: Final = 1.0
"""With a rate: at most so many seconds' worth of letters go at once, however long nothing went."""
_SKEW_S: Final = 60.0  # an instant this far ahead was written before the clock was set back


class ReplayState(StrEnum):
    """Where a replay stands."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"


_RUNNING: Final = ReplayState.RUNNING
_DEAD: Final = frozenset({JobState.DEAD_LETTER, JobState.FAILED})


class Canary(Struct, frozen=True):
    """A letter that goes first, and how it stood then."""

    id: str
    fingerprint: str
    attempt: int


class Replay(Struct, frozen=True, kw_only=True):
    """One replay, as the store keeps it; instants are on the store's clock."""

    id: str
    query: Query
    """Which letters: those of this query that were dead at `created_at`."""
    edit: dict[str, Any] | None = None
    """A JSON merge patch (RFC 7396) for the arguments of every letter."""
    canary: int = 0
    """So many letters go first, and the others only once these have completed."""
    rate: float | None = None
    """Letters a second; None is as fast as the batches go."""
    created_at: float
    ended_at: float | None = None
    state: ReplayState = ReplayState.RUNNING
    why: str = ""
    """Why it is paused or has stopped."""
    total: int = 0
    """Letters that matched when it began."""
    sent: int = 0
    skipped: int = 0
    """Letters that somebody else had retried or removed before it was their turn."""
    canaries: tuple[Canary, ...] = ()
    verdict: Literal["", "waiting", "passed", "failed"] = ""
    """What the canaries say."""
    cursor: str = ""
    is_exhausted: bool = False
    """No letters are left after the pending ones."""
    pending: tuple[str, ...] = ()
    """The letters of a batch that was begun: they have been sent, or are about to be."""
    holder: str = ""
    """The worker that began it."""
    held_until: float = 0.0
    paced_at: float = 0.0
    """The instant up to which the rate is used up."""


def key_of(replay_id: str) -> str:
    """The key of a replay's value."""
    return PREFIX + replay_id


def decode(value: Value) -> Replay:
    """The replay that a value holds."""
    return msgspec.json.decode(value.data or b"null", type=Replay)


# ---------------------------------------------------------------- what workers do


def may_send(values: Iterable[Value], task: str) -> bool:
    """Whether a replay is running that may still send letters of this task."""
    for value in values:
        if value.key.startswith(PREFIX) and value.data is not None:
            replay = decode(value)
            if replay.state is _RUNNING and replay.query.task in {"", task}:
                return True
    return False


async def drive(store: Store, values: Iterable[Value], worker: str, now: float) -> bool:
    """Take every replay among these values one step further; `now` is on the store's clock.

    False where one is gone, or was changed by nobody and is not as it is known: then the store was set back.
    """
    is_known = True
    for value in values:
        if value.key.startswith(PREFIX) and value.data is not None:
            try:
                is_known &= await step(store, value, worker, now) is not None
            except msgspec.MsgspecError:
                _logger.warning("the replay %s cannot be read; a newer Holdfast may have made it", value.key)
    return is_known


async def step(
    store: Store, value: Value, worker: str, now: float, *, batch: int = BATCH, batches: int = BATCHES
) -> Value | None:
    """Take a replay one step further, and answer with its newest value; None when it is gone.

    Every worker may call it at any time, with a value that is old too: all writes are compare and set.
    """
    current: Value | None = value
    for _ in range(batches):
        if current is None or current.data is None:
            return None
        replay = decode(current)
        if replay.state is not _RUNNING:
            return current
        if replay.pending:
            if _is_held(replay, worker, now):
                return current
            current = await _finish(store, current, replay, is_again=True)
            continue
        judged = await _judged(store, replay, now)
        if judged is not None:
            _, current = await write(store, current, judged)
            continue
        begun = await _begun(store, replay, worker, now, batch)
        if begun is None:
            return current
        is_written, current = await write(store, current, begun)
        if not is_written or current is None:
            return current
        if begun.pending:
            current = await _finish(store, current, begun, is_again=False)
    return current


def _is_held(replay: Replay, worker: str, now: float) -> bool:
    """Whether another worker is at it."""
    return replay.holder != worker and now < replay.held_until < now + HOLD_S + _SKEW_S


async def _judged(store: Store, replay: Replay, now: float) -> Replay | None:
    """The replay after a look at its canaries, or at its end; None when there is nothing to decide yet."""
    if replay.canaries and replay.verdict == "waiting":
        records = await store.get([canary.id for canary in replay.canaries])
        verdict, why = judge(replay.canaries, records)
        if verdict == "failed":
            return replace(replay, verdict=verdict, state=ReplayState.STOPPED, why=why, ended_at=now)
        is_complete = len(replay.canaries) >= replay.canary or replay.is_exhausted
        return replace(replay, verdict=verdict) if verdict == "passed" and is_complete else None
    if replay.is_exhausted:
        skipped = max(replay.skipped, replay.total - replay.sent)
        said = replay.verdict if replay.canaries else ""
        return replace(replay, state=ReplayState.DONE, verdict=said, skipped=skipped, ended_at=now)
    return None


def judge(
    canaries: Sequence[Canary], records: Sequence[JobRecord | None]
) -> tuple[Literal["waiting", "passed", "failed"], str]:
    """What the canaries say, and why if they failed.

    One whose record is gone has ended well, as completed jobs are pruned long before dead ones. One that was cancelled
    says nothing; when all were, nobody knows whether the cause is fixed, and that counts as failed.
    """
    waiting = passed = 0
    for canary, record in zip(canaries, records, strict=True):
        if record is None or record.state is JobState.COMPLETED:
            passed += 1
            continue
        failures = [one for one in record.attempts if one.number > canary.attempt and one.failure_type is not None]
        same = next((one for one in failures if one.fingerprint == canary.fingerprint), None)
        if same is not None and record.state is not JobState.CANCELLED:
            return "failed", f"canary {canary.id} failed again with the same cause: {same.error_name}: {same.message}"
        if record.state in _DEAD:
            cause = f"{record.error_name}: {record.message}" if record.error_name else record.reason
            return "failed", f"canary {canary.id} was given up again, with another cause: {cause}"
        waiting += record.state is not JobState.CANCELLED
    if waiting:
        return "waiting", ""
    return ("passed", "") if passed else ("failed", "no canary completed: they were cancelled")


async def _begun(store: Store, replay: Replay, worker: str, now: float, batch: int) -> Replay | None:
    """The replay with its next batch written down; None when nothing may go now."""
    in_canary = replay.verdict == "waiting"
    if in_canary and (replay.is_exhausted or len(replay.canaries) >= replay.canary):
        return None
    credit = _credit(replay, now)
    limit = min(batch, replay.canary - len(replay.canaries)) if in_canary else batch
    limit = limit if credit is None else min(limit, int(credit + 1e-6))  # instants are no finer
    if limit < 1:
        return None
    page = await store.find(replace(replay.query, limit=limit, cursor=replay.cursor))
    picked = tuple(Canary(one.id, one.fingerprint, one.attempt) for one in page.items) if in_canary else ()
    return replace(
        replay,
        pending=tuple(one.id for one in page.items),
        canaries=replay.canaries + picked,
        cursor=page.cursor,
        is_exhausted=not page.cursor,
        holder=worker,
        held_until=now + HOLD_S,
        paced_at=now - (credit - len(page.items)) / replay.rate if credit is not None and replay.rate else now,
    )


def _credit(replay: Replay, now: float) -> float | None:
    """How many letters the rate allows now; None is any number. A clock that jumps gives at most one burst."""
    if replay.rate is None:
        return None
    if replay.paced_at > now + _SKEW_S:
        return 1.0
    return min(max(now - replay.paced_at, 0.0) * replay.rate, max(1.0, replay.rate * BURST_S))


async def _finish(store: Store, value: Value, replay: Replay, *, is_again: bool) -> Value | None:
    """Send the pending letters, then count them and forget the list."""
    done = await _send(store, replay, is_again)
    current: Value | None = value
    while current is not None and current.data is not None:
        newest = decode(current)
        if newest.pending != replay.pending:
            break  # another worker has counted them already
        counted = replace(
            newest,
            pending=(),
            holder="",
            sent=newest.sent + len(done),
            skipped=newest.skipped + len(newest.pending) - len(done),
            canaries=tuple(one for one in newest.canaries if one.id not in newest.pending or one.id in done),
        )
        is_written, current = await write(store, current, counted)
        if is_written:
            break
    return current


async def _send(store: Store, replay: Replay, is_again: bool) -> set[str]:
    """Send the pending letters; the ids of those that this replay has sent, now or before it was killed."""
    ids: Sequence[str] = replay.pending
    payloads: dict[str, bytes] = {}
    came_back: set[str] = set()
    if replay.edit is not None or is_again:
        records = [record for record in await store.get(ids) if record is not None]
        # Late as it is, others may have sent these as well: whatever has died since was not meant.
        came_back = {one.id for one in records if is_again and _has_died_since(one, replay)}
        ids = [one for one in ids if one not in came_back]
        if replay.edit is not None:
            edited = {one.id: patched(one, replay.edit) for one in records if one.id not in came_back}
            payloads = {id_: payload for id_, payload in edited.items() if payload is not None}
            ids = [one for one in ids if one in payloads]
    operation = Operation(change=Change.REPLAY, ids=ids, payloads=payloads, replay=replay.id)
    return came_back | {one.id for one in await store.change(operation) if _is_sent(one, is_again)}


def _has_died_since(record: JobRecord, replay: Replay) -> bool:
    """Whether it is dead by an end that came after the replay began."""
    until = replay.query.until
    return record.state in _DEAD and record.ended_at is not None and until is not None and record.ended_at >= until


def _is_sent(changed: Changed, is_again: bool) -> bool:
    """Whether this replay has sent it. What is refused in a batch that is sent again went the first time."""
    return changed.is_done or (is_again and changed.state is not None)


async def write(store: Store, value: Value, replay: Replay) -> tuple[bool, Value | None]:
    """Compare and set; whether it took effect, and the newest value (None when it is gone)."""
    change = ValueChange(value.key, value.version, msgspec.json.encode(replay))
    answer = await store.exchange(Exchange(changes=(change,), seen=value.version))
    newest = next((one for one in reversed(answer.values) if one.key == value.key), None)
    return bool(answer.changed[0]), newest


def patched(record: JobRecord, patch: dict[str, Any]) -> bytes | None:
    """The edited arguments; None where the letter's own cannot be read, so that no edit can be right."""
    try:
        return merged(record.payload, msgspec.json.encode(patch))
    except Invalid:
        return None
