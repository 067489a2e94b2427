"""How everything is: the overview, alerts, who did what, health, metrics, and the live stream."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.errors import StoreError
from holdfast.ops.api import schemas
from holdfast.ops.api.access import is_still_allowed
from holdfast.ops.api.asking import FleetAdmin, FleetViewer, Viewer
from holdfast.ops.api.listener import EventStream
from holdfast.ops.api.live import alerts_of
from holdfast.ops.api.openapi import looks, opened
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.server import Server, server_of
from holdfast.ops.redact import redacted_text

router = APIRouter(tags=["watching"])


async def _this_server(request: Request) -> Server:
    return server_of(request)


ThisServer = Annotated[Server, Depends(_this_server)]

_UNHEALTHY: dict[int | str, dict[str, Any]] = {
    503: {"model": schemas.HealthAnswer, "description": "Unhealthy, or the store is away."}
}
_NOT_OK: dict[int | str, dict[str, Any]] = {503: {"model": schemas.LiveAnswer, "description": "Not ready."}}


@router.get("/overview", responses=looks())
async def get_overview(asker: FleetViewer) -> schemas.Overview:
    """States, throughput, latency, queues, health: what the first page shows."""
    return await asker.server.live.overview()


@router.get("/alerts", responses=looks())
async def list_alerts(asker: FleetViewer) -> schemas.AlertList:
    """Every alert rule of the app, and how it stands."""
    return schemas.AlertList.model_construct(items=await alerts_of(asker.app))


@router.get("/audit", responses=looks())
async def list_audit(asker: FleetAdmin) -> schemas.AuditList:
    """The latest changes and refusals, newest first."""
    entries = await asker.server.trail.entries()
    return schemas.AuditList.model_construct(items=[schemas.AuditEntry(**asdict(entry)) for entry in entries])


@router.get("/health", responses=looks() | _UNHEALTHY)
async def get_health(asker: FleetViewer, response: Response) -> schemas.HealthAnswer:
    """Every check, a score from 0 to 1 and what it is made of; 503 when unhealthy."""
    health = await asker.app.ahealth()
    response.status_code = 200 if health.healthy else 503
    return schemas.HealthAnswer.model_construct(
        healthy=health.healthy,
        status=health.status,
        score=health.score,
        reasons=list(health.reasons),
        success_rate=health.success_rate,
        open_breakers=list(health.open_breakers),
        dead_letters=health.dead_letters,
        workers=health.workers,
        durability=health.durability,
        checks={
            name: schemas.CheckAnswer.model_construct(
                status=one.status,
                duration=one.duration,
                error=None if one.error is None else redacted_text(one.error),
            )
            for name, one in health.checks.items()
        },
    )


@router.get("/health/live", responses=opened())
async def get_live(server: ThisServer) -> schemas.LiveAnswer:
    """Whether this process answers; that the store is away does not matter."""
    del server
    return schemas.LiveAnswer(status="ok")


@router.get("/health/ready", responses=opened() | _NOT_OK)
async def get_ready(server: ThisServer, response: Response) -> schemas.LiveAnswer:
    """Whether the store answers this server, within 2 s, and the worker beside it can claim jobs; or else 503."""
    try:
        await server.live.reach()
        reason = server.why_not_ready()
    except (StoreError, TimeoutError):
        reason = "the store is away"
    response.status_code = 503 if reason else 200
    return schemas.LiveAnswer(status="failed" if reason else "ok", reason=reason)


@router.get(
    "/metrics",
    response_class=Response,
    responses=looks()
    | {200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics(asker: FleetViewer) -> Response:
    """Everything that is counted, for Prometheus; within 4 s, also while the store or a health check hangs."""
    from holdfast.ops.metrics import CONTENT_TYPE, exposition  # noqa: PLC0415 - prometheus_client costs 40 ms

    score = await asker.server.live.score()
    return Response(await exposition(asker.app, score=score), media_type=CONTENT_TYPE)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses=looks()
    | {200: {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def get_events(asker: Viewer) -> StreamingResponse:
    """What happens, as it happens: `overview`, `groups`, `replays`; `away` and `back` as the store goes and comes.

    At most two messages of a kind a second. A token of one tenant hears of its own `groups` only. The stream of a token
    that was revoked, or has expired, ends within seconds.
    """
    live, most = asker.server.live, asker.server.settings.max_clients
    if live.clients >= most:
        raise ProblemError(503, f"{most} clients listen already", retry_after=5.0)
    return EventStream(live.join(asker.tenant, lambda: is_still_allowed(asker.request)))
