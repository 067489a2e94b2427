"""Row 12: the store does what it was asked, and its reply is lost. The worker asks again; nothing is done twice."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from holdfast.errors import StoreError
from holdfast.ports import Exchange, Exchanged, Store
from holdfast.runtime.worker import Worker
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import every_store, waits
from tests.faults.report import Report, figures_of
from tests.faults.workers import SETTINGS

pytestmark = waits


class Lossy:
    """A store whose every third answer to a settlement is lost on the way, so many in all."""

    def __init__(self, store: Store, losses: int) -> None:
        self._store = store
        self._left = losses
        self._asked = 0
        self.replies_lost = 0
        self.settlements_lost = 0
        self.claims_lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(self, exchange: Exchange) -> Exchanged:
        """Do it, and then perhaps say nothing."""
        reply = await self._store.exchange(exchange)
        if exchange.settlements and self._left:
            self._asked += 1
            if self._asked % 3 == 0:
                self._left -= 1
                self.replies_lost += 1
                self.settlements_lost += len(exchange.settlements)
                self.claims_lost += len(reply.deliveries)
                raise StoreError("the reply was lost")
        return reply


@every_store
def test_a_lost_reply_is_asked_for_again_and_nothing_is_done_twice(arena: Arena, is_full: bool, report: Report) -> None:
    jobs, losses = (10_000, 50) if is_full else (500, 5)
    arena.enqueue([arena.call("work" if n % 2 else "toil", n) for n in range(jobs)])
    lossy = Lossy(arena.app.store, losses)

    async def work() -> None:
        worker = Worker(cast(Store, lossy), arena.app.specs, settings=SETTINGS)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            while any(not tally.state.is_terminal and tally.n for tally in (await arena.app.store.stats()).tallies):
                await arena.app.clock.asleep(0.05)
        worker.stop()
        assert await running == 0

    asyncio.run(work())
    evidence = arena.evidence()

    assert checker.check(evidence) == []
    assert completed(evidence) == jobs
    assert checker.duplicates(evidence) == 0
    assert lossy.replies_lost == losses
    assert lossy.settlements_lost > 0
    assert lossy.claims_lost > 0
    report(
        "the store does what a worker asked, and the reply is lost",
        injected=lossy.replies_lost,
        figures=figures_of(evidence),
        note=f"in them {lossy.settlements_lost} settlements and {lossy.claims_lost} claimed jobs, effects twice "
        f"{checker.per_10k(checker.duplicates(evidence), evidence):.1f} in 10,000",
    )
