"""Rings: how full each is, how far behind its consumers are, and what holds them up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from holdfast.errors import NotFound
from holdfast.ops.api.asking import FleetViewer
from holdfast.ops.api.openapi import looks
from holdfast.ops.api.ring_schemas import RingList

router = APIRouter(prefix="/rings", tags=["fleet"])

Name = Annotated[str, Path(min_length=1, max_length=200, description="The ring's name; a slash is sent as %2F.")]


@router.get("", responses=looks())
async def list_rings(asker: FleetViewer) -> RingList:
    """Every ring that a live process reports, as of its last heartbeat: one for each process that has it."""
    return await asker.server.live.rings()


@router.get("/{name:path}", responses=looks(404, 422))
async def get_ring(asker: FleetViewer, name: Name) -> RingList:
    """The ring of this name, in each process that has it."""
    found = [ring for ring in (await asker.server.live.rings()).items if ring.name == name]
    if not found:
        raise NotFound(f"no live process reports a ring {name!r}")
    return RingList(items=found)
