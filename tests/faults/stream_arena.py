"""One run of streams: a server's topic, worker processes, and the evidence that is left when it has come to rest."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import json
from msgspec.structs import replace

from holdfast.ports import Query
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit, WorkerSettings
from holdfast.types import JobState, Place
from tests.faults.load import Dice
from tests.faults.stream_checker import Look, StreamEvidence, finished_by
from tests.faults.stream_ledger import FactLedger, Handling, Name, StreamLedger
from tests.faults.stream_shop import FACTS, LEDGER, STREAMS, TARGET, Order, StreamPlan, open_stream_shop
from tests.faults.workers import CLOCK, Fleet, poll

STEADY = WorkerSettings(room=Room(concurrency=4, threads=2, isolates=1), lease_s=30.0, heartbeat_s=0.5, grace_s=10.0)
"""A lease that outlives every fault of a stream: what is tested is the stream."""
KEYS = 40
_PAGE = 500


class Channel(Protocol):
    """A topic on a server, as the tests themselves see it: past any proxy, and by a plain client."""

    name: str
    """What it is called in reports."""
    topic: str
    group: str
    keeps_order: bool
    has_positions: bool
    sent: dict[Name, tuple[Place, int]]

    @property
    def url(self) -> str:
        """For workers."""

    def send(self, orders: Sequence[Order]) -> None:
        """Returns when the server has all of them, in this order."""

    def done(self) -> frozenset[Name]:
        """What the server holds to be finished by the group."""

    def dead(self) -> Counter[Name]:
        """What is in the DLQ."""


def orders_for(
    count: int, dice: Dice, *, keys: int = KEYS, seconds: float = 0.01, failures: float = 0.02, dead: float = 0.005
) -> list[Order]:
    """Orders of many keys, numbered by each, of about this length; these shares of them fail once, or always."""
    numbers: Counter[str] = Counter()
    orders = []
    for _ in range(count):
        key = f"k{dice.below(keys)}"
        fate = dice.draw()
        fails, is_poison = int(dead <= fate < dead + failures), fate < dead
        orders.append(Order(key, numbers[key], round(seconds * 2 * dice.draw(), 4), fails, is_poison))
        numbers[key] += 1
    return orders


class Stream(threading.Thread):
    """Sends orders evenly over a time, in the background."""

    def __init__(self, channel: Channel, orders: Sequence[Order], over_s: float) -> None:
        super().__init__(name="sender", daemon=True)
        self._channel = channel
        self._orders = orders
        self._over_s = over_s
        self._is_over = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """A few at once, twenty times a second."""
        steps = max(1, round(self._over_s / 0.05))
        began_s = CLOCK.monotonic()
        try:
            for step in range(steps):
                if self._is_over.is_set():
                    return
                size = len(self._orders)
                self._channel.send(self._orders[size * step // steps : size * (step + 1) // steps])
                CLOCK.sleep(max(0.0, began_s + (step + 1) * 0.05 - CLOCK.monotonic()))
        except BaseException as error:
            self.failure = error
            raise

    def stop(self) -> None:
        """Send no more."""
        self._is_over.set()
        self.wait()

    def wait(self, within_s: float = 60.0) -> None:
        """Until everything is sent."""
        self.join(within_s)
        assert not self.is_alive(), "the sender hangs"
        assert self.failure is None


class StreamArena:
    """The streams of one app on one store, with their worker processes."""

    def __init__(
        self,
        folder: Path,
        channel: Channel,
        plan: StreamPlan,
        *,
        beside: Sequence[StreamPlan] = (),
        store: str = "",
        source: Path | None = None,
    ) -> None:
        self.channel = channel
        self.plan = replace(plan, url=plan.url or channel.url, group=channel.group)
        self.ledger = StreamLedger(folder / "handled")
        self.facts = FactLedger(folder / "facts")
        store = store or f"sqlite:///{folder}/letters.db"
        self.fleet = Fleet(store, folder / "effects", folder, source=source)
        self._plans = [self.plan, *beside]
        self.app = open_stream_shop(store, self._plans, self.ledger)
        self.app.store.capabilities  # noqa: B018 - asking opens it
        self.looks: list[Look] = []
        self._resumed: dict[int, float] = {}
        self._drained_s: dict[int, float] = {}
        self._began_s = CLOCK.monotonic()

    # ---- workers

    def start(self, settings: WorkerSettings = STEADY, env: Mapping[str, str] = {}) -> int:
        """Another worker process; its id."""
        words = (TARGET, msgspec.json.encode(settings).decode())
        return self.fleet.run("holdfast.runtime.process", *words, env={**self._env, **env})

    def start_many(self, count: int) -> list[int]:
        """So many, each of which has partitions; those of one may be a retry topic's alone."""
        pids = [self.start() for _ in range(count)]
        for pid in pids:
            self.wait_for_partitions(pid)
        return pids

    def wait_for_partitions(self, pid: int) -> None:
        """Until it has joined the group and has its share."""
        poll(lambda: " partitions" in self.fleet.log(pid), 30, f"worker {pid} has partitions")

    def drain(self, pid: int) -> float:
        """Tell a worker to stop, and see it leave in good order; how long that took."""
        poll(lambda: " is running " in self.fleet.log(pid), 30, f"worker {pid} listens to signals")
        began_s = CLOCK.monotonic()
        self.fleet.send(pid, signal.SIGTERM)
        code = self.fleet.wait(pid)
        assert code == Exit.DRAINED, f"it ended with {code}: {self.fleet.log(pid)[-3000:]}"
        self._drained_s[pid] = CLOCK.monotonic() - began_s
        return self._drained_s[pid]

    def resume(self, pid: int) -> float:
        """Let one go on that was paused; when."""
        self.fleet.resume(pid)
        self._resumed[pid] = CLOCK.monotonic()
        return self._resumed[pid]

    @property
    def _env(self) -> dict[str, str]:
        plans = json.encode(self._plans).decode()
        return {STREAMS: plans, LEDGER: str(self.ledger.path), FACTS: str(self.facts.path)}

    # ---- looking

    def handlings(self, stream: str = "") -> list[Handling]:
        """What the handlers of a stream have done so far."""
        return [one for one in self.ledger.read() if one.stream == (stream or self.plan.name)]

    def runs(self, pid: int, since: float = 0.0) -> int:
        """How many runs one process has begun since."""
        return sum(one.what == "start" and pid in {one.pid, one.parent} and one.at > since for one in self.handlings())

    def wait_for_runs(self, count: int) -> None:
        """Until so many runs have begun, by whomever."""
        poll(
            lambda: sum(one.what == "start" for one in self.handlings()) >= count,
            30,
            f"{count} messages are handled: {self.fleet.log()[-2000:]}",
        )

    def busiest(self, pids: Sequence[int]) -> int:
        """The one that has handled most in the last second."""
        since_s = CLOCK.monotonic() - 1.0
        return max(pids, key=lambda pid: self.runs(pid, since_s))

    def is_busy(self, pid: int) -> bool:
        """Whether a message is in the hands of one of its handlers."""
        own = [one for one in self.handlings() if pid in {one.pid, one.parent}]
        return sum(one.what == "start" for one in own) > sum(one.what != "start" for one in own)

    def partitions_of(self, pid: int) -> set[str]:
        """The partitions whose messages were handled last by this process."""
        last = {one.message.rpartition("/")[0]: (one.pid, one.parent) for one in self.handlings()}
        return {place for place, holders in last.items() if pid in holders}

    def wait_for_heirs(self, pid: int, places: set[str], since: float) -> float:
        """Until others handle messages of these partitions; how long after `since` the first of them began."""

        def starts() -> list[float]:
            return [
                one.at
                for one in self.handlings()
                if pid not in {one.pid, one.parent} and one.at > since and one.message.rpartition("/")[0] in places
            ]

        poll(lambda: bool(starts()), 30, f"others handle messages of {sorted(places)}")
        return min(starts()) - since

    def letters(self, stream: str = "") -> Counter[Name]:
        """What is in the inbox of a stream."""
        found: Counter[Name] = Counter()
        query = Query(states=(JobState.DEAD_LETTER,), task=stream or self.plan.name, limit=_PAGE)
        while True:
            page = self.app.bridge.run(self.app.store.find(query))
            for record in page.items:
                if (value := json.decode(record.payload)["value"]) is not None:  # of one that was deleted unread
                    found[value["key"], value["n"]] += 1
            if not page.cursor:
                return found
            query = replace(query, cursor=page.cursor)

    def look(self) -> None:
        """Compare what the server holds to be finished with what is, while things go on."""
        done = self.channel.done()
        finished = finished_by(self.handlings())
        if done - finished:
            finished |= self.letters().keys()
        self.looks.append(Look(done, finished))

    def look_until(self, is_over: Callable[[], bool], every_s: float = 1.0) -> None:
        """Do so again and again."""
        while not is_over():
            self.look()
            CLOCK.sleep(every_s)

    # ---- the end

    def quiesce(self, within_s: float = 60.0) -> float:
        """Wait until the server holds everything to be finished; how long that took."""
        sent = self.channel.sent.keys()

        def is_done() -> bool:
            is_handled = len(finished_by(self.handlings()) | self.letters().keys()) >= len(sent)
            return is_handled and not sent - self.channel.done()

        try:
            return poll(is_done, within_s, "every message is finished")
        except AssertionError as error:
            open_ = sorted(sent - self.channel.done())
            unhandled = len(sent - finished_by(self.handlings()) - self.letters().keys())
            print(self.fleet.log())
            raise AssertionError(
                f"{error}: {len(open_)} are not, such as {open_[:5]}; not even handled {unhandled}; running "
                f"{self.fleet.running}"
            ) from None

    def evidence(self) -> StreamEvidence:
        """Everything that the checker may ask for."""
        print(self.fleet.log())  # shown if what follows fails
        return StreamEvidence(
            sent=dict(self.channel.sent),
            handlings=self.handlings(),
            letters=self.letters(),
            dead=self.channel.dead(),
            done=self.channel.done(),
            looks=self.looks,
            faults=[replace(one, until=self._resumed.get(one.pid, one.until)) for one in self.fleet.faults],
            facts=[one for one in self.facts.read() if one.stream == self.plan.name],
            drained_s=self._drained_s,
            is_blocking=self.plan.is_blocking,
            keeps_order=self.channel.keeps_order,
            has_positions=self.channel.has_positions,
        )

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return CLOCK.monotonic() - self._began_s


@contextmanager
def stream_arena(
    folder: Path,
    channel: Channel,
    plan: StreamPlan,
    *,
    beside: Sequence[StreamPlan] = (),
    store: str = "",
    source: Path | None = None,
) -> Iterator[StreamArena]:
    """A run, whose workers end with it."""
    arena = StreamArena(folder, channel, plan, beside=beside, store=store, source=source)
    try:
        with arena.fleet:
            yield arena
    finally:
        arena.app.close()
