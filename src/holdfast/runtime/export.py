"""Dead letters as lines of JSON, to be looked at elsewhere or taken into another store.

An export has everything: the arguments as JSON, every attempt with its traceback, the reason. An import takes each
line as work to be done again: a **queued** job with the same id, arguments, queue, priority and owners, so that
importing twice makes one job. Its history stays in the file: a store takes in new jobs, not the past of others. A line
whose arguments were written without their secrets, as over HTTP, is refused. A page of a crawl gets the gates of its
domain, so that its crawl alone fetches it, in its turn.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import asdict, replace

from holdfast.errors import ConfigError
from holdfast.ports import Query, Store
from holdfast.runtime.crawl_origins import QUEUE as CRAWLS
from holdfast.runtime.crawl_origins import decode_page
from holdfast.runtime.origins import origin_fields
from holdfast.runtime.page_gates import gates_of
from holdfast.types import JobRecord, JobState, NewJob

FORMAT: Final = 1
"""The version of the lines, in their field `holdfast`."""
BATCH: Final = 200
"""Letters read, or jobs enqueued, in one go."""

Gates = Callable[[NewJob], tuple[str, ...]]


class Imported(Struct, frozen=True):
    """What became of an import."""

    new: int
    known: int
    """Jobs that the store had already, by their id or their idempotency key."""
    conflicts: tuple[str, ...] = ()
    """Ids of jobs that were left out: their idempotency key is taken by a job with other arguments."""


class _Line(Struct, kw_only=True):
    """What an import reads of a line; the rest is for people."""

    holdfast: int
    id: str
    task: Annotated[str, Meta(min_length=1)]
    payload: Raw
    queue: Annotated[str, Meta(min_length=1)] = "default"
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    tenant: str = ""
    user: str = ""
    project: str = ""
    idempotency_key: str | None = None
    trace: str | None = None
    redacted: list[str] = []
    """JSON pointers to what was left out, as secrets are over HTTP."""


def export_lines(records: Iterable[JobRecord]) -> Iterator[str]:
    """Each record as one line of JSON, without the line's end. Attempts are in it where the record has them."""
    for record in records:
        fields: dict[str, Any] = {"holdfast": FORMAT} | asdict(record)
        del fields["notes"]
        for name in ("payload", "original_payload", "result"):
            fields[name] = _as_json(fields[name])
        fields["origin"] = origin_fields(record)
        yield msgspec.json.encode(fields).decode()


async def export_letters(store: Store, query: Query) -> AsyncIterator[str]:
    """The lines of all dead letters of a query, with every attempt; read page by page, newest first."""
    query = replace(query, states=(JobState.DEAD_LETTER,), limit=BATCH, cursor="")
    while True:
        page = await store.find(query)
        records = await store.get([record.id for record in page.items])
        for line in export_lines(record for record in records if record is not None):
            yield line
        if not page.cursor:
            return
        query = replace(query, cursor=page.cursor)


def import_lines(lines: Iterable[str | bytes], *, gates: Gates | None = None) -> list[NewJob]:
    """The jobs of these lines, to be enqueued; empty lines are passed over.

    A bad line is refused with its number, by ConfigError, and then no job is returned at all.

    gates [None]: the gates of a job, which an export does not have as they are its task's; without it there are none.
    """
    jobs: list[NewJob] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            job = _job_of(number, line)
            if job.queue.startswith(CRAWLS):
                job = replace(job, gates=_page_gates(number, job))
            elif gates is not None:
                job = replace(job, gates=gates(job))
            jobs.append(job)
    return jobs


async def import_letters(store: Store, lines: Iterable[str | bytes], *, gates: Gates | None = None) -> Imported:
    """Enqueue the jobs of these lines; with a bad line none of them, and after a crash it may be done again."""
    jobs = import_lines(lines, gates=gates)
    new = known = 0
    conflicts: list[str] = []
    for start in range(0, len(jobs), BATCH):
        batch = jobs[start : start + BATCH]
        while batch:
            answers = await store.enqueue(batch)
            taken = {job.id for job, answer in zip(batch, answers, strict=True) if answer.is_conflict}
            if not taken:
                new += sum(answer.is_new for answer in answers)
                known += sum(not answer.is_new for answer in answers)
                break
            # A store takes all or none: the others go without those whose key is taken.
            conflicts += [job.id for job in batch if job.id in taken]
            batch = [job for job in batch if job.id not in taken]
    return Imported(new, known, tuple(conflicts))


def _job_of(number: int, text: str | bytes) -> NewJob:
    try:
        line = msgspec.json.decode(text, type=_Line)
        payload = msgspec.json.format(line.payload, indent=-1)
        msgspec.json.decode(payload, type=dict[str, Any])
        is_id = str(UUID(line.id)) == line.id
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"line {number}: is no exported letter: {error}") from error
    if line.holdfast != FORMAT or not is_id:
        what = f"id {line.id!r}" if not is_id else f"format {line.holdfast}"
        raise ConfigError(f"line {number}: has the {what}, which cannot be read; the format here is {FORMAT}")
    if missing := [pointer for pointer in line.redacted if pointer.split("/", 2)[1:2] == ["payload"]]:
        raise ConfigError(
            f"line {number}: {missing[0]} was left out as a secret, so there is nothing to run it with; "
            "`holdfast dlq export` leaves nothing out"
        )
    return NewJob(
        id=line.id,
        task=line.task,
        payload=payload,
        queue=line.queue,
        priority=line.priority,
        tenant=line.tenant,
        user=line.user,
        project=line.project,
        idempotency_key=line.idempotency_key,
        trace=line.trace,
    )


def _page_gates(number: int, job: NewJob) -> tuple[str, ...]:
    """Those of its domain, which must be its URL's own: by it a page waits for its turn."""
    try:
        url = decode_page(job.payload).url
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"line {number}: is no page of a crawl: {error}") from error
    scheme, *rest = url.split("/", 3)
    is_own = scheme in {"http:", "https:"} and rest[:2] == ["", job.project] and job.project != ""
    if job.task != job.queue or not is_own:
        raise ConfigError(f"line {number}: is no page of the domain {job.project!r} and of {job.queue}: {url!r}")
    return gates_of(job.queue.removeprefix(CRAWLS), job.project)


def _as_json(data: bytes | None) -> Raw | str | None:
    """JSON on one line; what is none, as text."""
    if data is None:
        return None
    try:
        msgspec.json.decode(data)
        return Raw(msgspec.json.format(data, indent=-1))
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")
