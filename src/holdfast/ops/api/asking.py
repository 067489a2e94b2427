"""Who asks a route, and what of the store is theirs to see: the dependencies of all routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Final, TypeAlias

from fastapi import Depends
from fastapi.routing import APIRoute
from starlette.requests import Request

from holdfast.app import App
from holdfast.errors import NotFound
from holdfast.ops.api.access import allowed
from holdfast.ops.api.audit import audit
from holdfast.ops.api.problems import ProblemError
from holdfast.ops.api.roles import Principal, Role
from holdfast.ops.api.server import Server, server_of
from holdfast.types import JobRecord

_REPEATED: Final = frozenset({"state"})
"""Parameters of a query that may be given several times."""


class Asker:
    """Somebody with the role that a route needs."""

    __slots__ = ("app", "principal", "request", "server")

    def __init__(self, request: Request, principal: Principal) -> None:
        self.request = request
        self.principal = principal
        self.server: Server = server_of(request)
        self.app: App = self.server.app

    @property
    def tenant(self) -> str | None:
        """The only tenant whose jobs they may see; None is all."""
        return self.principal.tenant

    def tenant_for(self, asked: str | None) -> str | None:
        """The tenant to filter by: their own, whatever they ask for, if they have one."""
        return asked if self.tenant is None else self.tenant

    async def record(self, job_id: str) -> JobRecord:
        """A whole job; NotFound also where it is another tenant's."""
        (record,) = await self.app.store.get([job_id])
        if record is None or self.tenant not in (None, record.tenant):
            raise NotFound(f"there is no job {job_id!r}")
        return record

    async def own(self, ids: list[str]) -> set[str]:
        """Which of these jobs they may change; of a tenant's people, only its own."""
        if self.tenant is None:
            return set(ids)
        return {one.id for one in await self.app.store.get(ids) if one is not None and one.tenant == self.tenant}

    async def audit(self, action: str, target: str, outcome: str = "done") -> None:
        """Write down what was done."""
        await audit(self.request, action, target, outcome)


def _refuse_repeated(request: Request) -> None:
    """422 where a parameter is given twice that has one value: nobody can know which one is meant."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not route.dependant.query_params:
        return  # it takes none, so it does not matter
    counts = Counter(name for name, _ in request.query_params.multi_items() if name not in _REPEATED)
    if errors := [(f"query.{name}", "is given more than once") for name, n in counts.items() if n > 1]:
        raise ProblemError(422, "the request is not as described", errors=errors)


def _asker(role: Role, *, is_fleet: bool) -> Callable[[Request], Awaitable[Asker]]:
    async def ask(request: Request) -> Asker:
        asker = Asker(request, allowed(request.scope, role, is_fleet=is_fleet))
        if request.scope["query_string"]:
            _refuse_repeated(request)
        return asker

    return ask  # async, as FastAPI hands others to a thread


Viewer: TypeAlias = Annotated[Asker, Depends(_asker(Role.VIEWER, is_fleet=False))]
"""Anybody who may look."""
Operator: TypeAlias = Annotated[Asker, Depends(_asker(Role.OPERATOR, is_fleet=False))]
"""Anybody who may change jobs."""
FleetViewer: TypeAlias = Annotated[Asker, Depends(_asker(Role.VIEWER, is_fleet=True))]
"""Anybody who may look at what is not one tenant's."""
FleetOperator: TypeAlias = Annotated[Asker, Depends(_asker(Role.OPERATOR, is_fleet=True))]
"""Anybody who may change what is not one tenant's."""
FleetAdmin: TypeAlias = Annotated[Asker, Depends(_asker(Role.ADMIN, is_fleet=True))]
"""Anybody who may delete much at once, and see who did what."""
