"""What people who run an app ask about the rings of its processes; every method has an a… twin for async code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import NotFound
from holdfast.runtime.rings import RingView, names_of, refuse_troubled, ring_views

if TYPE_CHECKING:
    from holdfast.app.app import App


class RingDesk:
    """The rings that were given this app, in whichever process they are."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> Sequence[RingView]:
        """Every ring that a live process reports, as of the last heartbeats: one for each process that has it."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[RingView]:
        """The same for async code."""
        return ring_views(await self._app.store.stats())

    def check(self, names: Collection[str] = ()) -> None:
        """Raise where these rings, or all, have a consumer that is stuck or whose checkpoint cannot be saved.

        RingStuck or CheckpointError names ring and consumer in one line; NotFound a ring that no live process reports.
        """
        self._app.bridge.run(self.acheck(names))

    async def acheck(self, names: Collection[str] = ()) -> None:
        """The same for async code."""
        wanted = {names} if isinstance(names, str) else set(names)
        views = await self.alist()
        if missing := sorted(wanted - set(names_of(views))):
            raise NotFound(f"no live process reports a ring {missing[0]!r}")
        refuse_troubled([view for view in views if not wanted or view.name in wanted])
