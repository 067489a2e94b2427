"""From an app to its store: new jobs, through an outage where the app is told to wait for its end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.ports import Enqueued
from holdfast.runtime.outage import insist, insist_now
from holdfast.runtime.tracing import API, carrying
from holdfast.types import NewJob

if TYPE_CHECKING:
    from holdfast.app.app import App


def send(app: App, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
    """Enqueue on this thread. The same ids go again after a failure, so nothing is doubled.

    On a connection of the caller's nothing is sent twice: after a failure its transaction is over.
    """
    if API in sys.modules:
        with carrying(jobs) as traced:
            return _send(app, traced, connection)
    return _send(app, jobs, connection)


def _send(app: App, jobs: Sequence[NewJob], connection: object | None) -> list[Enqueued]:
    if app.enqueue_wait <= 0.0 or connection is not None:
        return app.store.enqueue_now(jobs, connection)
    return insist_now(lambda: app.store.enqueue_now(jobs), app.enqueue_wait, app.clock)


async def asend(app: App, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
    """Enqueue from the event loop."""
    if API in sys.modules:
        with carrying(jobs) as traced:
            return await _asend(app, traced, connection)
    return await _asend(app, jobs, connection)


async def _asend(app: App, jobs: Sequence[NewJob], connection: object | None) -> list[Enqueued]:
    if app.enqueue_wait <= 0.0 or connection is not None:
        return await app.store.enqueue(jobs, connection)
    return await insist(lambda: app.store.enqueue(jobs), app.enqueue_wait, app.clock)
