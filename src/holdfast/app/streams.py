"""What people who run an app ask about its streams: how each is doing, and how far its group is behind.

Every method has an a… twin for async code; the plain one blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from holdfast.errors import ConfigError, HoldfastError, NotFound, SourceError
from holdfast.policy import bounds
from holdfast.ports import Exchange, Lag, Source, Stats
from holdfast.redact import redacted_text
from holdfast.runtime.streams.passage import retry_topic
from holdfast.runtime.streams.progress import STUCK_S, in_one_line, troubles
from holdfast.runtime.streams.views import StreamView, rate_minute, stream_views

if TYPE_CHECKING:
    from holdfast.app.app import App
    from holdfast.runtime.streams.spec import StreamSpec

WAIT_S: Final = 10.0
"""For so long a server is waited for, unless somebody says otherwise."""
_CLOSE_S: Final = 5.0
_ASK_S: Final = 3.0
"""For so long a health check waits for a server: it has 5 s in all."""
_NO_VALUES: Final = 2**62  # newer than every version


class StreamLag(Struct, frozen=True, kw_only=True):
    """How far a stream's group is behind, as its server says; whether or not a worker runs."""

    name: str
    group: str
    topic: str
    location: str
    partitions: Sequence[Lag] = ()
    """Of the topic and of the group's retry topics."""
    error: str = ""
    """Why the server has not said it, in one line; then there are no partitions."""

    @property
    def lag(self) -> int | None:
        """Messages that are not finished, in all; None where the server has not said it."""
        return None if self.error else sum(one.lag for one in self.partitions)


class StreamDesk:
    """The streams of this app."""

    def __init__(self, app: App) -> None:
        self._app = app

    def list(self) -> Sequence[StreamView]:
        """Every stream that the app has registered or a worker reports, by name, as of the last heartbeats."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[StreamView]:
        """The same for async code."""
        return stream_views(await self._stats(), self._app.stream_specs.values())

    async def _stats(self) -> Stats:
        store = self._app.store
        now = (await store.exchange(Exchange(seen=_NO_VALUES))).now
        return await store.stats(rate_minute(now))

    async def acheck(self, names: Collection[str] = (), *, within_s: float = STUCK_S) -> None:
        """Raise SourceError where these streams, or all, make no progress; what it says is one line."""
        stats = await self._stats()
        views = stream_views(stats, self._app.stream_specs.values())
        if names:
            views = [view for view in views if view.name in names]
        if missing := sorted(set(names) - {view.name for view in views}):
            raise NotFound(f"no stream is named {missing[0]!r}, and no worker reports one")
        unseen = await self.alags_unseen(stats, timeout=_ASK_S)
        waiting = {name: one.error or one.lag or 0 for name, one in unseen.items()}
        if found := [line for view in views for line in troubles(view, within_s, waiting.get(view.name, 0))]:
            raise SourceError(in_one_line(found))

    def lag(self, name: str | None = None, *, timeout: float = WAIT_S) -> Sequence[StreamLag]:
        """How far each stream is behind, or the one of this name, asked of its server: no worker needs to run.

        A server that does not answer within `timeout` seconds [10] is told in the `error` of its streams; NotFound
        where no stream of the app has the name.
        """
        return self._app.bridge.run(self.alag(name, timeout=timeout))

    async def alag(self, name: str | None = None, *, timeout: float = WAIT_S) -> Sequence[StreamLag]:
        """The same for async code."""
        wait_s = bounds.length("timeout", timeout, above=0.0)
        specs = self._app.stream_specs
        if name is not None and name not in specs:
            raise NotFound(f"no stream of this app is named {name!r}")
        wanted = [specs[one] for one in sorted(specs) if name in (None, one)]
        return await asyncio.gather(*(self._lag(spec, wait_s) for spec in wanted))

    async def _lag(self, spec: StreamSpec, wait_s: float) -> StreamLag:
        lags: Sequence[Lag] = ()
        error = ""
        try:
            async with self.source_of(spec) as source, self._app.clock.timeout(wait_s):
                lags = await source.lags(topics_of(spec))
        except TimeoutError:
            error = f"{spec.location} has not answered within {wait_s:g} s"
        except (HoldfastError, OSError) as failure:
            error = redacted_text(" ".join(str(failure).split())) or type(failure).__name__
        return StreamLag(
            name=spec.name,
            group=spec.group,
            topic=spec.topic,
            location=spec.location,
            partitions=sorted(lags, key=lambda one: (one.topic, one.partition)),
            error=error,
        )

    async def alags_unseen(self, stats: Stats, *, timeout: float) -> Mapping[str, StreamLag]:
        """The lag of the registered streams that no live worker reports, by name, asked of their servers."""
        seen = {report.name for worker in stats.workers for report in worker.streams}
        wanted = [spec for name, spec in sorted(self._app.stream_specs.items()) if name not in seen]
        found = await asyncio.gather(*(self._lag(spec, timeout) for spec in wanted))
        return {one.name: one for one in found}

    def check_sources(self, names: Collection[str] | None = None) -> None:
        """ConfigError where a source of these streams, or of any, cannot be made. No server is asked.

        Its package is missing, say, or its URL has an option that there is not.
        """
        for name, spec in self._app.stream_specs.items():
            if names is None or name in names:
                self._app.open_source(spec)  # it has neither thread nor connection before it is used

    @asynccontextmanager
    async def source_of(self, spec: StreamSpec) -> AsyncIterator[Source]:
        """A source of a stream's messages that has joined no group; it is closed in the end, within seconds."""
        source = self._app.open_source(spec)
        try:
            yield source
        finally:
            with suppress(HoldfastError, TimeoutError):  # it has brought what it was asked for, or failed already
                async with self._app.clock.timeout(_CLOSE_S):
                    await source.close()


def topics_of(spec: StreamSpec) -> list[str]:
    """The topics that a stream's group reads: its own, and those that messages come back through."""
    return [spec.topic, *(retry_topic(spec.topic, spec.group, n) for n in range(len(spec.steps) + 1))]


def making_progress(app: App, *names: str, within: float = STUCK_S) -> Callable[[], Awaitable[None]]:
    """A check for `app.health_check(…)`: whether the streams of these names, or all of the app's, move.

    It fails where the first unfinished message of a partition has been the first for `within` seconds [60], where a
    worker cannot reach a stream's server, and where messages wait and no live worker reads them. It names the stream,
    the partition, the message and its key. The check "streams", which every app with streams has, is this one.
    """
    within_s = bounds.length("within", within, above=0.0)
    for name in names:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"name={name!r}: must be the name of a stream")

    async def check() -> None:
        await app.streams.acheck(names, within_s=within_s)

    return check
