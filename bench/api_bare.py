"""The route that bench-api compares with: it reads the same typed body, and stores nothing."""

from __future__ import annotations

import uvicorn
from fastapi import FastAPI

from holdfast.clock import new_id
from holdfast.ops.api.schemas import NewJobRequest

api = FastAPI()


@api.post("/jobs", status_code=201, response_model=None)
async def submit(asked: NewJobRequest) -> dict[str, object]:
    return {"id": new_id(), "is_new": bool(asked.task), "state": "queued"}


@api.get("/health/live")
async def live() -> dict[str, str]:
    return {"status": "alive"}


def serve(port: int) -> None:
    uvicorn.run(api, port=port, loop="asyncio", http="h11", ws="none", access_log=False, log_level="warning")
