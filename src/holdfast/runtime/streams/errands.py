"""What must be written elsewhere before a message is finished: the inbox first, then topics, then nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from holdfast.errors import LeaseLost, SourceAway, SourceError, StoreError
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock, Progress, Source, Store
from holdfast.runtime.streams.spec import MessageDelivery
from holdfast.types import NewJob, Outgoing, Place, Rng

_logger = logging.getLogger("holdfast.worker")

T = TypeVar("T")

_AGAIN = Backoff(initial_delay=0.1, multiplier=2.0, max_delay=5.0, min_delay=0.05)


class Errand(Struct, frozen=True, kw_only=True):
    """Letters for the inbox and messages for topics; when they are written, its delivery is finished."""

    delivery: MessageDelivery
    letters: Sequence[NewJob] = ()
    sends: Sequence[Outgoing] = ()
    commits: tuple[Place, Progress] | None = None
    """Where its messages and this progress are written by one transaction."""


class Errands:
    """Runs errands in the order they came: those that gather while a batch is under way go together as the next.

    `on_done` is told of each when it is written; `on_refused` of one whose messages the server will never take; and
    `on_lost` of one whose partition is somebody else's by now. A store or a server that is away is waited for.
    """

    def __init__(
        self,
        store: Store,
        source: Source,
        *,
        clock: Clock,
        rng: Rng,
        on_done: Callable[[Errand], None],
        on_refused: Callable[[Errand, SourceError], None],
        on_lost: Callable[[Errand], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._store = store
        self._source = source
        self._clock = clock
        self._rng = rng
        self._on_done = on_done
        self._on_refused = on_refused
        self._on_lost = on_lost
        self._on_trouble = on_trouble
        self._waiting: list[Errand] = []
        self._wake = asyncio.Event()
        self.is_busy = False
        """Whether anything is not written yet."""

    def add(self, errand: Errand) -> None:
        """One more."""
        self._waiting.append(errand)
        self.is_busy = True
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._do(batch)
            self.is_busy = False

    async def _do(self, batch: Sequence[Errand]) -> None:
        letters = [letter for one in batch for letter in one.letters]
        if letters:
            await self._insist(lambda: self._store.enqueue(letters), StoreError)
        together = [one for one in batch if one.commits is None]
        sends = [message for one in together for message in one.sends]
        if sends:
            try:
                await self._insist(lambda: self._source.send(sends), SourceAway)
            except SourceError:
                together = await self._send_one_by_one(together)
        for one in together:
            self._on_done(one)
        for one in batch:
            if one.commits is not None:
                await self._transact(one, dict([one.commits]))

    async def _send_one_by_one(self, errands: Sequence[Errand]) -> list[Errand]:
        """One message that the server will never take must not keep the others: those that were written."""
        written = []
        for one in errands:
            try:
                await self._insist(lambda: self._source.send(one.sends), SourceAway)  # noqa: B023 - awaited here
            except SourceError as error:
                self._on_refused(one, error)
            else:
                written.append(one)
        return written

    async def _transact(self, errand: Errand, progress: dict[Place, Progress]) -> None:
        try:
            await self._insist(lambda: self._source.transact(errand.sends, progress), SourceAway)
        except LeaseLost:
            self._on_lost(errand)
        except SourceError as error:
            self._on_refused(errand, error)
        else:
            self._on_done(errand)

    async def _insist(self, call: Callable[[], Awaitable[T]], away: type[Exception]) -> T:
        tries = 0
        while True:
            try:
                answer = await call()
            except away as error:
                tries += 1
                if tries == 1:
                    _logger.error("what became of messages cannot be written, and is tried until it can: %s", error)
                self._on_trouble(str(error))
                await self._clock.asleep(_AGAIN.delay(tries, rng=self._rng))
            else:
                if tries:
                    _logger.warning("what became of messages is written, after %d tries", tries + 1)
                return answer
