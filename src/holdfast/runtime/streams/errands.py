"""What must be written elsewhere before a message is finished: the inbox first, then topics, then nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError, LeaseLost, NotSent, SourceError, StoreAway, StoreError
from holdfast.policy.backoff import Backoff
from holdfast.ports import Clock, Exchange, Progress, Settlement, Source, Store
from holdfast.runtime.streams.spec import MessageDelivery
from holdfast.runtime.streams.texts import bounded_attempt
from holdfast.types import Change, NewJob, Outgoing, Place, Rng

_logger = logging.getLogger("holdfast.worker")

T = TypeVar("T")

_CALL_BYTES: Final = 8 * 1024 * 1024
"""Letters that go to the store at once: more may be more than it takes in one call."""
_REFUSALS: Final = (StoreError, ConfigError, ValueError, TypeError, OverflowError)
"""What a store, or a driver, raises of what it cannot write."""
_NO_VALUES: Final = 2**62  # newer than every version
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
    retry: Settlement | None = None
    """Where they go to a retry topic: what that is to do."""
    is_light: bool = False
    """Whether they go there without their history, as the server has refused them with it."""


class _Lane:
    """Errands that wait for those before them."""

    def __init__(self) -> None:
        self.waiting: list[Errand] = []
        self.wake = asyncio.Event()


class Errands:
    """Runs errands: those that gather while some are under way go together as the next. One whose topic does not answer
    is put off, and keeps no other; and those with letters, which wait for the store, keep none that have none.

    `on_done` is told of each when it is written; `on_refused` of one whose messages the server will never take;
    `on_left_out` of one whose copy for the DLQ it will never take; and `on_lost` of one whose partition is somebody
    else's by now, or was meanwhile. A store or a server that is away, or that has to be mended, is waited for. A letter
    that the store will never take must not keep a stream: it goes without its history, and in the worst case to the DLQ
    alone.
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
        self._lanes = (_Lane(), _Lane())
        """Those without letters, and those with."""
        self._open = 0
        self._tries: dict[str, int] = {}
        """How often those were put off that are not written yet, by the id of their delivery."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is not written yet."""
        return self._open > 0

    def add(self, errand: Errand) -> None:
        """One more."""
        self._open += 1
        self._queue(errand)

    def _queue(self, errand: Errand) -> None:
        lane = self._lanes[bool(errand.letters)]
        lane.waiting.append(errand)
        lane.wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for lane in self._lanes:
                group.create_task(self._run(lane))

    async def _run(self, lane: _Lane) -> None:
        while True:
            await lane.wake.wait()
            lane.wake.clear()
            while lane.waiting:
                batch, lane.waiting = lane.waiting, []
                await self._do(batch)

    def _end(self, errand: Errand, told: Callable[[], None]) -> None:
        """It is over, this way or that."""
        self._open -= 1
        if self._tries.pop(errand.delivery.id, 0):
            _logger.warning("what %s has to send is written", errand.delivery.id)
        told()

    def _put_off(self, errand: Errand, error: Exception) -> None:
        """Another try after a while."""
        tries = self._tries[errand.delivery.id] = self._tries.get(errand.delivery.id, 0) + 1
        if tries == 1:
            _logger.error("what %s has to send is tried until it can be written: %s", errand.delivery.id, error)
        self._on_trouble(str(error))
        self._group.create_task(self._queue_later(errand, _AGAIN.delay(tries, rng=self._rng)))

    async def _queue_later(self, errand: Errand, delay_s: float) -> None:
        await self._clock.asleep(delay_s)
        self._queue(errand)

    async def _do(self, batch: Sequence[Errand]) -> None:
        together = [one for one in batch if one.commits is None]
        transactions = [one for one in batch if one.commits is not None]
        await self._remember(
            [letter for one in together for letter in one.letters if _is_grave(letter)]
            + [letter for one in transactions for letter in one.letters]
        )
        # What is in the inbox already is not written there again when its messages are put off.
        together = [
            replace(one, letters=[letter for letter in one.letters if not _is_grave(letter)]) for one in together
        ]
        written = await self._send(together)
        # One that was replayed has ended well only when the server has taken what it sends.
        await self._remember([letter for one in written for letter in one.letters])
        for one in written:
            self._end(one, lambda: self._on_done(one))  # noqa: B023 - called here
        for one in transactions:
            await self._transact(one)

    async def _remember(self, letters: Sequence[NewJob]) -> None:
        for some in _parted(letters, _CALL_BYTES):
            if await self._refusal(some) is not None:
                for letter in some:
                    await self._remember_one(letter)

    async def _refusal(self, letters: Sequence[NewJob]) -> Exception | None:
        """Write these; why the store will never take them, if it says so."""
        return await self._insist(lambda: self._enqueue(letters), StoreError)

    async def _enqueue(self, letters: Sequence[NewJob]) -> Exception | None:
        try:
            await self._store.enqueue(letters)
        except StoreAway:
            raise
        except _REFUSALS as error:
            await self._store.exchange(Exchange(seen=_NO_VALUES))  # if that fails too, it is not for the letters
            return error
        return None

    async def _remember_one(self, letter: NewJob) -> None:
        """A letter by itself; without its history if it must be, and not at all if the store does not take that."""
        if await self._refusal([letter]) is None:
            return
        error = await self._refusal([_shortened(letter)])
        if error is None:
            _logger.error("the letter %s was refused, and is in the inbox without its history", letter.id)
            return
        self._on_trouble(str(error))
        what = "the DLQ alone has the message" if _is_grave(letter) else "the message is done with all the same"
        _logger.critical("the letter %s is refused by the store, and %s: %s", letter.id, what, error)

    async def _send(self, errands: Sequence[Errand]) -> Sequence[Errand]:
        """Those whose messages are written. Each is sent by itself, all at once: a source puts together what it can."""
        answers = await asyncio.gather(*[self._is_written(one) for one in errands])
        return [one for one, is_written in zip(errands, answers, strict=True) if is_written]

    async def _is_written(self, errand: Errand) -> bool:
        try:
            if errand.sends:
                await self._source.send(errand.sends)
        except NotSent as error:
            refused = error
            self._end(errand, lambda: self._on_refused(errand, refused))
            return False
        except SourceError as error:
            self._put_off(errand, error)
            return False
        return await self._are_copied(errand)

    async def _are_copied(self, errand: Errand) -> bool:
        """Whether what is for the DLQ is there, or refused."""
        if not errand.copies:
            return True
        try:
            await self._source.send(errand.copies)
        except NotSent as error:
            if len(errand.copies) == 1:
                self._on_left_out(errand, error)
                return True
            await self._send_copies(errand)
        except SourceError as error:
            self._put_off(replace(errand, sends=()), error)
            return False
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
            self._end(errand, lambda: self._on_lost(errand))
        except NotSent as error:
            if not errand.copies:
                refused = error
                self._end(errand, lambda: self._on_refused(errand, refused))
                return
            await self._send_copies(errand)
            await self._transact(replace(errand, copies=()))
        else:
            self._end(errand, lambda: self._on_done(errand))

    async def _commit(self, errand: Errand, sends: Sequence[Outgoing]) -> None:
        assert errand.commits is not None  # noqa: S101 - only those come here
        progress = dict([errand.commits])
        delivery = errand.delivery

        async def transact() -> None:
            # The source knows the place alone: it may be ours again, and begun anew from before this batch.
            if delivery.id not in delivery.part.held:
                raise LeaseLost(f"{delivery.id} is not in our hands any more")
            await self._source.transact(sends, progress)

        await self._insist(transact, SourceError)

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


def _parted(letters: Sequence[NewJob], most_bytes: int) -> Iterator[Sequence[NewJob]]:
    """The same in their order, no more at a time than so many bytes, but for one that is larger by itself."""
    some: list[NewJob] = []
    size = 0
    for letter in letters:
        attempts = () if letter.end is None else letter.end.attempts
        own = len(letter.payload) + sum(len(one.traceback) + len(one.message) for one in attempts)
        if some and size + own > most_bytes:
            yield some
            some, size = [], 0
        some.append(letter)
        size += own
    if some:
        yield some


def _shortened(letter: NewJob) -> NewJob:
    """With its last attempt alone, and of that only what every store can hold."""
    if letter.end is None or not letter.end.attempts:
        return letter
    return replace(letter, end=replace(letter.end, attempts=(bounded_attempt(letter.end.attempts[-1]),)))


def _without_graves(errand: Errand) -> Errand:
    return replace(errand, letters=[one for one in errand.letters if not _is_grave(one)]) if errand.letters else errand


def _is_grave(letter: NewJob) -> bool:
    return letter.end is not None and letter.end.change is Change.BURY
