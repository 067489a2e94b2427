"""Replays: many dead letters back to the queue, done by the workers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from msgspec.structs import replace

from holdfast.app.messages import check_replay
from holdfast.errors import Invalid
from holdfast.ops.api import schemas
from holdfast.ops.api.asking import Asker, Operator, Viewer
from holdfast.ops.api.hiding import has_hidden
from holdfast.ops.api.openapi import changes, looks
from holdfast.ops.api.routes.letters import filters_of
from holdfast.ops.api.shapes import replay_of, sample_of
from holdfast.ops.redact import HIDDEN
from holdfast.runtime.inbox import Inbox
from holdfast.runtime.replay import Replay
from holdfast.runtime.replays import Preview, Replays

router = APIRouter(prefix="/replays", tags=["replays"])

ReplayId = Annotated[str, Path(min_length=1, max_length=100, description="The replay's id.")]


@router.post("/preview", responses=changes())
async def preview_replay(asker: Operator, asked: schemas.ReplayRequest) -> schemas.PreviewAnswer:
    """What a replay would do: how many letters, and a few of them with the edit applied. Nothing is stored."""
    preview = await _start(asker, asked, dry_run=True)
    if not isinstance(preview, Preview):
        raise TypeError("a dry run makes no replay")
    sample = [sample_of(record, asker.server.form_of(record.task)) for record in preview.sample]
    return schemas.PreviewAnswer.model_construct(total=preview.total, sample=sample)


@router.post("", status_code=201, responses=changes())
async def start_replay(asker: Operator, asked: schemas.ReplayRequest) -> schemas.ReplayAnswer:
    """Begin a replay. Asked twice with one replay_id, it is one replay."""
    replay = await _start(asker, asked, dry_run=False)
    if not isinstance(replay, Replay):
        raise TypeError("only a dry run makes a preview")
    await asker.audit("replay.start", replay.id, f"{replay.total} letters")
    return replay_of(replay)


@router.get("", responses=looks())
async def list_replays(asker: Viewer) -> schemas.ReplayList:
    """Every replay, newest first; of those that have ended, the latest 50 of each tenant."""
    found = await _desk(asker).list()
    return schemas.ReplayList.model_construct(items=[replay_of(replay) for replay in found])


@router.post("/{id}/pause", responses=changes(404))
async def pause_replay(asker: Operator, id: ReplayId) -> schemas.ReplayAnswer:  # noqa: A002
    """Send nothing more until it is resumed."""
    replay = await _desk(asker).pause(id, f"paused by {asker.principal.name}")
    await asker.audit("replay.pause", id, replay.state.value)
    return replay_of(replay)


@router.post("/{id}/resume", responses=changes(404))
async def resume_replay(asker: Operator, id: ReplayId) -> schemas.ReplayAnswer:  # noqa: A002
    """Go on where it was paused."""
    replay = await _desk(asker).resume(id)
    await asker.audit("replay.resume", id, replay.state.value)
    return replay_of(replay)


@router.post("/{id}/stop", responses=changes(404))
async def stop_replay(asker: Operator, id: ReplayId) -> schemas.ReplayAnswer:  # noqa: A002
    """End it; what was sent stays sent."""
    replay = await _desk(asker).stop(id, f"stopped by {asker.principal.name}")
    await asker.audit("replay.stop", id, replay.state.value)
    return replay_of(replay)


async def _start(asker: Asker, asked: schemas.ReplayRequest, *, dry_run: bool) -> Replay | Preview:
    if asked.edit is not None and has_hidden(asked.edit):
        raise Invalid(f"edit: a value in it reads {HIDDEN}; leave out what is to stay as it is")
    filters = filters_of(asker, asked.filter)
    await check_replay(asker.app, filters, asked.edit, canary=asked.canary)
    query = await Inbox(asker.app.store).query(**filters)
    return await _desk(asker).start(
        replace(query, tenant=asker.tenant_for(query.tenant)),
        edit=asked.edit,
        canary=asked.canary,
        rate=asked.rate,
        replay_id=asked.replay_id,
        dry_run=dry_run,
    )


def _desk(asker: Asker) -> Replays:
    """The replays that are theirs to see and to steer."""
    return Replays(asker.app.store, tenant=asker.tenant)
