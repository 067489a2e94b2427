"""Ends jobs that did not run here, in the transaction that adds or finds them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, json

from holdfast.errors import ConfigError, Unwritable
from holdfast.policy.lifecycle import READY
from holdfast.stores.ends import (
    Ending,
    ending_of,
    known_of,
    may_end,
    rounds_of,
    settled_by,
    state_after,
    with_states,
)
from holdfast.stores.lanes import LaneKey
from holdfast.stores.postgres.arrays import blobs, bools, floats, ints, plain, texts
from holdfast.stores.postgres.enqueue import AT_ONCE, Setting, Statement, Steps, add_jobs_with_keys
from holdfast.stores.postgres.queries import load
from holdfast.stores.refusals import has_ends
from holdfast.stores.ways import GIVEN_UP
from holdfast.types import Attempt, JobState, NewJob

_SQL = load("ends.sql")
_END: Final = _SQL["end"].replace(":letters", load("settle.sql")["letters"])
_PEOPLE: Final = load("people.sql")
_ATTEMPTS: Final = load("reads.sql")["attempts"]
_FORGET_LETTERS: Final = load("letters.sql")["forget"]
_NOTIFY: Final = load("values.sql")["notify"]
_KINDS: Final[dict[str, Callable[[Any], object]]] = {
    "seqs": ints,
    "before": texts,
    "states": texts,
    "ways": ints,
    "given_up": ints,
    "results": blobs,
    "kept": floats,
    "reasons": texts,
    "started": floats,
    "numbers": ints,
    "workers": texts,
    "failures": bools,
    "failure_types": texts,
    "severities": texts,
    "error_names": texts,
    "messages": texts,
    "fingerprints": texts,
    "failed": floats,
    "first_failed": floats,
}
_encode = json.Encoder().encode
_decode_attempt = json.Decoder(Attempt).decode


class _Row(Struct):
    """A job, locked."""

    id: str
    seq: int
    lane: int
    priority: int
    due_at: float
    state: JobState
    token: bytes | None
    changed_at: float
    settled: int
    attempt: int
    started_at: float | None
    worker: str


class JobsGone(Exception):
    """A job that was known was removed before it could be locked; roll back, and begin again."""


_States = dict[str, JobState]
_Part = Generator[Statement, list[Any], None]


def check_no_ends(jobs: Sequence[NewJob]) -> None:
    """Of jobs for a caller's connection: its transaction would hold up the worker that runs one of them."""
    if has_ends(jobs):
        raise ConfigError(
            "connection: a job that comes with its end cannot be written by yours; enqueue it without one"
        )


def add_ended_jobs(jobs: Sequence[NewJob], lanes: Mapping[LaneKey, int], setting: Setting) -> Steps:
    """Add those that are new, and end those that come with their end, inside of a transaction."""
    answers = yield from add_jobs_with_keys(jobs, lanes, setting)
    new_ids = {answer.id for answer in answers if answer.is_new}
    states: dict[int, JobState] = {}
    for ends in rounds_of(jobs, answers):
        after = yield from _end(list(ends.values()), new_ids, setting)
        states |= {place: after[job.id] for place, job in ends.items()}
        new_ids = set()
    return with_states(answers, states)


def _end(jobs: Sequence[NewJob], new_ids: set[str], setting: Setting) -> Generator[Statement, list[Any], _States]:
    """End those of these that do, by seq, as others lock them too; the states of all of them then."""
    found = yield _SQL["look"], {"ids": texts([job.id for job in jobs])}
    rows = {row.id: row for row in map(_row, found)}
    if len(rows) < len(jobs):
        raise JobsGone
    jobs = sorted((job for job in jobs if may_end(job, rows[job.id].state)), key=lambda job: rows[job.id].seq)
    attempts: dict[int, list[Attempt]] = {}
    old = [rows[job.id].seq for job in jobs if job.id not in new_ids]
    if old:
        for seq, record in (yield _ATTEMPTS, {"seqs": ints(old)}):
            attempts.setdefault(seq, []).append(_decode_attempt(record))
    known = {job.id: known_of(rows[job.id], attempts.get(rows[job.id].seq, ())) for job in jobs}
    endings = [ending for job in jobs if (ending := ending_of(job, known[job.id])) is not None]
    yield from _take_away([rows[one.job.id] for one in endings], setting)
    yield from _write(endings, rows, setting)
    return {row.id: row.state for row in rows.values()} | {one.job.id: state_after(one.end) for one in endings}


def _row(found: Sequence[Any]) -> _Row:
    id, seq, lane, priority, due_at, state, token, changed_at, settled, attempt, started_at, worker = found  # noqa: A001
    facts = (changed_at, settled, attempt, started_at, plain(worker))
    return _Row(plain(id), seq, lane, priority, due_at, JobState(state), token, *facts)


def _write(endings: Sequence[Ending], rows: Mapping[str, _Row], setting: Setting) -> _Part:
    attempts = [(rows[one.job.id].seq, record) for one in endings for record in _records_of(one)]
    for start in range(0, len(endings), AT_ONCE):
        some = endings[start : start + AT_ONCE]
        columns = zip(*(_row_of(one, rows[one.job.id]) for one in some), strict=True)
        values = {name: kind(column) for (name, kind), column in zip(_KINDS.items(), columns, strict=True)}
        yield _END, {"window_s": setting.key_window_s, **values}
    for start in range(0, len(attempts), AT_ONCE):
        seqs, records = zip(*attempts[start : start + AT_ONCE], strict=True)
        yield _SQL["add_attempts"], {"seqs": ints(seqs), "records": blobs(records)}


def _take_away(rows: Sequence[_Row], setting: Setting) -> _Part:
    """They leave the line, and the letters; whoever runs one of them loses the lease, and is told so."""
    waiting = [row for row in rows if row.state in READY]
    if waiting:
        places = {"seqs": ints([row.seq for row in waiting]), "dues": floats([row.due_at for row in waiting])}
        lanes, priorities = ints([row.lane for row in waiting]), ints([row.priority for row in waiting])
        yield _PEOPLE["forget_delayed"], places
        yield _PEOPLE["forget_ready"], {"lanes": lanes, "priorities": priorities, **places}
    letters = [row.seq for row in rows if row.state is JobState.DEAD_LETTER]
    if letters:
        yield _FORGET_LETTERS, {"seqs": ints(letters)}
    running = [row for row in rows if row.state is JobState.RUNNING]
    if running:
        ids, tokens = texts([row.id for row in running]), blobs([row.token for row in running])
        yield _PEOPLE["tell_holders"], {"ids": ids, "tokens": tokens}
        yield _NOTIFY, {"channel": setting.channel, "listener": setting.listener}


def _records_of(one: Ending) -> list[bytes]:
    """Its attempts, written down; says whose cannot be, such as half a surrogate pair."""
    try:
        one.end.reason.encode()
        return [_encode(attempt) for attempt in one.attempts]
    except (ValueError, TypeError, OverflowError) as error:
        raise Unwritable(one.job.id, error) from error


def _row_of(one: Ending, row: _Row) -> Iterable[Any]:
    """In the order of the columns above."""
    end, last, failed = one.end, one.last, one.failure
    state = state_after(end).value
    failure: tuple[Any, ...] = (False, None, None, "", "", "", None)
    if failed is not None and failed.failure_type is not None:
        severity = None if failed.severity is None else failed.severity.value
        failed_texts = (failed.error_name, failed.message, failed.fingerprint)
        failure = (True, failed.failure_type.value, severity, *failed_texts, failed.ended_at)
    return (
        row.seq,
        row.state.value,
        state,
        settled_by(end),
        GIVEN_UP.get(state),
        one.result,
        end.keep_s,
        end.reason,
        None if last is None else last.started_at,
        0 if last is None else last.number,
        None if last is None else last.worker or None,
        *failure,
        one.first_failed_at,
    )
