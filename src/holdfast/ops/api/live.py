"""What happens, as it happens: one look at the store for all who listen at `/events`.

There is one poller a process, and it runs only while somebody listens. What it sees is written once and kept as the
latest of its topic; whoever is slow gets the newest when he is ready again, and never a queue of old news.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import StoreError
from holdfast.ops.api import schemas
from holdfast.ops.api.overview import MINUTES, Condition, overview_of
from holdfast.ops.api.shapes import replay_of
from holdfast.ops.redact import redacted_text
from holdfast.ports import Exchange, Query, Value
from holdfast.runtime import replay as replays
from holdfast.types import Group, JobState

if TYPE_CHECKING:
    from holdfast.app import App

LOOK_S: Final = 0.5
"""Between two looks, so at most two messages of a topic go out a second."""
PING_S: Final = 15.0
"""A comment after so long without news, so that nobody in between takes the connection for dead."""
_GROUPS_EVERY: Final = 4
_HEALTH_S: Final = 5.0
_MOST_GROUPS: Final = 50
_REPLAYS_SHOWN: Final = 20
_CLOSED: Final = b"event: closed\ndata: {}\n\n"

_logger = logging.getLogger("holdfast.api")


class Live:
    """The latest of every topic, for all who listen."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._clock = app.clock
        self._values: dict[str, Value] = {}
        self._seen = 0
        self._overview: tuple[float, schemas.Overview] | None = None
        self._condition: tuple[float, Condition] | None = None
        self._examining: asyncio.Task[Condition] | None = None
        self._has_failed = False
        self._looking = asyncio.Lock()
        self._latest: dict[tuple[str, str | None], tuple[int, bytes]] = {}
        self._written: dict[tuple[str, str | None], bytes] = {}
        self._version = 0
        self._news = asyncio.Event()
        self._listeners: dict[str | None, int] = {}
        self._poller: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    # ---------------------------------------------------------------- listening

    @property
    def clients(self) -> int:
        """How many listen."""
        return sum(self._listeners.values())

    async def listen(self, tenant: str | None) -> AsyncIterator[bytes]:
        """Messages as server-sent events, until the server closes; a tenant's people hear of its dead letters only."""
        self._listeners[tenant] = self._listeners.get(tenant, 0) + 1
        try:
            self._begin()
            yield b"retry: 2000\n\n"
            seen = 0
            while not self._is_closed:
                news = self._news
                fresh = [
                    (version, message)
                    for (_, of), (version, message) in self._latest.items()
                    if version > seen and of in (_EVERYBODY, tenant)
                ]
                if fresh:
                    seen = max(version for version, _ in fresh)
                    yield b"".join(message for _, message in sorted(fresh))
                    continue
                try:
                    async with self._clock.timeout(PING_S):
                        await news.wait()
                except TimeoutError:
                    yield b": still here\n\n"
            yield _CLOSED
        finally:
            self._listeners[tenant] -= 1
            if not self._listeners[tenant]:
                del self._listeners[tenant]
                self._forget(tenant)
            if not self._listeners and self._poller is not None:
                self._poller.cancel()
                self._poller = None

    def close(self) -> None:
        """End every stream: a server that stops does not wait for them."""
        self._is_closed = True
        self._tell()

    def _begin(self) -> None:
        loop = asyncio.get_running_loop()
        if self._poller is None or self._poller.done() or self._loop is not loop:
            self._loop = loop
            self._latest.clear()
            self._written.clear()
            self._news = asyncio.Event()
            self._poller = loop.create_task(self._poll(), name="holdfast-live")

    # ---------------------------------------------------------------- looking

    async def overview(self, *, is_fresh: bool = False) -> schemas.Overview:
        """What there is: not older than half a second, or of this moment."""
        async with self._looking:  # whoever asks at the same time shares one look
            known = self._overview
            if is_fresh or known is None or not 0.0 <= self._clock.monotonic() - known[0] < LOOK_S:
                found = await self._look()
                known = self._overview = (self._clock.monotonic(), found)
            return known[1]

    async def _look(self) -> schemas.Overview:
        store = self._app.store
        capabilities = await asyncio.to_thread(lambda: store.capabilities)  # asking opens it
        reply = await store.exchange(Exchange(seen=self._seen))
        for value in reply.values:
            self._seen = max(self._seen, value.version)
            self._values[value.key] = value
        stats = await store.stats(int(reply.now // 60) - MINUTES + 1)
        return overview_of(stats, self._values, capabilities, await self.condition())

    async def condition(self) -> Condition:
        """How the app is, and its alerts, as of a few seconds ago: checks may take long, and nobody waits for them."""
        known = self._condition
        is_old = known is None or not 0.0 <= self._clock.monotonic() - known[0] < _HEALTH_S
        if is_old and (self._examining is None or self._examining.done()):
            self._examining = asyncio.get_running_loop().create_task(self._examine())
        if known is not None:
            return known[1]
        return await asyncio.shield(self._examining) if self._examining is not None else await self._examine()

    async def _examine(self) -> Condition:
        health = await self._app.ahealth()
        try:
            alerts = await alerts_of(self._app)
        except StoreError:  # which the health says already
            alerts = []
        found = Condition(health.status, health.score, alerts)
        self._condition = (self._clock.monotonic(), found)
        return found

    async def _poll(self) -> None:
        turn = 0
        while True:
            try:
                await self._turn(turn)
                self._has_failed = False
            except StoreError as error:
                self._publish_changed("away", _EVERYBODY, msgspec.json.encode({"reason": redacted_text(str(error))}))
            except Exception:  # whoever listens goes on when it works again
                if not self._has_failed:
                    _logger.exception("the look at the store for /events failed; it is tried again")
                self._has_failed = True
            turn += 1
            await self._clock.asleep(LOOK_S)

    async def _turn(self, turn: int) -> None:
        if None in self._listeners:
            overview = await self.overview(is_fresh=True)
            self._publish_changed("overview", None, overview.model_dump_json().encode(), is_timed=True)
            self._publish_changed("replays", None, _replays(self._values.values(), None))
        if turn % _GROUPS_EVERY == 0:
            for tenant in list(self._listeners):
                groups = await self._app.store.groups(Query(states=(JobState.DEAD_LETTER,), tenant=tenant))
                self._publish_changed("groups", tenant, _groups(groups))
        if ("away", _EVERYBODY) in self._latest:
            self._forget(_EVERYBODY)
            self._publish("back", _EVERYBODY, b"{}")

    # ---------------------------------------------------------------- telling

    def _publish_changed(self, topic: str, tenant: str | None, data: bytes, *, is_timed: bool = False) -> None:
        """Tell it unless it is what was told last. is_timed: its first field is the time, which always changes."""
        known = data.partition(b",")[2] if is_timed else data
        if self._written.get((topic, tenant)) != known:
            self._written[topic, tenant] = known
            self._publish(topic, tenant, data)

    def _publish(self, topic: str, tenant: str | None, data: bytes) -> None:
        self._version += 1
        self._latest[topic, tenant] = (self._version, b"event: %s\ndata: %s\n\n" % (topic.encode(), data))
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _forget(self, tenant: str | None) -> None:
        for key in [key for key in self._latest if key[1] == tenant]:
            del self._latest[key]
            self._written.pop(key, None)


_EVERYBODY: Final = "\0everybody"  # no tenant is named so: names are printable


def _groups(groups: Iterable[Group]) -> bytes:
    """Small, for it says only what to fetch anew."""
    shown = [
        {"fingerprint": one.fingerprint, "count": one.count, "last_at": one.last_at}
        for one in list(groups)[:_MOST_GROUPS]
    ]
    return msgspec.json.encode({"items": shown})


def _replays(values: Iterable[Value], tenant: str | None) -> bytes:
    """The newest of them, as `GET /replays` has them."""
    found = []
    for value in values:
        if value.key.startswith(replays.PREFIX) and value.data is not None:
            try:
                found.append(replays.decode(value))
            except msgspec.MsgspecError:
                continue  # a newer Holdfast's
    found.sort(key=lambda one: (one.created_at, one.id), reverse=True)
    shown = [replay_of(one) for one in found if tenant in (None, one.query.tenant)][:_REPLAYS_SHOWN]
    return schemas.ReplayList.model_construct(items=shown).model_dump_json().encode()


async def alerts_of(app: App) -> list[schemas.AlertAnswer]:
    """Every alert rule of the app, and how it stands."""
    return [
        schemas.AlertAnswer(
            name=one.name,
            is_firing=one.is_firing,
            since_at=one.since_at,
            value=one.value,
            threshold=one.threshold,
            text=redacted_text(one.text),
        )
        for one in await app.alerts.alist()
    ]
