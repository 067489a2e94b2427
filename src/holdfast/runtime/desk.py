"""What the context of a job in this process asks of its worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import Permanent
from holdfast.ports import Count, Note, Settlement, Store, Transaction
from holdfast.runtime.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from holdfast.runtime.context import Desk


class LoopDesk:
    """Carries a job's notes to the store: from the event loop, or from a thread through it."""

    def __init__(
        self,
        run: Run,
        store: Store,
        note: Callable[[Note], Coroutine[Any, Any, bool]],
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        completed: Callable[[Run], tuple[Settlement, Sequence[Count]]],
    ) -> None:
        self._run = run
        self._store = store
        self._note = note
        self._loop = loop
        self._limit_s = limit_s
        self._completed = completed

    def note(self, note: Note) -> bool:
        """From a thread: wait for the loop to do it."""
        try:
            is_on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_on_loop = False
        if is_on_loop:
            raise RuntimeError("in an async task use the a… twin: `await job.acheckpoint(…)`, `astep`, `aprogress`")
        return asyncio.run_coroutine_threadsafe(self._note(note), self._loop).result()

    async def anote(self, note: Note) -> bool:
        """From the loop."""
        return await self._note(note)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Leaving the block completes the job, and counts that it did."""
        check_transactions(self._store)
        settlement, counts = self._completed(self._run)
        with self._store.transaction(settlement, self._limit_s, counts) as tx:
            yield tx
        self._run.is_settled = True


def check_transactions(store: Store) -> None:
    """Permanent, where the store has none: no retry would help."""
    kind = store.capabilities
    if not kind.has_transactions:
        raise Permanent(
            f"job.transaction(): {kind.location} has no transactions; sqlite:///… and postgresql://… have them"
        )


if TYPE_CHECKING:
    _contract: type[Desk] = LoopDesk
