"""What a claim costs while everything else goes on: a job of its own in a queue of its own, claimed and given back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from holdfast import App
from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, Store, WorkerRecord
from holdfast.types import Change, NewJob
from tests.faults.workers import CLOCK

QUEUE: Final = "probe"
_LEASE_S: Final = 600.0


class ClaimProbe:
    """A worker that claims one job, again and again, and never runs it. Leaving the block takes leave of the store."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._worker = new_id()

    def __enter__(self) -> ClaimProbe:
        self._app.bridge.run(self._begin())
        return self

    def __exit__(self, *error: object) -> None:
        self._app.bridge.run(self._beat(0.0))

    async def _beat(self, lease_s: float = _LEASE_S) -> None:
        await self._app.store.heartbeat(WorkerRecord(id=self._worker, lease_s=lease_s, pid=os.getpid()))

    async def _begin(self) -> None:
        store = self._app.store
        await self._beat()
        await store.enqueue([NewJob(id=new_id(), task=QUEUE, payload=b"{}", queue=QUEUE)])

    def claims_s(self, count: int) -> list[float]:
        """How long each of so many claims took, the commit included."""
        return self._app.bridge.run(self._claims_s(count))

    async def _claims_s(self, count: int) -> list[float]:
        store = self._app.store
        await self._beat()
        # The last one puts it back as a job that is due anew, or it would be one that waits for as long as all this.
        ends = [0.0] * (count - 1) + [0.001]
        return [await claim_s(store, self._worker, 1, (QUEUE,), delay_s=delay_s) for delay_s in ends]


async def claim_s(
    store: Store, worker: str, limit: int, queues: Sequence[str] | None = None, *, delay_s: float = 0.0
) -> float:
    """Seconds for one claim of so many jobs, all of which must be there; they are given back, due after so long."""
    named = None if queues is None else tuple(queues)
    claim = Claim(worker=worker, token=new_token(), limit=limit, queues=named)
    began_s = CLOCK.monotonic()
    answer = await store.exchange(Exchange(claim=claim))
    took_s = CLOCK.monotonic() - began_s
    brought = answer.deliveries
    assert len(brought) == limit, f"{len(brought)} jobs were claimed, not {limit}"
    release = Settlement(id="", token=b"", change=Change.RELEASE, is_refunded=True, delay_s=delay_s)
    back = [replace(release, id=one.id, token=one.token) for one in brought]
    released = await store.exchange(Exchange(settlements=back))
    assert all(released.settled), "a lease was lost"
    return took_s
