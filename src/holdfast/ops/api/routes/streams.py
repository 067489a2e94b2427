"""Streams: how far behind each is, what it holds, and what holds it up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from holdfast.errors import NotFound
from holdfast.ops.api import schemas
from holdfast.ops.api.asking import FleetViewer
from holdfast.ops.api.openapi import looks

router = APIRouter(prefix="/streams", tags=["fleet"])

Name = Annotated[str, Path(min_length=1, max_length=200, description="The stream's name; a slash is sent as %2F.")]


@router.get("", responses=looks())
async def list_streams(asker: FleetViewer) -> schemas.StreamList:
    """Every stream that this server's app has registered or a worker reports, as of their last heartbeats."""
    return await asker.server.live.streams()


@router.get("/{name:path}", responses=looks(404, 422))
async def get_stream(asker: FleetViewer, name: Name) -> schemas.StreamAnswer:
    """One of them."""
    for stream in (await asker.server.live.streams()).items:
        if stream.name == name:
            return stream
    raise NotFound(f"no stream is named {name!r}")
