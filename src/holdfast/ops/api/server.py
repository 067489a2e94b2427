"""What all routes of one API share: the app, the settings, the live stream."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from holdfast.ops.api.audit import AuditTrail
from holdfast.ops.api.bodies import Bodies
from holdfast.ops.api.forms import arguments_schema
from holdfast.ops.api.live import Live

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.ops.api.settings import ApiSettings
    from holdfast.runtime.worker import Worker


class Server:
    """One API over one app."""

    def __init__(self, app: App, settings: ApiSettings) -> None:
        self.app = app
        self.settings = settings
        self.version = version("holdfast")
        self.live = Live(app)
        self.bodies = Bodies(app.clock)
        self.trail = AuditTrail(app.store, clock=app.clock)
        self.worker: Worker | None = None
        """The one that runs in the same process, in `holdfast dev`."""
        self._forms: dict[str, tuple[object, dict[str, Any]]] = {}

    def stop(self) -> None:
        """End the streams, and wait for no request that is not whole yet."""
        self.live.close()
        self.bodies.close()

    async def aclose(self) -> None:
        """Stop, and write down what is still to be written."""
        self.stop()
        await self.trail.aclose()

    def why_not_ready(self) -> str:
        """Why the worker of this process, if there is one, cannot claim jobs."""
        why = "" if self.worker is None else self.worker.why_not_ready()
        return f"the worker: {why}" if why else ""

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
