"""Streams in virtual time: a broker, a store and consumers that can be broken."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from holdfast.app import App
from holdfast.ports import Enqueued, Lag, Owner, Progress, Query, Source, SourceCapabilities
from holdfast.runtime.counts import Counts
from holdfast.runtime.runner import Room, Runner
from holdfast.runtime.streams.flow import Flow
from holdfast.runtime.streams.pump import StreamPump
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.runtime.worker import Exit, Worker, WorkerSettings, shared_guards
from holdfast.stores.memory import MemoryStore
from holdfast.streams.memory import MemoryBroker, MemorySource
from holdfast.testing.faulty import FaultyStore
from holdfast.types import Header, JobRecord, JobState, Message, NewJob, Outgoing, Place
from tests.unit.runtime.streams.virtual_time import VirtualTime

T = TypeVar("T")

TOPIC: Final = "orders"
GROUP: Final = "billing"
NAME: Final = "bill"
DLQ: Final = "orders.dlq"
CALM: Final = WorkerSettings(lease_s=80_000.0, sweep_s=1.0, grace_s=30.0)
"""Its heart beats on a thread of its own, which real time moves: so it has a long lease in virtual time."""


class WatchedStore(FaultyStore):
    """Writes down what was enqueued."""

    def __init__(self, inner: MemoryStore, stage: Stage) -> None:
        super().__init__(inner, stage.clock)
        self._stage = stage
        self.check: Callable[[Sequence[NewJob]], None] = lambda jobs: None
        """Raises what a store says to what it cannot write."""

    async def enqueue(self, jobs: Sequence[NewJob], connection: object | None = None) -> list[Enqueued]:
        self.check(jobs)
        answer = await super().enqueue(jobs, connection)
        self._stage.log.append(("inbox", len(jobs)))
        return answer


class WatchedSource:
    """A memory source that fails when it is told to, and whose calls are written down."""

    def __init__(self, inner: MemorySource, stage: Stage) -> None:
        self.inner = inner
        self._stage = stage
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, list[Exception]] = {}
        """What the next calls of a verb raise, without doing anything."""
        self.lost_replies: dict[str, list[Exception]] = {}
        """What they raise after they have done it."""
        self.hanging: set[str] = set()
        self.gates: dict[str, asyncio.Event] = {}
        """What calls of a verb wait for before they do anything."""
        self.has_positions = True
        self.check: Callable[[Outgoing], None] = lambda message: None
        """Raises what the server answers to a message that it does not take."""
        self.pauses: list[tuple[float, str, Place]] = []

    async def _pass(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls[verb] += 1
        if verb in self.hanging:
            await asyncio.get_running_loop().create_future()
        if verb in self.gates:
            await self.gates[verb].wait()
        if self.faults.get(verb):
            raise self.faults[verb].pop(0)
        answer = await call()
        if self.lost_replies.get(verb):
            raise self.lost_replies[verb].pop(0)
        return answer

    @property
    def capabilities(self) -> SourceCapabilities:
        return replace(self.inner.capabilities, has_positions=self.has_positions)

    async def open(self, topic: str, ours: Sequence[str], owner: Owner) -> None:
        await self._pass("open", lambda: self.inner.open(topic, ours, owner))

    async def ensure(self, topics: Sequence[str], like: str) -> None:
        await self._pass("ensure", lambda: self.inner.ensure(topics, like))

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        return await self._pass("receive", lambda: self.inner.receive(limit, wait_s))

    def pause(self, places: Collection[Place]) -> None:
        self.pauses += [(self._stage.now(), "pause", place) for place in places]
        self.inner.pause(places)

    def resume(self, places: Collection[Place]) -> None:
        self.pauses += [(self._stage.now(), "resume", place) for place in places]
        self.inner.resume(places)

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        await self._pass("commit", lambda: self.inner.commit(progress))
        self._stage.log += [("commit", place, one.position) for place, one in progress.items()]

    async def send(self, messages: Sequence[Outgoing]) -> None:
        async def send() -> None:
            for message in messages:
                self.check(message)
            await self.inner.send(messages)
            self._stage.log += [("send", one.topic) for one in messages]

        await self._pass("send", send)

    async def transact(self, messages: Sequence[Outgoing], progress: Mapping[Place, Progress]) -> None:
        async def transact() -> None:
            for message in messages:
                self.check(message)
            await self.inner.transact(messages, progress)
            self._stage.log += [("transact", len(messages), one.position) for one in progress.values()]

        await self._pass("transact", transact)

    async def lags(self, topics: Sequence[str]) -> list[Lag]:
        return await self._pass("lags", lambda: self.inner.lags(topics))

    def read(self, topic: str) -> AsyncIterator[Sequence[Message]]:
        return self.inner.read(topic)

    async def close(self) -> None:
        await self._pass("close", self.inner.close)


if TYPE_CHECKING:
    _contract: type[Source] = WatchedSource


class Consumer:
    """One pump, as a worker has it, without the worker around it."""

    def __init__(self, stage: Stage, spec: StreamSpec, handover_s: float, *, is_replaceable: bool) -> None:
        self._stage = stage
        self._is_replaceable = is_replaceable
        self.source = stage.new_source(spec, handover_s)
        self._guards = shared_guards({spec.name: spec.task})
        self.news = 0
        self.is_killed = False
        self.pump = StreamPump(
            spec,
            self.source,
            store=stage.store,
            guards=self._guards,
            new_runner=self._runner,
            clock=stage.clock,
            rng=stage.chance,
            on_news=self._tell,
        )
        self.pump.start()

    def _tell(self) -> None:
        self.news += 1

    def _runner(self, spec: StreamSpec, on_settled: Callable[[], None]) -> Runner:
        runner = Runner(
            store=self._stage.store,
            specs={spec.name: spec.task},
            guards=self._guards,
            worker="a worker",
            room=Room(concurrency=spec.in_flight, threads=4, isolates=1),
            clock=self._stage.clock,
            rng=self._stage.chance,
            target="",
            lease_s=30.0,
            on_settled=on_settled,
            on_values=lambda reply: list(self._guards.absorb(reply)).clear(),
            is_replaceable=self._is_replaceable,
            counts=Counts(),
            asking=asyncio.Lock(),
        )
        runner.set_now(self._stage.clock.now())
        return runner

    @property
    def flow(self) -> Flow:
        return self.pump._flow

    @property
    def has_ended(self) -> bool:
        return all(task.done() for task in self.pump._tasks)

    async def drain(self, grace_s: float = 30.0) -> bool:
        """As a worker does that is told to stop."""
        return await self._stage.drive(self.pump.drain(grace_s))

    async def kill(self) -> None:
        """As if its process was gone: what it had begun ends nowhere, and it says nothing any more."""
        self.is_killed = True
        for task in self.pump._tasks:
            task.cancel()
        self.pump.runner.stop(None, "cancelled")
        await asyncio.gather(*self.pump._tasks, return_exceptions=True)
        await self.source.inner.close()
        await self.pump.runner.close()
        await self._stage.quiet()


class Stage(VirtualTime):
    """A topic, a group that reads it, and the inbox."""

    def __init__(self, *, partitions: int = 1) -> None:
        super().__init__()
        self.log: list[tuple[Any, ...]] = []
        """What was written where, in order."""
        self.draws: list[float] = []
        """What chance brings next; then it is 0."""
        self.store = WatchedStore(MemoryStore(self.clock), self)
        self.broker = MemoryBroker(partitions=partitions)
        self.broker.create_topic(TOPIC, partitions)
        self.app = App("memory://", clock=self.clock)
        self.app._store = self.store
        self.app._broker = self.broker
        self.app.open_source = lambda spec: self.new_source(spec, 10.0)  # type: ignore[method-assign]
        self.on_source: Callable[[WatchedSource], object] = lambda source: None
        """Told of every source that is made, before anybody uses it."""
        self.sources: list[WatchedSource] = []
        self.consumers: list[Consumer] = []

    def chance(self) -> float:
        return self.draws.pop(0) if self.draws else 0.0

    # ---- who reads

    def stream(self, fn: Callable[..., Any], **options: Any) -> StreamSpec:
        """A stream of the topic; without a breaker, unless it is given one."""
        options = {"group": GROUP, "name": NAME, "breaker": None, **options}
        self.app.stream(f"memory://{TOPIC}", **options)(fn)
        return self.app.stream_specs[options["name"]]

    def new_source(self, spec: StreamSpec, handover_s: float = 10.0) -> WatchedSource:
        inner = MemorySource(
            spec.topic, spec.group, self.clock, broker=self.broker, start=spec.start, handover_s=handover_s
        )
        source = WatchedSource(inner, self)
        self.on_source(source)
        self.sources.append(source)
        return source

    def consumer(
        self, spec: StreamSpec | None = None, *, handover_s: float = 10.0, is_replaceable: bool = False
    ) -> Consumer:
        """One more member of the group."""
        consumer = Consumer(self, spec or self.app.stream_specs[NAME], handover_s, is_replaceable=is_replaceable)
        self.consumers.append(consumer)
        return consumer

    def consuming(self, fn: Callable[..., Any], **options: Any) -> Consumer:
        """A stream with one consumer."""
        return self.consumer(self.stream(fn, **options))

    async def rest(self, within_s: float = 3_600.0) -> None:
        """Until all consumers have nothing left to do."""
        await self.until(lambda: all(one.pump.is_idle for one in self.consumers if not one.has_ended), within_s)

    async def close(self) -> None:
        """All consumers leave; nothing may be left in their hands."""
        for one in self.consumers:
            if one.is_killed:
                continue
            if not one.has_ended:
                await one.drain()
            assert one.flow.in_flight == 0
            assert not one.flow._held
        await self.quiet()

    @asynccontextmanager
    async def working(self, settings: WorkerSettings = CALM) -> AsyncIterator[Worker]:
        """A whole worker, which is stopped at the end of the block."""
        worker = self.app.worker(settings)
        running = asyncio.create_task(worker.run())
        try:
            await self.until(lambda: running.done() or worker._started_at > 0.0)
            yield worker
        finally:
            worker.stop()
            await self.until(running.done)
        assert running.result() is Exit.DRAINED
        for pump in worker.streams.pumps:
            assert pump._flow.in_flight == 0

    async def idle(self) -> None:
        """`app.run_until_idle()`."""
        await self.drive(self.app.arun_until_idle())

    # ---- what is read

    def send(
        self,
        value: bytes | str | int | None,
        key: str | None = None,
        *,
        topic: str = TOPIC,
        partition: int | None = None,
        headers: tuple[Header, ...] = (),
    ) -> Message:
        data = value if value is None or isinstance(value, bytes) else str(value).encode()
        outgoing = Outgoing(topic, data, None if key is None else key.encode(), headers, partition)
        (message,) = self.broker.append([outgoing], self.clock.now())
        return message

    def messages(self, topic: str) -> list[Message]:
        """All messages of a topic, partition by partition."""
        return [message for place in self.broker.places(topic) for message in self.broker.log(place)]

    def position(self, partition: int = 0, topic: str = TOPIC, group: str = GROUP) -> int | None:
        """What is committed of a partition."""
        return self.broker.group(group).position((topic, partition))

    async def letters(self) -> list[JobRecord]:
        """The inbox, oldest first, with all attempts."""
        found = await self.store.inner.find(Query(states=(JobState.DEAD_LETTER,), limit=10_000))
        records = await self.store.inner.get([one.id for one in reversed(found.items)])
        return [one for one in records if one is not None]


@asynccontextmanager
async def staged(*, partitions: int = 1) -> AsyncIterator[Stage]:
    """A stage whose consumers leave in the end, with nothing in their hands."""
    stage = Stage(partitions=partitions)
    yield stage
    await stage.close()
