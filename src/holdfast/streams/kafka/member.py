"""A consumer's side of the event loop: what the thread brings is handed on, and what it asks the owner for is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from holdfast.errors import SourceAway, SourceError
from holdfast.ports import Clock, Owner, Progress
from holdfast.streams.kafka.audience import Answer
from holdfast.streams.kafka.handover import Handover
from holdfast.streams.kafka.logs import log
from holdfast.streams.kafka.reach import Reach
from holdfast.streams.kafka.settings import KafkaSettings, Start
from holdfast.streams.kafka.thread import ConsumerThread
from holdfast.types import Message, Place

R = TypeVar("R")

_MOST: Final = 100_000
"""Messages asked for at once, whatever the caller says."""
_ANSWER_S: Final = 10.0
"""How long a commit may take until whoever waits is told to try again."""


class Member:
    """A place in a group, from `open` to `close`: the thread's audience."""

    def __init__(
        self,
        settings: KafkaSettings,
        group: str,
        topics: list[str],
        owner: Owner,
        reach: Reach,
        clock: Clock,
        *,
        start: Start,
        rebalance_s: float,
    ) -> None:
        self._location = repr(settings)
        self._owner = owner
        self._reach = reach
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._handover = Handover(clock)
        self._limit = 1
        self._is_asked = False
        self._is_waited_for = False
        self._failure: SourceError | None = None
        self._answers: set[asyncio.Future[Any]] = set()
        self._giving_back: dict[Answer, asyncio.Task[None]] = {}
        self._ended = asyncio.Event()
        self.deleted = 0
        """Messages that were gone before this consumer came to read them."""
        self._thread = ConsumerThread(settings, group, topics, self, clock, start=start, rebalance_s=rebalance_s)
        self._thread.begin()

    # ---------------------------------------------------------------- for the source

    async def receive(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Up to so many messages; the next ones are fetched while the caller works on these."""
        self._limit = min(limit, _MOST)
        self._check()
        if self._handover.is_empty:
            self._ask()
            self._is_waited_for = True
            try:
                await self._handover.wait(wait_s)
            finally:
                self._is_waited_for = False
            self._check()
        messages = self._handover.take(limit)
        if messages and self._handover.is_empty:
            self._ask()
        return messages

    def pause(self, places: Collection[Place]) -> None:
        """Bring no more of these."""
        self._handover.pause(places)
        self._thread.pause(frozenset(places))

    def resume(self, places: Collection[Place]) -> None:
        """Go on with these."""
        self._handover.resume(places)
        self._thread.resume(frozenset(places))

    async def commit(self, progress: Mapping[Place, Progress]) -> None:
        """Returns when the broker has answered."""
        error: SourceError | None = await self._answer(lambda answered: self._thread.commit(progress, answered))
        if error is not None:
            raise error

    async def membership(self, places: Collection[Place]) -> Any:
        """What proves our membership in a transaction; None where some of these are not ours."""
        asked = frozenset(places)
        return await self._answer(lambda answered: self._thread.membership(asked, answered))

    async def close(self, within_s: float) -> None:
        """Leave the group; a broker that does not answer is left alone after so long."""
        self._failure = self._failure or SourceError(f"{self._location}: it is closed")
        self._handover.interrupt()
        self._thread.stop()
        try:
            async with self._clock.timeout(within_s):
                await self._ended.wait()
        except TimeoutError:
            log.warning("%s: could not take leave of the group within %g s", self._location, within_s)
            self._fail_answers()
        for task in self._giving_back.values():
            task.cancel()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._thread.ask(self._limit)

    async def _answer(self, ask: Callable[[Callable[[R], None]], None]) -> R:
        """What the thread answers, asked with a function to answer by."""
        self._check()
        future: asyncio.Future[R] = self._loop.create_future()
        self._answers.add(future)
        try:
            ask(lambda answer: self._settle(future, answer))
            async with self._clock.timeout(_ANSWER_S):
                return await future
        except TimeoutError:
            raise SourceAway(f"{self._location}: no answer from the broker within {_ANSWER_S:g} s") from None
        finally:
            self._answers.discard(future)

    def _settle(self, future: asyncio.Future[R], answer: R) -> None:
        """On the thread."""
        try:
            self._loop.call_soon_threadsafe(_set, future, answer)
        except RuntimeError:  # the loop is closed: nobody waits any more
            log.debug("%s: an answer came too late", self._location)

    def _fail_answers(self) -> None:
        for future in self._answers:
            if not future.done():
                future.set_exception(SourceAway(f"{self._location}: it was closed before the broker had answered"))

    # ---------------------------------------------------------------- what the thread tells

    def deliver(self, messages: list[Message]) -> None:
        """These have come."""
        self._is_asked = False
        self._handover.put(messages)
        if self._is_waited_for and self._handover.is_empty:  # all of them are held back
            self._ask()

    def assigned(self, positions: Mapping[Place, int], deleted: int) -> None:
        """These partitions are ours, if any; so many messages were deleted before we came to read them."""
        self.deleted += deleted
        if positions:
            self._handover.drop(positions.keys())  # the owner may have paused them after it was asked to give them back
            self._owner.assigned(positions)

    def revoke(self, answer: Answer) -> None:
        """Ask the owner to give these back."""
        self._handover.drop(answer.places)
        self._giving_back[answer] = self._loop.create_task(self._give_back(answer))

    async def _give_back(self, answer: Answer) -> None:
        progress: Mapping[Place, Progress] = {}
        try:
            progress = await self._owner.revoked(answer.places)
        except Exception:
            log.exception("%s: giving partitions back failed; what was finished is done again", self._location)
        finally:
            self._giving_back.pop(answer, None)
            answer.give(progress)

    def give_up(self, answer: Answer) -> None:
        """The owner took too long."""
        task = self._giving_back.pop(answer, None)
        if task is not None:
            task.cancel()
            self._owner.lost(answer.places)

    def lost(self, places: Collection[Place]) -> None:
        """These partitions are somebody else's already."""
        self._handover.drop(places)
        self._owner.lost(places)

    def trouble(self, why: str) -> None:
        """It may be that the broker is away."""
        if self._failure is None:
            self._reach.suspect(why)

    def failed(self, error: SourceError) -> None:
        """It cannot work as it is."""
        self._failure = self._failure or error
        self._reach.say(str(error))
        self._handover.interrupt()

    def ended(self) -> None:
        """The thread has left the group and ended."""
        self._ended.set()
        self._fail_answers()


def _set(future: asyncio.Future[R], answer: R) -> None:
    if not future.done():
        future.set_result(answer)
