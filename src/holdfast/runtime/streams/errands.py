"""What must be written elsewhere before a message is finished: the inbox first, then topics, then nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import LeaseLost, NotSent, SourceError, StoreError
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock, Progress, Source, Store
from holdfast.runtime.streams.spec import MessageDelivery
from holdfast.types import Change, NewJob, Outgoing, Place, Rng

_logger = logging.getLogger("holdfast.worker")

T = TypeVar("T")

_AGAIN = Backoff(initial_delay=0.1, multiplier=2.0, max_delay=5.0, min_delay=0.05)


class Errand(Struct, frozen=True, kw_only=True):
    """Letters for the inbox and messages for topics; when they are written, its delivery is finished."""

    delivery: MessageDelivery
    letters: Sequence[NewJob] = ()
    sends: Sequence[Outgoing] = ()
    copies: Sequence[Outgoing] = ()
    """For the DLQ: what the inbox has by then, so that one which is refused is lost to nobody."""
    commits: tuple[Place, Progress] | None = None
    """Where its messages and this progress are written by one transaction."""


class Errands:
    """Runs errands in the order they came: those that gather while a batch is under way go together as the next.

    `on_done` is told of each when it is written; `on_refused` of one whose messages the server will never take;
    `on_left_out` of one whose copy for the DLQ it will never take; and `on_lost` of one whose partition is somebody
    else's by now. A store or a server that
    is away, or that has to be mended, is waited for.
    """

    def __init__(
        self,
        store: Store,
        source: Source,
        *,
        clock: Clock,
        rng: Rng,
        on_done: Callable[[Errand], None],
        on_refused: Callable[[Errand, NotSent], None],
        on_left_out: Callable[[Errand, NotSent], None],
        on_lost: Callable[[Errand], None],
        on_trouble: Callable[[str], None],
    ) -> None:
        self._store = store
        self._source = source
        self._clock = clock
        self._rng = rng
        self._on_done = on_done
        self._on_refused = on_refused
        self._on_left_out = on_left_out
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
        together = [one for one in batch if one.commits is None]
        transactions = [one for one in batch if one.commits is not None]
        await self._remember(
            [letter for one in together for letter in one.letters if _is_grave(letter)]
            + [letter for one in transactions for letter in one.letters]
        )
        written = await self._send(together)
        # One that was replayed has ended well only when the server has taken what it sends.
        await self._remember([letter for one in written for letter in one.letters if not _is_grave(letter)])
        for one in written:
            self._on_done(one)
        for one in transactions:
            await self._transact(one)

    async def _remember(self, letters: Sequence[NewJob]) -> None:
        if letters:
            await self._insist(lambda: self._store.enqueue(letters), StoreError)

    async def _send(self, errands: Sequence[Errand]) -> Sequence[Errand]:
        """Those whose messages are written. One that the server will never take must not keep the others."""
        sends = [message for one in errands for message in (*one.sends, *one.copies)]
        if not sends:
            return errands
        try:
            await self._insist(lambda: self._source.send(sends), SourceError)
        except NotSent:
            return [one for one in errands if await self._is_sent_by_itself(one)]
        return errands

    async def _is_sent_by_itself(self, errand: Errand) -> bool:
        try:
            if errand.sends:
                await self._insist(lambda: self._source.send(errand.sends), SourceError)
        except NotSent as error:
            self._on_refused(errand, error)
            return False
        await self._send_copies(errand)
        return True

    async def _send_copies(self, errand: Errand) -> None:
        """One by one, without those that are refused."""
        for one in errand.copies:
            try:
                await self._insist(lambda: self._source.send([one]), SourceError)  # noqa: B023 - awaited here
            except NotSent as error:
                self._on_left_out(errand, error)

    async def _transact(self, errand: Errand) -> None:
        try:
            await self._commit(errand, [*errand.sends, *errand.copies])
        except LeaseLost:
            self._on_lost(errand)
        except NotSent as error:
            if not errand.copies:
                self._on_refused(errand, error)
                return
            await self._send_copies(errand)
            await self._transact(replace(errand, copies=()))
        else:
            self._on_done(errand)

    async def _commit(self, errand: Errand, sends: Sequence[Outgoing]) -> None:
        assert errand.commits is not None  # noqa: S101 - only those come here
        progress = dict([errand.commits])
        await self._insist(lambda: self._source.transact(sends, progress), SourceError)

    async def _insist(self, call: Callable[[], Awaitable[T]], away: type[Exception]) -> T:
        tries = 0
        while True:
            try:
                answer = await call()
            except NotSent:
                raise
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


def _is_grave(letter: NewJob) -> bool:
    return letter.end is not None and letter.end.change is Change.BURY
