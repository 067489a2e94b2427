"""Load under fault: a producer who insists, workers, and something that strikes again and again meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast import App
from holdfast.app.task import Call
from holdfast.clock import new_id
from holdfast.errors import StoreError
from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence
from tests.faults.ledger import ClientLedger
from tests.faults.outages import Outage, longest_s, outage_faults, wait_replaced
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll, recovery_bound

WORKERS = 2
CALM = replace(SETTINGS, room=Room(concurrency=4, threads=2, isolates=1))
_INSIST_S = 30.0
_BACK_S = 10.0
"""By then whoever looks finds the store back."""
_SAMPLED_EVERY_S = 0.5


class Producer(threading.Thread):
    """Enqueues a few jobs at a time; what is refused it sends again until it is acked: under the same ids, but those
    with an idempotency key as new jobs, for which the key alone says that they are the same.

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
        self.refusals: list[StoreError] = []
        """What it was told instead of yes."""
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for start in range(0, len(self._calls), self._at_once):
                self._insist(self._calls[start : start + self._at_once])
                CLOCK.sleep(self._pause_s)
        except Exception as error:
            self.failure = error
            raise

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
) -> Aftermath:
    """Let workers and a producer go through so many strikes while there is work, and say what is left.

    With `is_outage` a strike takes the store away from everybody: that explains a second run of what workers had that
    lost their leases, and recovery begins when it is back. Without, it explains nothing.
    """
    outages: list[Outage] = []
    thread = Producer(producer or arena.app, arena.client, calls, over_s=strikes * every_s)
    with arena.fleet(url=url) as fleet:
        # Workers that lose their leases end, and a supervisor puts others in their place.
        pids = [fleet.supervise(WORKERS, CALM)] if is_outage else [fleet.start(CALM) for _ in range(WORKERS)]
        start_s = poll(lambda: len(arena.stats().workers) == WORKERS, 20, "all workers register")
        thread.start()
        sampled_s, back_s = 0.0, CLOCK.monotonic()
        for _ in range(strikes):
            assert thread.is_alive(), "the load was over too soon"
            if not is_outage and CLOCK.monotonic() > sampled_s + _SAMPLED_EVERY_S:
                arena.sample()
                sampled_s = CLOCK.monotonic()
            CLOCK.sleep(max(0.0, back_s + every_s - CLOCK.monotonic()))
            began_s = CLOCK.monotonic()
            strike(fleet)
            outages.append((began_s, back_s := CLOCK.monotonic()))
            if is_outage:
                arena.sample_again(_BACK_S)
        last_s = back_s
        thread.join(120)
        assert not thread.is_alive(), "the producer hangs"
        assert thread.failure is None
        arena.quiesce(60)
        drained_s = CLOCK.monotonic() - last_s
        if is_outage:
            wait_replaced(arena, pids[0])
        assert fleet.running == pids, f"a worker ended by itself: {fleet.log()}"
        fleet.stop()
        evidence = arena.evidence(fleet)
        log = fleet.log()
    assert sum(one.at <= last_s for one in evidence.effects) > 10, "nothing ran under fault"
    if is_outage:
        # Where all workers have lost their leases, others start first, and then processes for their suspects.
        bound_s = recovery_bound(away_s=longest_s(outages), start_s=start_s, in_turn=2)
        evidence = replace(evidence, faults=outage_faults("outage", log, outages), recovery_s=bound_s)
    return Aftermath(evidence=evidence, strikes=strikes, refusals=thread.refusals, log=log, drained_s=drained_s)
