"""What happens, as it happens: one look at the store for all who listen at `/events`.

There is one poller a process, and it runs only while somebody listens. What it sees is written once and kept as the
latest of its topic; whoever is slow gets the newest when he is ready again, and never a queue of old news.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import HoldfastError, NotFound, StoreError
from holdfast.ops.api import schemas
from holdfast.ops.api.crawl_schemas import CrawlDetail, CrawlList
from holdfast.ops.api.crawl_shapes import crawl_of, crawls_of
from holdfast.ops.api.listener import Listener
from holdfast.ops.api.overview import MINUTES, Condition, overview_of
from holdfast.ops.api.ring_schemas import RingList
from holdfast.ops.api.ring_shapes import rings_of
from holdfast.ops.api.shapes import replay_of, streams_of
from holdfast.ops.api.sharing import Shared
from holdfast.ops.redact import redacted_text
from holdfast.ports import Clock, Exchange, Query, Value
from holdfast.runtime import replay as replays
from holdfast.runtime.crawls import CrawlView, crawl_views
from holdfast.runtime.rings import ring_views
from holdfast.runtime.shared.seen import Seen
from holdfast.runtime.streams.views import stream_views
from holdfast.types import Group, JobState

if TYPE_CHECKING:
    from holdfast.app import App

LOOK_S: Final = 0.5
"""Between two looks, so at most two messages of a topic go out a second."""
REACH_S: Final = 2.0
"""How long the store has to answer whether it is there."""
_GROUPS_EVERY: Final = 4
_HEALTH_S: Final = 5.0
_SCORE_WITHIN_S: Final = 1.0
_OLDEST_SCORE_S: Final = 60.0
_UNKNOWN: Final = Condition("unknown", None, (), [])
_TENANTS_A_TURN: Final = 8
"""So many tenants' groups are looked at in one turn: many tenants are told later, and the store is asked no more."""
_MOST_GROUPS: Final = 50
_REPLAYS_SHOWN: Final = 20

_logger = logging.getLogger("holdfast.api")


class Live:
    """The latest of every topic, for all who listen."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._clock = app.clock
        self._values: dict[str, Value] = {}
        self._seen = Seen()
        self._overview: tuple[float, schemas.Overview] | None = None
        self._streams = schemas.StreamList(items=[])
        self._rings = RingList(items=[])
        self._crawls: tuple[float, Sequence[CrawlView]] = (0.0, ())
        self._condition: tuple[float, Condition] | None = None
        self._examining: asyncio.Task[Condition] | None = None
        self._has_failed = False
        self._looking = Shared(self._look)
        self._reaching = Shared(self._reach)
        self._reached_s: float | None = None
        self._latest: dict[tuple[str, str | None], tuple[int, bytes]] = {}
        self._written: dict[tuple[str, str | None], bytes] = {}
        self._version = 0
        self._news = asyncio.Event()
        self._listeners: dict[str | None, int] = {}
        self._groups_due: dict[str | None, int] = {}
        """For whom there are listeners, and from which turn on their groups are looked at again."""
        self._turn_number = 0
        self._poller: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    # ---------------------------------------------------------------- listening

    @property
    def clients(self) -> int:
        """How many listen."""
        return sum(self._listeners.values())

    def join(self, tenant: str | None, is_welcome: Callable[[], bool] = lambda: True) -> Listener:
        """Take a place among those who listen, from now until it leaves; see Listener."""
        listener = Listener(self, self._clock, tenant, is_welcome)
        self._listeners[tenant] = self._listeners.get(tenant, 0) + 1
        self._begin()
        self._groups_due.setdefault(tenant, self._turn_number)
        return listener

    def leave(self, tenant: str | None) -> None:
        """Give a place back; for Listener."""
        self._listeners[tenant] -= 1
        if not self._listeners[tenant]:
            del self._listeners[tenant], self._groups_due[tenant]
            self._forget(tenant)
        if not self._listeners and self._poller is not None:
            self._poller.cancel()
            self._poller = None

    @property
    def is_closed(self) -> bool:
        """Whether every stream has to end."""
        return self._is_closed

    @property
    def news(self) -> asyncio.Event:
        """Set when there is something newer than now."""
        return self._news

    def since(self, version: int, tenant: str | None) -> tuple[int, bytes]:
        """The latest messages of all topics that are newer than this, for a tenant's people; and how new they are."""
        fresh = sorted(
            found for (_, of), found in self._latest.items() if found[0] > version and of in (_EVERYBODY, tenant)
        )
        return (fresh[-1][0] if fresh else version), b"".join(message for _, message in fresh)

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
            self._turn_number = 0
            self._groups_due = dict.fromkeys(self._groups_due, 0)
            self._poller = loop.create_task(self._poll(), name="holdfast-live")

    # ---------------------------------------------------------------- looking

    async def overview(self, *, is_fresh: bool = False) -> schemas.Overview:
        """What there is: not older than half a second, or of this moment."""
        known = self._overview
        if is_fresh or known is None or not 0.0 <= self._clock.monotonic() - known[0] < LOOK_S:
            return await self._looking.ask(is_fresh=is_fresh)
        return known[1]

    async def streams(self) -> schemas.StreamList:
        """Every stream, as of the same look."""
        await self.overview()
        return self._streams

    async def rings(self) -> RingList:
        """Every ring, as of the same look."""
        await self.overview()
        return self._rings

    async def crawls(self) -> CrawlList:
        """Every crawl, as of the same look."""
        await self.overview()
        return crawls_of(self._crawls[1])

    async def crawl(self, name: str) -> CrawlDetail:
        """One of them, with its domains; NotFound where there is none of this name."""
        await self.overview()
        now, views = self._crawls
        for view in views:
            if view.name == name:
                return crawl_of(view, self._values, now)
        raise NotFound(f"there is no crawl {name!r}")

    async def reach(self) -> None:
        """Make sure that the store answers, or has half a second ago: StoreError or TimeoutError, after 2 s at most."""
        if self._reached_s is None or not 0.0 <= self._clock.monotonic() - self._reached_s < LOOK_S:
            await self._reaching.ask()

    async def _reach(self) -> None:
        async with self._clock.timeout(REACH_S):
            await self._app.store.exchange(Exchange(seen=self._seen.version))
        self._reached_s = self._clock.monotonic()

    async def _look(self) -> schemas.Overview:
        store = self._app.store
        capabilities = await asyncio.to_thread(lambda: store.capabilities)  # asking opens it
        asked = self._seen.version
        reply = await store.exchange(Exchange(seen=asked))
        if self._seen.hear(asked, reply):
            self._values.clear()
        self._values.update({value.key: value for value in reply.values})
        stats = await store.stats(int(reply.now // 60) - MINUTES + 1)
        found = overview_of(stats, self._values, capabilities, await self.condition())
        self._streams = streams_of(stream_views(stats, self._app.stream_specs.values()))
        self._rings = rings_of(ring_views(stats))
        self._crawls = (stats.now, crawl_views(stats, self._values.values()))
        self._overview = (self._clock.monotonic(), found)
        return found

    async def condition(self) -> Condition:
        """How the app is, and its alerts, as of a few seconds ago: checks may take long, and nobody waits for them."""
        examining = self._examined()
        if self._condition is None:
            await _bounded(examining, self._clock)
        return _UNKNOWN if self._condition is None else self._condition[1]

    async def score(self) -> float | None:
        """The app's health from 0 to 1, within a second whatever its checks do; None where all that is known is old."""
        await _bounded(self._examined(), self._clock)
        known = self._condition
        is_known = known is not None and 0.0 <= self._clock.monotonic() - known[0] < _OLDEST_SCORE_S
        return known[1].score if known is not None and is_known else None

    def _examined(self) -> asyncio.Task[Condition] | None:
        """The look at the app's health that is under way, for all who ask; begun here where the last one is old."""
        known = self._condition
        is_old = known is None or not 0.0 <= self._clock.monotonic() - known[0] < _HEALTH_S
        if is_old and (self._examining is None or self._examining.done()):
            self._examining = asyncio.get_running_loop().create_task(self._examine())
        return self._examining if is_old else None

    async def _examine(self) -> Condition:
        health = await self._app.ahealth()
        try:
            alerts = await alerts_of(self._app)
        except StoreError:  # which the health says already
            alerts = []
        found = Condition(health.status, health.score, health.reasons, alerts)
        self._condition = (self._clock.monotonic(), found)
        return found

    async def _poll(self) -> None:
        while True:
            try:
                await self._turn(self._turn_number)
                self._has_failed = False
            except StoreError as error:
                self._publish_changed("away", _EVERYBODY, msgspec.json.encode({"reason": redacted_text(str(error))}))
            except Exception:  # whoever listens goes on when it works again
                if not self._has_failed:
                    _logger.exception("the look at the store for /events failed; it is tried again")
                self._has_failed = True
            self._turn_number += 1
            await self._clock.asleep(LOOK_S)

    async def _turn(self, turn: int) -> None:
        has_answered = False
        if None in self._listeners:
            overview = await self.overview(is_fresh=True)
            has_answered = True
            self._publish_changed("overview", None, overview.model_dump_json().encode(), is_timed=True)
            self._publish_changed("replays", None, _replays(self._values.values(), None))
            self._publish_changed("streams", None, self._streams.model_dump_json().encode())
            self._publish_changed("rings", None, self._rings.model_dump_json().encode())
            self._publish_changed("crawls", None, crawls_of(self._crawls[1]).model_dump_json().encode())
        is_away = ("away", _EVERYBODY) in self._latest
        for tenant in self._whose_groups(turn, is_needed=is_away and not has_answered):
            groups = await self._app.store.groups(Query(states=(JobState.DEAD_LETTER,), tenant=tenant))
            has_answered = True
            if tenant in self._listeners:  # and has not left meanwhile
                self._groups_due[tenant] = turn + _GROUPS_EVERY
                self._publish_changed("groups", tenant, _groups(groups))
        if has_answered and ("away", _EVERYBODY) in self._latest:
            self._forget(_EVERYBODY)
            self._publish("back", _EVERYBODY, b"{}")

    def _whose_groups(self, turn: int, *, is_needed: bool) -> list[str | None]:
        """The tenants to look for now: those who have waited longest first, and no more than a few a turn.

        is_needed: somebody in any case, as it has to be known whether the store is back.
        """
        waiting = sorted(self._groups_due.items(), key=lambda pair: pair[1])
        due = [tenant for tenant, due in waiting if due <= turn][:_TENANTS_A_TURN]
        return due or [tenant for tenant, _ in waiting[: int(is_needed)]]

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


async def _bounded(examining: asyncio.Task[Condition] | None, clock: Clock) -> None:
    """Wait for a look at the app's health, for a second at most."""
    if examining is not None:
        with suppress(TimeoutError, HoldfastError):
            async with clock.timeout(_SCORE_WITHIN_S):
                await asyncio.shield(examining)


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
