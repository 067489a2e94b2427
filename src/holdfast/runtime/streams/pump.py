"""The pump of one stream: the loops around its flow, which receive, run, write, commit and look.

Each loop gathers while it waits: what came meanwhile goes together. Only what is finished is ever committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from holdfast.errors import SourceAway, SourceError, StoreError
from holdfast.fingerprint import in_a_line
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock, Progress, Source, Store, StreamReport
from holdfast.runtime.runner import Runner
from holdfast.runtime.shared.guards import SharedGuards
from holdfast.runtime.streams.errands import Errand, Errands
from holdfast.runtime.streams.flow import Flow
from holdfast.runtime.streams.marks import Span
from holdfast.runtime.streams.part import Part
from holdfast.runtime.streams.passage import dlq_topic, retry_topic
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.runtime.streams.watch import Watch
from holdfast.types import Place, Rng

_logger = logging.getLogger("holdfast.worker")

_RECEIVE: Final = 500
"""Messages asked for at a time, at least."""
_WAIT_S: Final = 0.5
"""How long a receive waits for the first message."""
_SHORT_S: Final = 0.01
"""The same where somebody waits for it to be idle."""
_COMMIT_S: Final = 0.1
"""Between two commits: what a crash in that time does again."""
_LAG_S: Final = 5.0
_REPORT_S: Final = 1.0
_CLEAN_UP_S: Final = 5.0
_RUN_OUT_S: Final = 2.0
"""How long a stop or a hand-over goes on with messages that others have overtaken: a key may have any number."""
_CROSS_S: Final = 1.0
"""How long the answer to a hand-over waits for the commit before it."""
_AGAIN: Final = Backoff(initial_delay=0.1, multiplier=2.0, max_delay=5.0, min_delay=0.05)

NewRunner = Callable[[StreamSpec, Callable[[], None]], Runner]


class StreamPump:
    """Runs one stream in one worker, on its event loop. It is the owner of its source's partitions.

    `on_news` is called when the worker has something to share.
    """

    def __init__(
        self,
        spec: StreamSpec,
        source: Source,
        *,
        store: Store,
        guards: SharedGuards,
        new_runner: NewRunner,
        clock: Clock,
        rng: Rng,
        on_news: Callable[[], None],
    ) -> None:
        self.spec = spec
        self._source = source
        self._guards = guards
        self._clock = clock
        self._rng = rng
        self._on_news = on_news
        self._ours = [retry_topic(spec.topic, spec.group, n) for n in range(len(spec.steps) + 1)]
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()
        self._progressed = asyncio.Event()
        self._to_commit = asyncio.Event()
        self._committing = asyncio.Lock()
        self._is_open = False
        self._has_nothing = False
        """Whether the source had nothing when it was asked last."""
        self._last_error = ("", 0.0)
        self._away = ""
        self._tasks: list[asyncio.Task[None]] = []
        self.on_broken: Callable[[StreamPump], None] | None = None
        """Told when its source cannot work any more: this pump is at its end."""
        self.on_rest: Callable[[], None] | None = None
        """Told when nothing is under way, for whoever waits for that."""
        self.runner = new_runner(spec, self._on_settled)
        self._errands = Errands(
            store,
            source,
            clock=clock,
            rng=rng,
            on_done=self._written,
            on_refused=self._refused,
            on_left_out=self._left_out,
            on_lost=self._taken,
            on_trouble=self._note_error,
        )
        self._flow = Flow(
            spec,
            self.runner,
            source,
            on_errand=self._errands.add,
            on_ready=self._wake.set,
            on_done=self._to_commit.set,
        )
        self._watch = Watch(
            store,
            source,
            stream=spec.name,
            worker=self.runner.worker,
            span=Span(careful=spec.careful_span, extent=spec.max_gap + max(_RECEIVE, 2 * spec.widest)),
            clock=clock,
            is_on=self.runner.can_isolate and source.capabilities.has_positions,
            on_ready=self._wake.set,
            on_trouble=self._note_error,
        )
        self.report = self._reported()
        """How it is doing, as of the last second; from any thread."""

    # ---- from outside

    def start(self) -> None:
        """Open the source, as soon as it can be, and begin."""
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._errands.run())]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and the source has nothing more to bring for now."""
        flow = self._flow
        return (
            self._is_open
            and self._has_nothing
            and not (flow.in_flight or flow.has_ready or self._errands.is_busy or self.runner.settlements)
            and not any(part.buffer or part.is_dirty for part in flow.parts.values())
        )

    @property
    def next_due_s(self) -> float | None:
        """Seconds until something that waits may go on, where all that there is waits."""
        is_busy = self._errands.is_busy or self._flow.has_ready or self.runner.runs or self.runner.settlements
        if is_busy or not self._is_open or not self._has_nothing or (due_at := self._flow.next_due_at) is None:
            return None
        return max(0.0, due_at - self.runner.now())

    def wake(self) -> None:
        """Look again at what is due."""
        self._wake.set()

    async def drain(self, grace_s: float) -> bool:
        """Stop taking, finish what is in flight within the grace time, commit and leave; whether all was finished."""
        flow = self._flow
        flow.is_stopping = True
        parts = flow.let_run_out(list(flow.parts))
        self._wake.set()
        run_out_s = min(_RUN_OUT_S, grace_s)
        is_done = await self._settled_within(run_out_s)
        if not is_done:
            flow.leave_overtaken(parts)
            is_done = await self._settled_within(grace_s - run_out_s)
        if not is_done:
            self.runner.stop(None, "shutdown")
            await self._settled_within(_CLEAN_UP_S)
        await self._close()
        return is_done

    async def _settled_within(self, limit_s: float) -> bool:
        deadline_s = self._clock.monotonic() + limit_s
        self._settle()
        while self._flow.has_ready or self.runner.runs or self.runner.settlements or self._errands.is_busy:
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0.0:
                return False
            self._progressed.clear()
            with suppress(TimeoutError):
                async with self._clock.timeout(left_s):
                    await self._progressed.wait()
            self._settle()  # the loop that does it may have ended
        return True

    async def _close(self) -> None:
        """Commit what is finished and leave the group."""
        await _end(self._tasks)
        flow = self._flow
        if self._is_open and not self.spec.is_transactional:
            try:
                await self._commit_all(list(flow.parts.values()))
            except SourceError as error:
                _logger.warning("stream %s: what was finished last is done again by others: %s", self.spec.name, error)
        await self._watch.revoked(list(flow.parts.values()))
        await self._watch.close()
        flow.remove(list(flow.parts.values()))  # nobody is left who could finish the rest
        try:
            await self._source.close()
        except SourceError as error:
            _logger.warning("stream %s could not take leave: %s", self.spec.name, error)
        await self.runner.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A source that cannot work is opened anew; any other error is a mistake of ours, and ends this process."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        self._note_error(f"{type(error).__name__}: {error}")
        if isinstance(error, SourceError) and self.on_broken is not None:
            _logger.error("stream %s cannot be read, and is opened anew: %s", self.spec.name, error)
            self.on_broken(self)
        else:
            _logger.critical("stream %s has failed in a way that nobody thought of", self.spec.name, exc_info=error)
            self.runner.must_be_replaced = True
            self._on_news()

    # ---- the loops

    async def _work(self) -> None:
        await self._open()
        tasks = [asyncio.create_task(one) for one in (self._receive(), self._run(), self._commit(), self._look())]
        try:
            await asyncio.gather(*tasks)
        finally:
            await _end(tasks)

    async def _open(self) -> None:
        spec, tries, has_joined = self.spec, 0, False
        while True:
            try:
                if not has_joined:
                    await self._source.open(spec.topic, self._ours, self)
                    has_joined = True
                if spec.task.has_dead_letters:
                    await self._source.ensure([dlq_topic(spec.topic)], spec.topic)
                break
            except SourceError as error:
                tries += 1
                self._note_error(str(error))
                if tries == 1 or not isinstance(error, SourceAway):
                    _logger.error("stream %s cannot be opened, and is tried until it can: %s", spec.name, error)
                self._away = self._away or in_a_line(str(error))
                self.report = self._reported()
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))
        self._is_open = True
        self._away = ""
        for warning in self._source.capabilities.warnings:
            _logger.warning("stream %s: %s", spec.name, warning)
        _logger.info("stream %s reads %s as group %s", spec.name, spec.location, spec.group)

    async def _receive(self) -> None:
        """Keep enough in the buffers for what could be begun; the source waits while nobody asks."""
        flow, tries = self._flow, 0
        enough = self.spec.widest
        limit = max(_RECEIVE, 2 * enough)
        while not flow.is_stopping:
            if flow.startable >= enough:
                self._has_room.clear()
                await self._has_room.wait()
                continue
            try:
                messages = await self._source.receive(limit, _WAIT_S if self.on_rest is None else _SHORT_S)
                tries = 0
            except SourceAway as error:
                tries += 1
                self._has_nothing = False  # it may have something by now, and nobody can ask
                self._note_error(str(error))
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))
                continue
            self._has_nothing = not messages
            if messages:
                flow.receive(messages)
                self._wake.set()
            self._rest()

    async def _run(self) -> None:
        """Settle and begin, over and over."""
        while True:
            self._wake.clear()
            await self._turn()
            if not self._wake.is_set():
                await self._wait()

    async def _turn(self) -> None:
        self._settle()
        deliveries = self._flow.next()
        if deliveries:
            try:
                await self.runner.start(deliveries)
            except StoreError as error:  # those not begun are given back, and tried again
                self._note_error(str(error))
        self._has_room.set()
        self._progressed.set()
        if self._guards.is_urgent:
            self._on_news()
        self._rest()

    def _settle(self) -> None:
        settlements, self.runner.settlements = self.runner.settlements, []
        for one in settlements:
            if (attempt := one.attempt) is not None and attempt.failure_type is not None:
                self._last_error = (f"{attempt.error_name}: {in_a_line(attempt.message)}", attempt.ended_at)
        self._flow.settle_many(settlements)

    def _on_settled(self) -> None:
        self._wake.set()
        self._progressed.set()

    async def _wait(self) -> None:
        due_at = self._flow.next_due_at
        limit_s = None if due_at is None else max(0.001, due_at - self.runner.now())
        with suppress(TimeoutError):
            async with self._clock.timeout(limit_s):
                await self._wake.wait()

    def _rest(self) -> None:
        if self.on_rest is not None and (self.is_idle or self.next_due_s is not None):
            self.on_rest()

    # ---- errands

    def _written(self, errand: Errand) -> None:
        if errand.commits is None:
            self._flow.finish(errand.delivery)
        else:
            self._flow.transacted(errand.delivery)
        self._progressed.set()
        self._wake.set()  # there is room for another one

    def _refused(self, errand: Errand, error: SourceError) -> None:
        """The server will never take what was to be sent."""
        self._note_error(str(error))
        if errand.retry is not None:
            how = "it is retried in place" if errand.is_light else "it goes without its history"
            _logger.warning(
                "stream %s: a retry of %s is refused, so %s: %s", self.spec.name, errand.delivery.id, how, error
            )
            self._flow.refuse_retry(errand)
            self._progressed.set()
            self._wake.set()
            return
        _logger.error("stream %s: what %s has to send is refused: %s", self.spec.name, errand.delivery.id, error)
        self._flow.refuse(errand.delivery, error)
        self._progressed.set()
        self._wake.set()

    def _left_out(self, errand: Errand, error: SourceError) -> None:
        """The DLQ will never take this one; the inbox has it."""
        self._note_error(str(error))
        _logger.error("stream %s: of %s the DLQ takes no copy: %s", self.spec.name, errand.delivery.id, error)

    def _taken(self, errand: Errand) -> None:
        """Its partition is somebody else's, or it is ours anew and begins where it was."""
        place = errand.delivery.place
        if self._flow.parts.get(place) is errand.delivery.part:
            self.lost([place])
        self._progressed.set()
        self._wake.set()

    # ---- the owner of partitions

    def assigned(self, positions: Mapping[Place, int]) -> None:
        """These are ours from now on."""
        self._flow.add(positions, self._ours)
        self._watch.assigned([self._flow.parts[place] for place in positions])
        _logger.info("stream %s has %d partitions", self.spec.name, len(self._flow.parts))
        self._wake.set()

    async def revoked(self, places: Collection[Place]) -> Mapping[Place, Progress]:
        """Finish what is running, and say how far each came; when the source waits no longer, stop it.

        What is finished meanwhile is committed as ever: an answer that is too late is heard by nobody.
        """
        parts = self._flow.let_run_out(places)
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(_RUN_OUT_S):
                    await self._run_out(parts)
            self._flow.leave_overtaken(parts)
            await self._run_out(parts)
            await self._watch.revoked(parts)
            await self._end_of_commit()
            return {part.place: part.take_progress() for part in parts}
        finally:
            self.runner.stop([one for part in parts for one in part.held], "cancelled")
            self._flow.remove(parts)
            self._wake.set()

    async def _end_of_commit(self) -> None:
        """Of the one under way: it must not come after the answer, which is to have what it could not commit."""
        with suppress(TimeoutError):
            async with self._clock.timeout(_CROSS_S), self._committing:
                pass

    async def _run_out(self, parts: Sequence[Part]) -> None:
        while any(part.held for part in parts):
            self._progressed.clear()
            await self._progressed.wait()

    def lost(self, places: Collection[Place]) -> None:
        """Stop what is running of these: it is somebody else's."""
        self._watch.lost(places)
        parts = self._flow.let_run_out(places)
        self.runner.stop([one for part in parts for one in part.held], "cancelled")
        self._flow.remove(parts)
        if parts:
            _logger.warning("stream %s has lost %d partitions: what ran may run again", self.spec.name, len(parts))
        self._wake.set()

    def away(self, why: str) -> None:
        """The server cannot be reached; or, with nothing, it can be again."""
        if why and not self._away:
            _logger.error("stream %s: %s", self.spec.name, why)
        elif self._away and not why:
            _logger.warning("stream %s: its server answers again", self.spec.name)
        self._away = why
        self.report = self._reported()

    # ---- progress

    async def _commit(self) -> None:
        tries = 0
        while True:
            await self._to_commit.wait()
            self._to_commit.clear()
            if self.spec.is_transactional:
                continue
            began_s = self._clock.monotonic()
            try:
                async with self._committing:
                    await self._commit_all(list(self._flow.parts.values()))
                if tries:
                    _logger.info("stream %s: what is finished is committed again", self.spec.name)
                tries = 0
                # From its beginning: one that took long may have waited for a group that is about to move again.
                await self._clock.asleep(max(0.0, began_s + _COMMIT_S - self._clock.monotonic()))
            except SourceError as error:
                tries += 1
                self._note_error(str(error))
                if tries == 1:
                    known = "stream %s: what is finished cannot be committed, and would be done again by others: %s"
                    _logger.warning(known, self.spec.name, error)
                self._to_commit.set()
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))

    async def _commit_all(self, parts: Sequence[Part]) -> None:
        dirty = [part for part in parts if part.is_dirty]
        if not dirty:
            return
        progress = {part.place: part.take_progress() for part in dirty}
        try:
            await self._source.commit(progress)
        except BaseException:
            for part in dirty:
                part.give_back(progress[part.place])
            raise
        for part in dirty:
            part.committed = progress[part.place].position
            if part.careful_until:
                self._wake.set()
        self._rest()

    async def _look(self) -> None:
        """Ask how far behind we are, and say how we are doing."""
        looked_s = float("-inf")
        while True:
            if self._clock.monotonic() - looked_s >= _LAG_S:
                looked_s = self._clock.monotonic()
                await self._look_at_lags()
            await self._watch.catch_up()
            self.report = self._reported()
            await self._clock.asleep(_REPORT_S)

    async def _look_at_lags(self) -> None:
        topics = sorted({place[0] for place in self._flow.parts})
        if not topics:
            return
        try:
            lags = {(one.topic, one.partition): one.lag for one in await self._source.lags(topics)}
        except SourceError as error:
            self._note_error(str(error))
            return
        for place, part in self._flow.parts.items():
            part.lag = lags.get(place, part.lag)

    def _reported(self) -> StreamReport:
        spec, now = self.spec, self.runner.now()
        error, at = self._last_error
        return StreamReport(
            name=spec.name,
            group=spec.group,
            location=spec.location,
            topic=spec.topic,
            partitions=tuple(part.report(now) for part in self._flow.parts.values()),
            in_flight=self._flow.in_flight,
            last_error=error,
            last_error_at=at,
            away=self._away,
        )

    def _note_error(self, why: str) -> None:
        self._last_error = (in_a_line(why), self.runner.now())


async def _end(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
