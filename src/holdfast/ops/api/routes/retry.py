"""`/retry/…`: breakers, dead letters and statistics under the names that requirements T3 and T4 give them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from holdfast.errors import NotFound, UnknownTask
from holdfast.ops.api import schemas
from holdfast.ops.api.asking import FleetAdmin, FleetOperator, FleetViewer, Operator, Viewer
from holdfast.ops.api.openapi import changes, looks
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.routes import fleet, letters
from holdfast.ops.api.simulating import simulate
from holdfast.ops.api.statistics import retry_stats

router = APIRouter(prefix="/retry", tags=["retry"])

BreakerType = Annotated[str, Path(min_length=1, max_length=200, description="The breaker's key: its task's name.")]


@router.get("/circuit-breakers", responses=looks())
async def list_circuit_breakers(asker: FleetViewer) -> schemas.BreakerList:
    """Every breaker, as `GET /breakers` has them."""
    return await fleet.breakers_of(asker)


@router.post("/circuit-breakers/{type:path}/reset", responses=changes(404))
async def reset_circuit_breaker(asker: FleetOperator, type: BreakerType) -> schemas.BreakerAnswer:  # noqa: A002
    """Close one, by its key or by the name of a task that has it."""
    spec = asker.app.specs.get(type)
    key = spec.breaker if spec is not None and spec.breaker is not None else type
    return await fleet.reset_breaker(asker, key)


@router.get("/dead-letters", responses=looks(422))
async def list_dead_letters(asker: Viewer, asked: Annotated[schemas.LetterQuery, Query()]) -> schemas.JobPage:
    """A page of dead letters, as `GET /dead-letters` has it."""
    return await letters.list_letters(asker, asked)


@router.post("/dead-letters/{id}/retry", responses=changes(404))
async def retry_dead_letter(
    asker: Operator,
    id: letters.LetterId,  # noqa: A002
    asked: schemas.RetryRequest | None = None,
) -> schemas.ChangedAnswer:
    """Send one back to the queue."""
    return await letters.retry_letter(asker, id, asked)


@router.delete("/dead-letters", responses=changes())
async def purge_dead_letters(asker: FleetAdmin, older_than_hours: letters.OlderThan) -> schemas.RemovedAnswer:
    """Delete every letter that was given up longer ago than this."""
    return await letters.purge_letters(asker, older_than_hours)


@router.get("/stats", responses=looks())
async def get_retry_stats(asker: FleetViewer) -> schemas.RetryStats:
    """Attempts since the store was made, breakers and dead letters, in numbers."""
    return await retry_stats(asker.app)


@router.post("/simulate-failure", responses=changes(404))
async def simulate_failure(
    asker: FleetOperator,
    task_type: Annotated[str, Query(min_length=1, max_length=200, description="The name of a task.")],
) -> schemas.SimulatedAnswer:
    """Count one failure on that task's breaker, as a failed run would; only where the server allows it."""
    if not asker.server.settings.allows_simulation:
        raise NotFound("simulating failures is not switched on: holdfast serve --allow-simulation")
    spec = asker.app.specs.get(task_type)
    if spec is None:
        raise UnknownTask(f"no task is named {task_type!r} here")
    if spec.breaker is None:
        raise ProblemError(409, f"task {task_type!r} has no breaker")
    await simulate(asker.app, spec.breaker, spec.breaker_config)
    await asker.audit("failure.simulate", task_type)
    breaker = await fleet.found_breaker(asker, spec.breaker)
    return schemas.SimulatedAnswer.model_construct(task_type=task_type, breaker=breaker)
