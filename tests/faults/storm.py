"""Load under fault: a producer who insists, workers, and something that strikes again and again meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast import App
from holdfast.app.task import Call
from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.ports import Query
from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence
from tests.faults.engines import PostgresEngine
from tests.faults.ledger import ClientLedger
from tests.faults.outages import Outage, longest_s, outage_faults, wait_replaced
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll, recovery_bound

WORKERS = 2
CALM = replace(SETTINGS, room=Room(concurrency=4, threads=2, isolates=1))
_INSIST_S = 30.0
_BACK_S = 10.0
"""By then whoever looks finds the store back."""
_TAKEN_UP_S = 30.0
"""So long a strike waits for it; the checker says whether it was late."""
_SAMPLED_EVERY_S = 0.5
_MORE_EVERY_S = 0.05


class Producer(threading.Thread):
    """Enqueues a few jobs at a time; what is refused it sends again until it is acked: under the same ids, but those
    with an idempotency key as new jobs, for which the key alone says that they are the same.

    When all are sent it goes on with more like them, not many at a time, until it is told to end, or the block is left.

    over_s: it takes at least so long, evenly [0: as fast as it can].
    """

    def __init__(
        self, app: App, ledger: ClientLedger, calls: Sequence[Call[Any]], at_once: int = 2, over_s: float = 0.0
    ) -> None:
        super().__init__(name="producer")
        self._app = app
        self._ledger = ledger
        self._calls = calls
        self._at_once = at_once
        self._pause_s = over_s * at_once / len(calls)
        self._is_over = threading.Event()
        self.refusals: list[StoreError] = []
        """What it was told instead of yes."""
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            portions = [self._calls[at : at + self._at_once] for at in range(0, len(self._calls), self._at_once)]
            for some in portions:
                self._insist(some)
                CLOCK.sleep(self._pause_s)
            for some in cycle(portions):
                if CLOCK.wait(self._is_over, max(self._pause_s, _MORE_EVERY_S)):
                    return
                self._insist([_another(call) for call in some])
        except Exception as error:
            self.failure = error
            raise

    def end(self) -> None:
        """Let it send what is left of its calls, and no more."""
        self._is_over.set()

    def wait(self) -> None:
        """Until it has ended. That may take long, but not for any portion."""
        while self.is_alive():
            acked = len(self._ledger.acked)
            self.join(2 * _INSIST_S)
            assert not self.is_alive() or len(self._ledger.acked) > acked, "the producer hangs"
        assert self.failure is None

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def _insist(self, calls: Sequence[Call[Any]]) -> None:
        self._ledger.attempt([call.job.id for call in calls])
        asked = list(calls)
        try:
            poll(lambda: self._is_taken(asked), _INSIST_S, "the store takes new jobs")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.refusals[-1]}") from None

    def _is_taken(self, calls: list[Call[Any]]) -> bool:
        try:
            jobs = self._app.enqueue_many(calls)
        except StoreError as error:
            self.refusals.append(error)
            calls[:] = map(self._anew, calls)
            return False
        self._ledger.ack([job.id for job in jobs])
        return True

    def _anew(self, call: Call[Any]) -> Call[Any]:
        if call.job.idempotency_key is None:
            return call
        again = Call(call.task, replace(call.job, id=new_id()))
        self._ledger.attempt([again.job.id])
        return again


def _another(call: Call[Any]) -> Call[Any]:
    return Call(call.task, replace(call.job, id=new_id(), idempotency_key=None))


class Aftermath(Struct, frozen=True, kw_only=True):
    """What a storm has left."""

    evidence: Evidence
    strikes: int
    refusals: Sequence[StoreError]
    log: str
    """What the workers have printed."""
    drained_s: float
    """From the last strike until every job had ended."""

    @property
    def told(self) -> str:
        """What every finding says beside its figures."""
        twice = checker.per_10k(checker.duplicates(self.evidence), self.evidence)
        return (
            f"effects twice {twice:.1f} in 10,000, enqueues told of it {len(self.refusals)}, drained "
            f"{self.drained_s:.1f} s after the last{checker.told_bound(self.evidence)}"
        )


def weather(
    arena: Arena,
    calls: Sequence[Call[Any]],
    strike: Callable[[Fleet], None],
    *,
    strikes: int,
    every_s: float,
    url: str | None = None,
    producer: App | None = None,
    is_outage: bool = False,
    is_patient: bool = False,
) -> Aftermath:
    """Let workers and a producer go through so many strikes while there is work, and say what is left.

    Besides `calls` there are as many more jobs as it takes for the load to outlast the strikes.

    With `is_outage` a strike takes the store away from everybody: that explains a second run of what workers had that
    lost their leases, and recovery begins when it is back. Without, it explains nothing. With `is_patient` each strike
    waits until what the one before it has cut off runs again, so that it can be late after each of them.
    """
    outages: list[Outage] = []
    thread = Producer(producer or arena.app, arena.client, calls, over_s=strikes * every_s)
    with arena.fleet(url=url) as fleet, thread:
        # Workers that lose their leases end, and a supervisor puts others in their place.
        pids = [fleet.supervise(WORKERS, CALM)] if is_outage else [fleet.start(CALM) for _ in range(WORKERS)]
        start_s = poll(lambda: len(arena.stats().workers) == WORKERS, 20, "all workers register")
        thread.start()
        sampled_s, back_s = 0.0, CLOCK.monotonic()
        for _ in range(strikes):
            assert thread.is_alive(), f"the producer has ended by itself: {thread.failure}"
            if not is_outage and CLOCK.monotonic() > sampled_s + _SAMPLED_EVERY_S:
                arena.sample()
                sampled_s = CLOCK.monotonic()
            CLOCK.sleep(max(0.0, back_s + every_s - CLOCK.monotonic()))
            began_s = CLOCK.monotonic()
            strike(fleet)
            outages.append((began_s, back_s := CLOCK.monotonic()))
            if is_outage:
                arena.sample_again(_BACK_S)
            if is_patient:
                wait_replaced(arena, pids[0])
                poll(lambda: _is_taken_up(arena), _TAKEN_UP_S, "what was cut off runs again")
        last_s = back_s
        thread.end()
        thread.wait()
        arena.quiesce(60)
        drained_s = CLOCK.monotonic() - last_s
        if is_outage:
            wait_replaced(arena, pids[0])
        arena.look_again()
        assert fleet.running == pids, f"a worker ended by itself: {fleet.log()}"
        fleet.stop()
        evidence = arena.evidence(fleet)
        log = fleet.log()
    assert sum(one.at <= last_s for one in evidence.effects) > 10, "nothing ran under fault"
    if is_outage:
        # Where all workers have lost their leases, others start first, and then processes for their suspects.
        bound_s = recovery_bound(away_s=longest_s(outages), start_s=start_s, in_turn=2)
        evidence = replace(evidence, faults=outage_faults("outage", log, outages), recovery_s=bound_s)
        if isinstance(arena.engine, PostgresEngine):
            evidence = replace(evidence, crashes=outages)
    return Aftermath(evidence=evidence, strikes=strikes, refusals=thread.refusals, log=log, drained_s=drained_s)


def _is_taken_up(arena: Arena) -> bool:
    """Whether all that workers have stopped themselves, as they had lost their leases, has begun again.

    And whether what has no attempt to lose, and had a worker die on it, has ended: the third one that it meets counts.
    """
    runs = checker.runs_by_job(arena.effects()).values()
    if any(last.last is not None and last.last.what == "stop" for *_, last in runs):
        return False
    once = arena.app.bridge.run(arena.app.store.find(Query(task="once", limit=1_000))).items
    left = arena.get([one.id for one in once if not one.state.is_terminal])
    return not any(one.attempts for one in left)
