"""What one consumer of a ring is to do with its batches; and what becomes of those that fail.

Nothing is waited for or called here: a generator asks for each step, and the loop of a thread or of a task takes it. A
step is answered with the error that it ended with, or None.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from itertools import chain
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import CheckpointError
from holdfast.policy.backoff import Backoff
from holdfast.policy.classify import classify
from holdfast.policy.judge import Bury, RetryAt, judge
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Clock
from holdfast.redact import error_in_words
from holdfast.ring.checkpoints import Checkpoint, Checkpoints
from holdfast.ring.consumer import Callee
from holdfast.ring.given_up import GivenUp, Letters
from holdfast.ring.lane import Lane
from holdfast.runtime.run import storable
from holdfast.types import Attempt, Change, Failure, FailureContext, Rng

_logger = logging.getLogger("holdfast.ring")

OUTAGE: Final = 16
"""So many elements in a row that fail by themselves, with an error that could heal, are no bad elements: something is
down. The rest of the batch is not tried one by one."""
_AGAIN: Final = Backoff(initial_delay=0.2, multiplier=2.0, max_delay=15.0, min_delay=0.0)
"""The waits for a place that takes no dead letters."""
_NO_RETRY: Final = Bury("no retry policy")

ErrorHandler = Callable[[Any, Sequence[Any], BaseException], object]


class Call(Struct, frozen=True):
    """Let the consumer have these elements."""

    elements: list[Any]


class Sleep(Struct, frozen=True):
    """Wait so many seconds."""

    seconds: float


class Do(Struct, frozen=True):
    """Call this, which may block."""

    fn: Callable[[], object]


Step = Call | Sleep | Do
Steps = Generator[Step, BaseException | None, None]


class _Part(Struct, frozen=True):
    """Some elements of a failed batch, with every attempt at them so far."""

    elements: list[Any]
    offset: int | None
    attempts: tuple[Attempt, ...]
    failure: Failure
    note: str = ""
    """What is to be said of them before the failure."""

    def halves(self) -> tuple[_Part, _Part]:
        middle = len(self.elements) // 2
        after = None if self.offset is None else self.offset + middle
        return replace(self, elements=self.elements[:middle]), replace(
            self, elements=self.elements[middle:], offset=after
        )


class Work(Struct, kw_only=True, eq=False):
    """One consumer, with everything that its loop needs."""

    ring: str
    lane: Lane
    callee: Callee
    retry: RetryPolicy | None = None
    is_isolated: bool = False
    letters: Letters | None = None
    checkpoints: Checkpoints | None = None
    checkpoint_every: int = 1
    loaded: Checkpoint | None = None
    """What was done before the ring began."""
    handler: ErrorHandler | None = None
    clock: Clock
    rng: Rng
    error: BaseException | None = None
    """Why its loop could not go on, if it could not; or why its end was not as it should be."""
    unsaved: int = 0
    """Batches since the last checkpoint."""

    # ---- a batch that failed

    def mend(self, elements: list[Any], error: BaseException) -> Steps:
        """Call it again as its policy says; what has to be given up goes to the dead letters and the error handler."""
        part = yield from self._retried(_Part(elements, self.lane.offset, (), self._failed(error)))
        if part is None:
            return
        if self.is_isolated and len(elements) > 1:
            given_up = yield from self._bisected(part)
        else:
            given_up = [part]
        yield from self._give_up(given_up)

    def redo(self, elements: list[Any], error: BaseException) -> Steps:
        """The same for a dead letter that was handed in again: whoever handed it in hears what becomes of it."""
        part = yield from self._retried(_Part(elements, None, (), self._failed(error)))
        if part is not None:
            assert part.failure.error is not None  # noqa: S101 - the failure was made from it
            raise part.failure.error

    def _retried(self, part: _Part) -> Generator[Step, BaseException | None, _Part | None]:
        """What is left to give up, with its history; None where a retry went well."""
        lane, clock = self.lane, self.clock
        now_s = clock.monotonic()
        began_s = now_s if lane.begun_s is None else lane.begun_s
        began_at = clock.now() - (now_s - began_s)
        retries = 0
        while True:
            verdict: RetryAt | Bury = _NO_RETRY
            if self.retry is not None:
                verdict = judge(self.retry, part.failure, retries, clock.monotonic() - began_s, self.rng)
            part = replace(part, attempts=(*part.attempts, self._attempt(part, began_at, verdict)))
            if isinstance(verdict, Bury):
                return part
            retries += 1
            self._log(logging.WARNING, "failed, and is tried again in %.3g s: %s", verdict.delay_s, _line(part.failure))
            yield from self._wait(verdict.delay_s, retries)
            began_at = clock.now()
            error = yield Call(part.elements)
            if error is None:
                return None
            part = replace(part, failure=self._failed(error))

    def _bisected(self, whole: _Part) -> Generator[Step, BaseException | None, list[_Part]]:
        """Find the elements that are to blame; the others go through, in order."""
        bad: list[_Part] = []
        in_a_row = 0
        parts = [*reversed(whole.halves())]
        while parts:
            part = parts.pop()
            if in_a_row >= OUTAGE:
                rest = [*chain.from_iterable(one.elements for one in [part, *reversed(parts)])]
                note = f"not tried alone, as {OUTAGE} elements before had failed: "
                bad.append(replace(whole, elements=rest, offset=part.offset, note=note))
                self._log(logging.ERROR, "nothing goes through: the rest is given up without a try")
                break
            began_at = self.clock.now()
            error = yield Call(part.elements)
            if error is None:
                in_a_row = 0
                continue
            part = replace(part, failure=self._failed(error))
            part = replace(part, attempts=(*part.attempts, self._attempt(part, began_at, _NO_RETRY)))
            if len(part.elements) > 1:
                parts += reversed(part.halves())
                continue
            if (left := (yield from self._once_more(part))) is None:
                in_a_row = 0
                continue
            bad.append(left)
            in_a_row = in_a_row + 1 if left.failure.is_retriable else 0
        return bad

    def _once_more(self, part: _Part) -> Generator[Step, BaseException | None, _Part | None]:
        """One retry for an element that fails by itself, if the error could heal: it was in no retry alone so far."""
        if self.retry is None or isinstance(judge(self.retry, part.failure, 0, 0.0, self.rng), Bury):
            return part
        yield from self._wait(self.retry.delay(1, part.failure, rng=self.rng), 1)
        began_at = self.clock.now()
        error = yield Call(part.elements)
        if error is None:
            return None
        part = replace(part, failure=self._failed(error))
        return replace(part, attempts=(*part.attempts, self._attempt(part, began_at, _NO_RETRY)))

    def _wait(self, delay_s: float, number: int) -> Steps:
        self.lane.doing = f"waits for retry {number}"
        yield Sleep(delay_s)
        self.lane.doing = ""
        self.lane.retries += 1

    def _failed(self, error: BaseException) -> Failure:
        self.lane.errors += 1
        return classify(error, FailureContext(f"{self.ring}/{self.lane.name}"))

    def _attempt(self, part: _Part, began_at: float, verdict: RetryAt | Bury) -> Attempt:
        failure = part.failure
        is_last = isinstance(verdict, Bury)
        return Attempt(
            number=len(part.attempts) + 1,
            started_at=began_at,
            ended_at=max(self.clock.now(), began_at),
            worker=f"ring {self.ring}",
            outcome=Change.BURY if is_last else Change.RETRY,
            failure_type=failure.type,
            severity=failure.severity,
            error_name=storable(failure.error_name),
            message=storable(failure.message),
            traceback=storable(failure.traceback),
            fingerprint=failure.fingerprint,
            delay_s=None if isinstance(verdict, Bury) else verdict.delay_s,
        )

    # ---- given up

    def _give_up(self, parts: list[_Part]) -> Steps:
        for part in parts:
            self.lane.given_up += len(part.elements)
            some = "1 element" if len(part.elements) == 1 else f"{len(part.elements)} elements"
            self._log(logging.ERROR, "gave up %s: %s%s", some, part.note, _line(part.failure))
        if self.letters is not None and parts:
            yield from self._write(self.letters, [self._given_up(part) for part in parts])
        for part in parts:
            if self.handler is not None:
                yield from self._tell(self.handler, part)

    def _given_up(self, part: _Part) -> GivenUp:
        return GivenUp(
            ring=self.ring,
            consumer=self.lane.name,
            batch=self.lane.batch,
            offset=part.offset,
            elements=tuple(part.elements),
            failure=part.failure,
            attempts=part.attempts,
            reason=part.note + _line(part.failure),
            at=self.clock.now(),
        )

    def _write(self, letters: Letters, given_up: list[GivenUp]) -> Steps:
        """Until it is written: nothing is given up without a trace."""
        tries = 0
        written: list[int] = []
        while (error := (yield Do(lambda: written.append(letters.write(given_up))))) is not None:
            tries += 1
            self._log(logging.ERROR, "its dead letters cannot be written, and it waits: %s", error_in_words(error))
            self.lane.doing = f"waits to write dead letters: {error}"
            yield Sleep(_AGAIN.delay(min(tries, 20), rng=self.rng))
        self.lane.doing = ""
        self.lane.dead_letters += sum(written)

    def _tell(self, handler: ErrorHandler, part: _Part) -> Steps:
        cause = part.failure.error
        assert cause is not None  # noqa: S101 - the failure was made from it
        consumer = self.callee.consumer
        error = yield Do(lambda: handler(consumer, part.elements, cause))
        if error is not None:
            self._log(logging.ERROR, "the error handler raised, and the ring goes on: %r", error)

    # ---- checkpoints

    def save(self, n: int) -> Steps:
        """A batch of so many elements is finished: remember it, where it is time to."""
        lane = self.lane
        lane.offset = (lane.offset or 0) + n
        self.unsaved += 1
        if self.unsaved >= self.checkpoint_every:
            yield from self.save_now(n)

    def save_now(self, unfinished: int = 0) -> Steps:
        """Remember how far it is. A place that cannot be written is tried again after the next batch.

        unfinished: elements of its batch that are not counted as processed yet.
        """
        lane, before = self.lane, self.loaded
        if self.checkpoints is None or lane.offset is None:
            return
        checkpoint = Checkpoint(
            offset=lane.offset,
            batch=lane.batch,
            processed=lane.processed + unfinished + (before.processed if before else 0),
            saved_at=self.clock.now(),
        )
        checkpoints = self.checkpoints
        error = yield Do(lambda: checkpoints.save(checkpoint))
        if error is None:
            lane.saved_offset, lane.checkpoint_error, self.unsaved = checkpoint.offset, "", 0
            return
        if isinstance(error, CheckpointError) and error.is_fenced:
            raise error
        lane.checkpoint_error = str(error)
        self._log(logging.ERROR, "its checkpoint cannot be saved, and it goes on: %s", error)

    def save_last(self) -> Steps:
        """The same at the end. What cannot be saved now never is, and whoever closes the ring is told."""
        yield from self.save_now()
        if self.lane.checkpoint_error:
            self.error = CheckpointError(
                f"the last checkpoint of consumer {self.lane.name!r} was not saved, so a restart repeats what came "
                f"since the one before: {self.lane.checkpoint_error}"
            )

    def _log(self, level: int, text: str, *values: object) -> None:
        lane = self.lane
        _logger.log(
            level,
            f"ring %s, consumer %s, batch %d: {text}",
            self.ring,
            lane.name,
            lane.batch,
            *values,
            extra={"ring": self.ring, "consumer": lane.name, "batch": lane.batch},
        )


def _line(failure: Failure) -> str:
    text = " ".join(failure.message.split())
    return f"{failure.error_name}: {text}" if text else failure.error_name
