"""The API put together: routes, guard, errors, document and page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Final

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route

from holdfast.app import App
from holdfast.ops.api import problems
from holdfast.ops.api.guard import Guard
from holdfast.ops.api.heads import Heads
from holdfast.ops.api.openapi import Responses, changes, document
from holdfast.ops.api.page_files import Page
from holdfast.ops.api.routes import crawls, fleet, jobs, letters, replays, retry, rings, session, streams, watching
from holdfast.ops.api.schemas import NewJobAnswer
from holdfast.ops.api.server import Server
from holdfast.ops.api.settings import ApiSettings
from holdfast.ops.api.submit import SubmitRoute, submit_job

_TITLE: Final = "Holdfast"
_DESCRIPTION: Final = (
    "Jobs, dead letters, breakers, queues, streams, rings, crawls and workers of one Holdfast app. Instants are "
    "seconds since 1970 on the store's clock and end in `_at`; lengths are in seconds and end in `_s`. Errors are "
    "application/problem+json."
)
_KNOWN: Final[Responses] = {
    200: {"model": NewJobAnswer, "description": "A job with the same idempotency key was there already."}
}


def build_api(app: App, settings: ApiSettings | None = None) -> FastAPI:
    """An ASGI app over a Holdfast app: the HTTP API, and the page at `/`.

    Run it by itself, or mount it: `fastapi.mount("/holdfast", build_api(app, ApiSettings(tokens=…)))`. Nothing is
    opened before the first request.
    """
    settings = ApiSettings() if settings is None else settings
    server = Server(app, settings)

    @asynccontextmanager
    async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
        yield
        await server.aclose()

    api = FastAPI(
        title=_TITLE,
        version=server.version,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        generate_unique_id_function=_name_of,
        separate_input_output_schemas=False,
        redirect_slashes=False,
        middleware=[
            Middleware(Guard, settings=settings, trail=server.trail, clock=app.clock, bodies=server.bodies),
            Middleware(Heads),
        ],
    )
    api.state.holdfast = server
    api.openapi = lambda: document(api)  # type: ignore[method-assign]
    problems.install(api)
    api.router.add_api_route(
        "/jobs",
        submit_job,
        methods=["POST"],
        status_code=201,
        responses=_KNOWN | changes(404),
        tags=["jobs"],
        route_class_override=SubmitRoute,
    )
    api.router.routes.extend(_routes())
    page = Page()
    for path in ("/", "/index.html", "/favicon.svg", "/theme.js", "/assets/{file:path}"):
        api.router.routes.append(Route(path, page, methods=["GET"], include_in_schema=False))
    return api


@cache
def _routes() -> list[BaseRoute]:
    """Routes that know no app, made once: FastAPI takes a quarter of a second to include them in another one."""
    every = APIRouter(generate_unique_id_function=_name_of, redirect_slashes=False)
    for module in (jobs, letters, replays, fleet, streams, rings, crawls, retry, watching, session):
        every.include_router(module.router)
    return every.routes


def _name_of(route: APIRoute) -> str:
    """What a route is called in the document."""
    return route.name
