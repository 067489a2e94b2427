"""Crawls: how far each is, how quick, and what its domains are at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from holdfast.ops.api.asking import FleetViewer
from holdfast.ops.api.crawl_schemas import CrawlDetail, CrawlList
from holdfast.ops.api.openapi import looks

router = APIRouter(prefix="/crawls", tags=["fleet"])

Name = Annotated[str, Path(min_length=1, max_length=200, description="The crawl's name; a slash is sent as %2F.")]


@router.get("", responses=looks())
async def list_crawls(asker: FleetViewer) -> CrawlList:
    """Every crawl that the store knows of, whether or not a process is on it; domains are left out."""
    return await asker.server.live.crawls()


@router.get("/{name:path}", responses=looks(404, 422))
async def get_crawl(asker: FleetViewer, name: Name) -> CrawlDetail:
    """The crawl of this name, with its seeds and its domains."""
    return await asker.server.live.crawl(name)
