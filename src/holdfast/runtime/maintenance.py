"""What a worker does for the store on a timer, whether or not there is traffic."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

from holdfast.clock import new_token
from holdfast.errors import StoreError
from holdfast.ports import Clock, Store, Value
from holdfast.runtime import replay
from holdfast.runtime.outage import Outage
from holdfast.runtime.runner import Runner
from holdfast.runtime.schedules import Schedules
from holdfast.types import Rng

_logger = logging.getLogger("holdfast.worker")

_PRUNE_EVERY_S = 60.0
_PRUNE_AT_ONCE = 1_000
_ORPHANS_AT_ONCE = 500
_NAMED = 10
_PART = "maintenance"


class Maintenance:
    """Takes back what dead workers held, fires schedules, drives replays, gives back what waits too long, prunes."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        schedules: Schedules,
        *,
        worker: str,
        values: Mapping[str, Value],
        every_s: float,
        clock: Clock,
        outage: Outage,
        on_work: Callable[[], None],
        on_doubt: Callable[[], Awaitable[None]],
        rng: Rng,
    ) -> None:
        """on_doubt: is told that the store does not have these values as they are."""
        self._store = store
        self._runner = runner
        self._worker = worker
        self._schedules = schedules
        self._values = values
        self._every_s = every_s
        self._clock = clock
        self._outage = outage
        self._on_work = on_work
        self._on_doubt = on_doubt
        # Anywhere in its minute, or a fleet whose workers all die within one, whatever kills them, would never prune.
        self._pruned_s = clock.monotonic() - rng() * _PRUNE_EVERY_S
        self.token = _token()
        """What is reclaimed next comes under it."""

    async def run(self) -> None:
        """Once, and then again and again."""
        while True:
            pause_s = self._every_s
            try:
                await self.once()
                self._outage.works(_PART)
            except StoreError as error:
                pause_s = max(pause_s, self._outage.fails(_PART, error))
            except Exception:  # a bug in one part must not end the others for good
                _logger.exception("maintenance failed, and is tried again")
            await self._clock.asleep(pause_s)

    async def once(self) -> None:
        """Everything that is due."""
        await self._take_back_orphans()
        self._runner.release_late()
        for part in (self._fire_schedules, self._drive_replays, self._prune):
            try:
                await part()
            except StoreError:
                raise
            except Exception:  # one part's trouble is not the others'
                _logger.exception("a part of the maintenance failed; the others go on")

    async def _take_back_orphans(self) -> None:
        # Until the answer has come the token stays: the same one brings what it brought, whoever lost the answer.
        orphans = await self._store.reclaim(self._worker, self.token, _ORPHANS_AT_ONCE)
        self.token = _token()
        if orphans:
            dead = sorted({orphan.worker for orphan in orphans})
            ids = [orphan.id for orphan in orphans]
            named = ", ".join(ids[:_NAMED]) + (" …" if len(ids) > _NAMED else "")
            _logger.warning("took back %d of the jobs of dead worker %s: %s", len(ids), ", ".join(dead), named)
            self._runner.judge_orphans(orphans)
            self._on_work()

    async def _fire_schedules(self) -> None:
        await self._schedules.fire(self._clock.now())

    async def _drive_replays(self) -> None:
        values = list(self._values.values())
        if not await replay.drive(self._store, values, self._worker, self._runner.now()):
            await self._on_doubt()

    async def _prune(self) -> None:
        began_s = self._clock.monotonic()
        if began_s - self._pruned_s < _PRUNE_EVERY_S:
            return
        self._pruned_s = began_s
        while await self._store.prune(_PRUNE_AT_ONCE) == _PRUNE_AT_ONCE:
            if self._clock.monotonic() - began_s >= self._every_s:
                # The others are due: what is left, perhaps of millions, goes on with the next round.
                self._pruned_s = began_s - _PRUNE_EVERY_S
                return


def _token() -> bytes:
    """Of another kind than those of claims, with which it is not compared: they are on their way meanwhile."""
    return b"\0" + new_token()[1:]
