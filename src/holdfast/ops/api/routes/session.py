"""Signing in and out, and who one is."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdfast.ops.api import schemas
from holdfast.ops.api.access import PRINCIPAL, sign_in, sign_out_cookie
from holdfast.ops.api.openapi import changes, looks
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.roles import Principal
from holdfast.ops.api.server import Server, server_of

router = APIRouter(prefix="/session", tags=["session"])


@router.get("", responses=looks())
async def get_session(request: Request) -> schemas.SessionAnswer:
    """Who is asking, and what they may do; with a role of null where they have to sign in first."""
    return _answer(server_of(request), request.scope[PRINCIPAL])


@router.post("", responses=changes())
async def begin_session(request: Request, response: Response, asked: schemas.SessionRequest) -> schemas.SessionAnswer:
    """Sign in with a token; the cookie that comes back is for the page, and scripts cannot read it."""
    server = server_of(request)
    if not server.settings.has_tokens:
        raise ProblemError(409, "this server asks for no tokens")
    signed_in = sign_in(request, asked.token)
    response.headers["Set-Cookie"] = signed_in.cookie
    return _answer(server, signed_in.principal)


@router.delete("", status_code=204, responses=changes())
async def end_session(request: Request) -> Response:
    """Sign out: the browser forgets its cookie."""
    return Response(status_code=204, headers={"Set-Cookie": sign_out_cookie(request)})


def _answer(server: Server, principal: Principal | None) -> schemas.SessionAnswer:
    settings = server.settings
    return schemas.SessionAnswer(
        name="" if principal is None else principal.name,
        role=None if principal is None else principal.role.value,
        tenant=None if principal is None else principal.tenant,
        is_read_only=settings.read_only,
        is_open=not settings.has_tokens,
        can_simulate=settings.allows_simulation,
        version=server.version,
    )
