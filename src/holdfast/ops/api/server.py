"""What all routes of one API share: the app, the settings, the live stream."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from holdfast.ops.api.audit import AuditTrail
from holdfast.ops.api.forms import arguments_schema
from holdfast.ops.api.live import Live

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.ops.api.settings import ApiSettings


class Server:
    """One API over one app."""

    def __init__(self, app: App, settings: ApiSettings) -> None:
        self.app = app
        self.settings = settings
        self.version = version("holdfast")
        self.live = Live(app)
        self.trail = AuditTrail(app.store, clock=app.clock)
        self._forms: dict[str, tuple[object, dict[str, Any]]] = {}

    async def aclose(self) -> None:
        """End the streams, and write down what is still to be written."""
        self.live.close()
        await self.trail.aclose()

    def form_of(self, task: str) -> dict[str, Any] | None:
        """JSON schema of a task's arguments; None where this app does not know the task."""
        spec = self.app.specs.get(task)
        if spec is None:
            return None
        known = self._forms.get(task)
        if known is None or known[0] is not spec.fn:
            known = self._forms[task] = (spec.fn, arguments_schema(spec))
        return known[1]


def server_of(request: Request) -> Server:
    """The API that a request came to."""
    server: Server = request.app.state.holdfast
    return server
