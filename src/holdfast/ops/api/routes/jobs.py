"""Jobs: list, look, cancel, retry. Making them is `submit.py`'s."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from holdfast import ports
from holdfast.errors import NotFound
from holdfast.ops.api import schemas
from holdfast.ops.api.asking import Asker, Operator, Viewer
from holdfast.ops.api.cursors import Cursors
from holdfast.ops.api.openapi import changes, looks
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.searching import search
from holdfast.ops.api.shapes import changed_of, summary_of, whole_job_of
from holdfast.ports import Changed, Operation
from holdfast.types import Change, JobState

router = APIRouter(prefix="/jobs", tags=["jobs"])

JobId = Annotated[str, Path(min_length=1, max_length=64, description="The job's id.")]


@router.get("", responses=looks(422))
async def list_jobs(asker: Viewer, asked: Annotated[schemas.JobFilter, Query()]) -> schemas.JobPage:
    """A page of jobs, newest first. With a text a page may be short, or empty, and still have a cursor.

    A text is looked for in jobs as they are shown: what reads [redacted] is not found.
    """
    cursors = Cursors("jobs", asked, asker.tenant)
    page = await search(
        asker.app.store,
        ports.Query(
            states=tuple(JobState(state) for state in asked.state),
            task=asked.task,
            queue=asked.queue,
            tenant=asker.tenant_for(asked.tenant),
            user=asked.user,
            project=asked.project,
            since=asked.since,
            until=asked.until,
            text=asked.text,
            limit=asked.limit,
            cursor=cursors.taken(),
        ),
    )
    return schemas.JobPage.model_construct(
        items=[summary_of(record) for record in page.items], cursor=cursors.given(page.cursor)
    )


@router.post("/cancel", responses=changes())
async def cancel_jobs(asker: Operator, asked: schemas.IdsRequest) -> schemas.ChangedList:
    """Cancel those that have not ended; each says what became of it."""
    return _list_of(await _cancel(asker, asked.ids))


@router.post("/retry", responses=changes())
async def retry_jobs(asker: Operator, asked: schemas.IdsRequest) -> schemas.ChangedList:
    """Send those that are dead letters back to the queue, with new attempts; each says what became of it."""
    return _list_of(await _retry(asker, asked.ids))


@router.get("/{id}", responses=looks(404, 422))
async def get_job(asker: Viewer, id: JobId) -> schemas.JobAnswer:  # noqa: A002
    """A whole job, with its arguments, result and every attempt."""
    record = await asker.record(id)
    return await whole_job_of(record, asker.server.form_of(record.task))


@router.post("/{id}/cancel", responses=changes(404))
async def cancel_job(asker: Operator, id: JobId) -> schemas.ChangedAnswer:  # noqa: A002
    """Cancel it unless it has ended. One that runs is told within seconds."""
    (changed,) = await _cancel(asker, [id])
    return _found(changed)


@router.post("/{id}/retry", responses=changes(404))
async def retry_job(asker: Operator, id: JobId) -> schemas.ChangedAnswer:  # noqa: A002
    """Send a dead letter back to the queue; 409 where it is something else."""
    (changed,) = await _retry(asker, [id])
    answer = _found(changed)
    if not changed.is_done:
        raise ProblemError(409, f"job {id} is {answer.state}, and only dead letters can be sent back to the queue")
    return answer


async def _cancel(asker: Asker, ids: list[str]) -> list[Changed]:
    operation = Operation(
        change=Change.CANCEL,
        ids=ids,
        reason=f"cancelled by {asker.principal.name}",
        keep_s=asker.app.keep_s,
    )
    return await _change(asker, operation, "job.cancel")


async def _retry(asker: Asker, ids: list[str]) -> list[Changed]:
    return await _change(asker, Operation(change=Change.REPLAY, ids=ids), "job.retry")


async def _change(asker: Asker, operation: Operation, action: str) -> list[Changed]:
    """Each job once, in the order asked for; those of others are as if they were not there."""
    ids = list(dict.fromkeys(operation.ids))
    own = await asker.own(ids)
    wanted = [one for one in ids if one in own]
    done: dict[str, Changed] = {}
    if wanted:
        operation = ports.Operation(
            change=operation.change, ids=wanted, reason=operation.reason, keep_s=operation.keep_s
        )
        done = {one.id: one for one in await asker.app.store.change(operation)}
    answers = [done.get(one) or Changed(one, is_done=False, state=None) for one in ids]
    count = sum(one.is_done for one in answers)
    await asker.audit(action, ids[0] if len(ids) == 1 else f"{len(ids)} jobs", f"{count} changed")
    return answers


def _found(changed: Changed) -> schemas.ChangedAnswer:
    if changed.state is None:
        raise NotFound(f"there is no job {changed.id!r}")
    return changed_of(changed)


def _list_of(changed: list[Changed]) -> schemas.ChangedList:
    return schemas.ChangedList.model_construct(items=[changed_of(one) for one in changed])
