"""The streams of one worker: a pump for each, and the sources by which their letters are carried."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.errors import ConfigError, SourceError
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock, Source, Store, StreamReport
from holdfast.runtime.shared.guards import SharedGuards
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.carrier import carrier_of
from holdfast.runtime.streams.pump import NewRunner, StreamPump
from holdfast.runtime.streams.spec import StreamSpec, Values
from holdfast.runtime.tracing import Tracer
from holdfast.types import Rng

_logger = logging.getLogger("holdfast.worker")

_AGAIN: Final = Backoff(initial_delay=1.0, multiplier=2.0, max_delay=60.0)
_HAND_OVER_S: Final = 10.0
_SOUND_S: Final = 300.0
"""A source that has worked for so long begins anew at once when it breaks."""


class WorkerStreams:
    """Those of a worker's streams that it handles, and the carriers of all: a letter may be replayed by any worker."""

    def __init__(
        self,
        specs: Sequence[StreamSpec],
        names: tuple[str, ...] | None,
        open_source: Callable[[StreamSpec], Source] | None,
        *,
        store: Store,
        clock: Clock,
        rng: Rng,
    ) -> None:
        unknown = set(names or ()) - {one.name for one in specs}
        if unknown:
            known = ", ".join(sorted(one.name for one in specs)) or "none at all"
            raise ConfigError(f"streams: there is no {min(unknown)!r} in this app; it has {known}")
        self._specs = [one for one in specs if names is None or one.name in names]
        for one in self._specs:
            if isinstance(one.task.given, Values):
                one.task.given.check()  # now: later it would be a failure of every message
        self._open_source = open_source
        self._store = store
        self._clock = clock
        self._rng = rng
        self._senders: dict[str, Source] = {}
        self._new_pump: Callable[[StreamSpec], StreamPump]
        self._replacing: set[asyncio.Task[None]] = set()
        self._broken: dict[str, tuple[int, float]] = {}
        """By stream: how often in a row its source has broken, and when last."""
        self._is_draining = False
        self.pumps: list[StreamPump] = []
        self.carried: set[str] = set()
        """Letters that were sent, and are not settled yet."""
        self.carriers: dict[str, TaskSpec] = {
            one.name: carrier_of(one, self._sender, store, self.carried.add) for one in specs
        }
        self.queues = tuple(one.task.queue for one in specs)

    def open(self, new_runner: NewRunner, guards: SharedGuards, on_news: Callable[[], None]) -> None:
        """Make the pumps; on the worker's loop."""

        def new_pump(spec: StreamSpec) -> StreamPump:
            pump = StreamPump(
                spec,
                self._new(spec),
                store=self._store,
                guards=guards,
                new_runner=new_runner,
                clock=self._clock,
                rng=self._rng,
                on_news=on_news,
            )
            pump.on_broken = self._replace
            return pump

        self._new_pump = new_pump
        self.pumps = [new_pump(spec) for spec in self._specs]

    def start(self, tracer: Tracer | None) -> None:
        """Begin to receive."""
        for pump in self.pumps:
            pump.runner.tracer = tracer
            pump.start()

    def _replace(self, pump: StreamPump) -> None:
        if not self._is_draining:
            task = asyncio.create_task(self._replace_soon(pump))
            self._replacing.add(task)
            task.add_done_callback(lambda task: self._replaced(task, pump))

    def _replaced(self, task: asyncio.Task[None], broken: StreamPump) -> None:
        self._replacing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.critical("stream %s cannot be opened anew", broken.spec.name, exc_info=error)
            broken.runner.must_be_replaced = True

    async def _replace_soon(self, broken: StreamPump) -> None:
        """Another pump, with a source of its own, in the place of one whose source is broken; after a while."""
        await broken.drain(_HAND_OVER_S)
        before, broke_s = self._broken.get(broken.spec.name, (0, float("-inf")))
        now_s = self._clock.monotonic()
        tries = 1 if now_s - broke_s > _SOUND_S else before + 1
        self._broken[broken.spec.name] = (tries, now_s)
        await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))
        pump = self._new_pump(broken.spec)
        pump.runner.set_now(broken.runner.now())
        pump.runner.tracer = broken.runner.tracer
        pump.on_rest = broken.on_rest
        self.pumps[self.pumps.index(broken)] = pump
        pump.start()

    def watch(self, on_rest: Callable[[], None]) -> None:
        """Tell somebody whenever one of them has nothing under way."""
        for pump in self.pumps:
            pump.on_rest = on_rest

    def set_now(self, now: float) -> None:
        """The store's clock, just now."""
        for pump in self.pumps:
            pump.runner.set_now(now)
            pump.wake()

    @property
    def must_be_replaced(self) -> bool:
        """Whether one of them can only go on in another process."""
        return any(pump.runner.must_be_replaced for pump in self.pumps)

    @property
    def is_idle(self) -> bool:
        """Whether none has anything to do."""
        return all(pump.is_idle for pump in self.pumps)

    @property
    def next_due_s(self) -> float | None:
        """Seconds until one that waits may go on; None while any has something to do now, or none waits."""
        waits = [pump.next_due_s for pump in self.pumps if not pump.is_idle]
        found = [one for one in waits if one is not None]
        return min(found) if found and len(found) == len(waits) else None

    def reports(self) -> tuple[StreamReport, ...]:
        """How they are doing; from any thread."""
        return tuple(pump.report for pump in self.pumps)

    async def drain(self, grace_s: float) -> bool:
        """Stop all of them in good order; whether everything in flight was finished."""
        self._is_draining = True
        for task in self._replacing:
            task.cancel()
        await asyncio.gather(*self._replacing, return_exceptions=True)
        return all(await asyncio.gather(*[pump.drain(grace_s) for pump in self.pumps]))

    async def close(self) -> None:
        """Give everything back, when no letter is carried any more; what was not drained is stopped where it is."""
        if not self._is_draining:
            await self.drain(0.0)
        while self._senders:
            name, source = self._senders.popitem()
            try:
                await source.close()
            except SourceError as error:
                _logger.warning("stream %s: what carries its letters could not be closed: %s", name, error)

    async def _sender(self, spec: StreamSpec) -> Source:
        if spec.name not in self._senders:
            self._senders[spec.name] = self._new(spec)
        return self._senders[spec.name]

    def _new(self, spec: StreamSpec) -> Source:
        if self._open_source is None:
            raise ConfigError(f"stream {spec.name!r}: this worker has nothing to open it with")
        return self._open_source(spec)
