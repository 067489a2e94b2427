"""Dead letters: by cause, one by one, back to the queue, out of the way."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from msgspec.structs import replace
from starlette.responses import StreamingResponse

from holdfast.errors import NotFound
from holdfast.ops.api import schemas
from holdfast.ops.api.asking import Asker, FleetAdmin, Operator, Viewer
from holdfast.ops.api.cursors import Cursors
from holdfast.ops.api.exporting import csv_of, lines_of
from holdfast.ops.api.hiding import unhidden
from holdfast.ops.api.openapi import changes, looks
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.searching import groups_with, search
from holdfast.ops.api.shapes import changed_of, groups_of, summary_of, whole_job_of
from holdfast.runtime.inbox import Filters, Inbox
from holdfast.types import JobState

router = APIRouter(prefix="/dead-letters", tags=["dead letters"])

LetterId = Annotated[str, Path(min_length=1, max_length=64, description="The letter's id, which is its job's.")]
OlderThan = Annotated[
    float, Query(ge=0, le=1e6, allow_inf_nan=False, description="Only those given up longer ago than this.")
]


def filters_of(asker: Asker, asked: schemas.LetterFilter) -> Filters:
    """The filters of a request, as the inbox takes them; a text is left to `searching.py`."""
    return Filters(
        group=asked.group,
        failure_type=asked.failure_type,
        task=asked.task,
        tenant=asker.tenant_for(asked.tenant),
        since=asked.since,
        until=asked.until,
    )


@router.get("", responses=looks(422))
async def list_letters(asker: Viewer, asked: Annotated[schemas.LetterQuery, Query()]) -> schemas.JobPage:
    """A page of dead letters, newest first. With a text a page may be short, or empty, and still have a cursor."""
    cursors = Cursors("letters", asked, asker.tenant)
    query = await Inbox(asker.app.store).query(**filters_of(asker, asked))
    page = await search(asker.app.store, replace(query, text=asked.text, limit=asked.limit, cursor=cursors.taken()))
    return schemas.JobPage.model_construct(
        items=[summary_of(record) for record in page.items], cursor=cursors.given(page.cursor)
    )


@router.get("/groups", responses=looks(422))
async def list_groups(asker: Viewer, asked: Annotated[schemas.LetterSearch, Query()]) -> schemas.GroupList:
    """The inbox: dead letters by cause, the largest group first; a text is looked for in the cause as it is shown."""
    found = await asker.app.dead_letters.agroups(**filters_of(asker, asked))
    return groups_of(groups_with(found, asked.text) if asked.text else found)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=looks(422)
    | {
        200: {
            "description": "A line of JSON for each letter, or a table.",
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}},
                "text/csv": {"schema": {"type": "string"}},
            },
        }
    },
)
async def export_letters(
    asker: Operator,
    asked: Annotated[schemas.LetterExport, Query()],
) -> StreamingResponse:
    """Letters with every attempt, without secrets, as lines of JSON; or as a table for a spreadsheet."""
    query = replace(await Inbox(asker.app.store).query(**filters_of(asker, asked)), text=asked.text)
    await asker.app.store.find(
        replace(query, text="", limit=1)
    )  # a store that is away is told by the status, not by a broken stream
    await asker.audit("letters.export", asked.format)
    is_csv = asked.format == "csv"
    return StreamingResponse(
        csv_of(asker.app.store, query) if is_csv else lines_of(asker.app.store, query),
        media_type="text/csv; charset=utf-8" if is_csv else "application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="dead-letters.{"csv" if is_csv else "jsonl"}"'},
    )


@router.get("/{id}", responses=looks(404, 422))
async def get_letter(asker: Viewer, id: LetterId) -> schemas.JobAnswer:  # noqa: A002
    """One letter, with its arguments and every attempt."""
    record = await asker.record(id)
    if record.state is not JobState.DEAD_LETTER:
        raise NotFound(f"job {id} is {record.state.value}, and no dead letter")
    return await whole_job_of(record, asker.server.form_of(record.task))


@router.post("/{id}/retry", responses=changes(404))
async def retry_letter(
    asker: Operator,
    id: LetterId,  # noqa: A002
    asked: schemas.RetryRequest | None = None,
) -> schemas.ChangedAnswer:
    """Send it back to the queue with new attempts; with other arguments, the original ones are kept beside them.

    A message goes to its own group's retry topic; with `to_topic` to its original topic, and 422 where it is a job.
    """
    record = await asker.record(id)
    arguments = None if asked is None else asked.arguments
    edited = None if arguments is None else unhidden(arguments, record.payload)
    to_topic = asked is not None and asked.to_topic
    if to_topic and record.state is not JobState.DEAD_LETTER:
        raise ProblemError(409, f"job {id} is {record.state.value}, and no dead letter")
    changed = await asker.app.dead_letters.aretry(id, edited, to_topic=to_topic)
    if changed.state is None:
        raise NotFound(f"there is no dead letter {id!r}")
    await asker.audit("letter.retry" if edited is None else "letter.edit", id, "done" if changed.is_done else "refused")
    if not changed.is_done:
        raise ProblemError(409, f"job {id} is {changed.state.value}, and no dead letter")
    return changed_of(changed)


@router.delete("/{id}", responses=changes(404))
async def remove_letter(asker: Operator, id: LetterId) -> schemas.RemovedAnswer:  # noqa: A002
    """Delete it for good."""
    await asker.record(id)
    changed = await asker.app.dead_letters.aremove(id)
    await asker.audit("letter.remove", id, "done" if changed.is_done else "refused")
    if not changed.is_done and changed.state is not None:
        raise ProblemError(409, f"job {id} is {changed.state.value}, and no dead letter")
    return schemas.RemovedAnswer(removed=int(changed.is_done))


@router.delete("", responses=changes())
async def purge_letters(asker: FleetAdmin, older_than_hours: OlderThan) -> schemas.RemovedAnswer:
    """Delete every letter that was given up longer ago than this."""
    removed = await asker.app.dead_letters.apurge(older_than_hours * 3600.0)
    await asker.audit("letters.purge", f"older than {older_than_hours:g} h", f"{removed} removed")
    return schemas.RemovedAnswer(removed=removed)
