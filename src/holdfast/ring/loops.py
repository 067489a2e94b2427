"""The two loops that run a consumer: on a thread, and as a task. What they do is in `work`; here it is only done."""

from __future__ import annotations

import asyncio
import logging
import threading
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, Final

from holdfast.errors import HoldfastError
from holdfast.ports import BATCH_BOUNDS_S
from holdfast.ring.core import END, SLEEP, Core
from holdfast.ring.given_up import Unhandled
from holdfast.ring.lane import Errand, LoopBell, ThreadBell
from holdfast.ring.work import Call, Sleep, Step, Steps, Work
from holdfast.runtime.guards.functions import is_async, refuse_coroutine

_LATE_S: Final = 0.0005
"""Others hear after so long at the latest what is finished, or else after a batch."""

_QUICK_S: Final = BATCH_BOUNDS_S[0]

_logger = logging.getLogger("holdfast.ring")


class _Thread:
    """A consumer's own thread.

    An interrupt while it is started leaves open whether it will ever run. So it may be started again: the first that
    runs is the one.
    """

    def __init__(self) -> None:
        self._has_started = False
        self._taken = allocate_lock()
        self.ident: int | None = None

    @property
    def is_started(self) -> bool:
        """Whether there is no need to start it again."""
        return self._has_started or self._taken.locked()

    def start(self, run: Callable[[], object], name: str) -> None:
        """Begin."""

        def run_once() -> None:
            if self._taken.acquire(blocking=False):
                self.ident = get_ident()
                run()

        # A stuck consumer must not keep the process from ending: a ring that is not closed is closed at exit.
        threading.Thread(target=run_once, name=name, daemon=True).start()
        self._has_started = True


class ThreadLoop:
    """Runs a sync consumer on a thread of its own."""

    def __init__(self, core: Core, work: Work) -> None:
        self._core = core
        self._work = work
        self._bell = ThreadBell()
        work.lane.bell = self._bell
        self._thread = _Thread()

    @property
    def is_started(self) -> bool:
        """Whether it has begun."""
        return self._thread.is_started

    def start(self) -> None:
        """Begin."""
        self._thread.start(self._run, _name(self._work))

    def is_here(self) -> bool:
        """Whether the caller is this consumer itself."""
        return get_ident() == self._thread.ident

    def _run(self) -> None:
        try:
            self._loop()
            self._drive(self._work.save_last())
        except BaseException as error:
            _died(self._core, self._work, error)
        finally:
            for close in _closings(self._work):
                try:
                    close()
                except BaseException as error:
                    _closed_badly(self._work, error)
            self._core.ended(self._work.lane)

    def _loop(self) -> None:
        core, work, bell = self._core, self._work, self._bell
        lane, consume, turn, now = work.lane, work.callee.consume, core.turn, work.clock.monotonic
        has_checkpoints = work.checkpoints is not None
        lane.is_hasty = not has_checkpoints
        followers = lane.followers
        failed: BaseException | None = None
        while True:
            got = turn(lane)
            if type(got) is list:
                began_s = since_s = turned_s = lane.begun_s = now()
                ahead = lane.ahead
                batches = elements = quick = 0
                slowest_s = 0.0
                while True:
                    lane.batch += 1
                    n = len(got)  # before the call: who empties the list has had them all the same
                    try:
                        if (value := consume(got)) is not None and type(value) is CoroutineType:
                            refuse_coroutine(value)
                    except BaseException as error:
                        failed = error
                    if failed is not None:  # not in the block above: a retry's error would have this one as its context
                        self._drive(work.mend(got, failed))
                        failed = None
                    if has_checkpoints:
                        self._drive(work.save(n))
                    ended_s = now()
                    batches += 1
                    elements += n
                    took_s = ended_s - began_s
                    if took_s > slowest_s:  # noqa: PLR1730 - max() is a call
                        slowest_s = took_s
                    if took_s <= _QUICK_S:
                        quick += 1
                    else:
                        lane.count_slow(took_s)
                    if not ahead or ended_s - turned_s > _LATE_S:
                        break
                    if followers:
                        lane.finish(batches, elements, ended_s - since_s, slowest_s, quick)
                        core.pass_on(lane)
                        lane.next_piece += 1
                        batches = elements = quick = 0
                        slowest_s = 0.0
                        since_s = lane.begun_s = ended_s
                    got = ahead.pop()
                    began_s = ended_s
                lane.finish(batches, elements, ended_s - since_s, slowest_s, quick)
                if ahead:
                    lane.ahead = []
            elif got is SLEEP:
                value = None  # it may be the elements
                bell.wait()
            elif got is END:
                return
            else:
                self._errand(got)

    def _errand(self, errand: Errand) -> None:
        work = self._work
        work.lane.begun_s = work.clock.monotonic()
        try:
            error = self._call(lambda: work.callee.consume(errand.elements))
            if error is not None:
                self._drive(work.redo(errand.elements, error))
        except BaseException as failure:
            errand.future.set_exception(_told(failure))
        else:
            errand.future.set_result(None)
        finally:
            work.lane.begun_s = None

    def _drive(self, steps: Steps) -> None:
        answer: BaseException | None = None
        try:
            while True:
                answer = self._take(steps.send(answer))
        except StopIteration:
            return
        finally:
            answer = None  # an error holds the frames it came through, with all the elements: none may hold it

    def _take(self, step: Step) -> BaseException | None:
        if isinstance(step, Sleep):
            self._work.clock.sleep(step.seconds)
            return None
        if isinstance(step, Call):
            return self._call(lambda: self._work.callee.consume(step.elements))
        return self._call(step.fn)

    def _call(self, fn: Callable[[], object]) -> BaseException | None:
        try:
            value = fn()
            if type(value) is CoroutineType:
                refuse_coroutine(value)
        except BaseException as error:
            return error
        return None


class TaskLoop:
    """Runs an async consumer as a task: on the loop that it was registered on, or else on a thread with its own."""

    def __init__(self, core: Core, work: Work) -> None:
        self._core = core
        self._work = work
        self._task: asyncio.Task[None] | None = None
        try:
            self.home: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self.home = None
        self._bell: LoopBell | None = None
        self._thread = _Thread()
        self._aside: int | None = None
        """The thread that does for it what may block, while it does."""

    def start(self) -> None:
        """Begin."""
        if self.home is not None:
            self._begin()
        else:
            self._thread.start(self._run_alone, _name(self._work))

    @property
    def is_started(self) -> bool:
        """Whether it has begun."""
        return self._task is not None or self._thread.is_started

    def is_here(self) -> bool:
        """Whether the caller is this consumer itself."""
        if self._aside == get_ident():
            return True
        try:
            return self._task is not None and asyncio.current_task() is self._task
        except RuntimeError:
            return False

    def _run_alone(self) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._alone())
        except BaseException as error:
            if self._task is not None:
                raise
            _died(self._core, self._work, error)  # no loop can be had: it has no file for it, say
            self._core.ended(self._work.lane)

    async def _alone(self) -> None:
        self._begin()
        assert self._task is not None  # noqa: S101 - it was just made
        await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        self._bell = self._work.lane.bell = LoopBell(asyncio.get_running_loop(), asyncio.Event())
        self._task = asyncio.create_task(self._run(), name=_name(self._work))
        self._task.add_done_callback(self._ended)  # a task that is cancelled before its first step runs no line

    async def _run(self) -> None:
        try:
            await self._loop()
            await self._drive(self._work.save_last())
        except BaseException as error:
            _died(self._core, self._work, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            for close in _closings(self._work):
                try:
                    if is_async(close):
                        await close()
                    else:
                        close()
                except BaseException as error:
                    _closed_badly(self._work, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() and self._work.error is None:
            _died(self._core, self._work, asyncio.CancelledError())
        self._core.ended(self._work.lane)

    async def _loop(self) -> None:
        core, work, bell = self._core, self._work, self._bell
        assert bell is not None  # noqa: S101 - it is made with the task
        lane, turn, now = work.lane, core.turn, work.clock.monotonic
        while True:
            got = turn(lane)
            if type(got) is list:
                began_s = lane.begun_s = now()
                lane.batch += 1
                n = len(got)
                if (error := await self._consume(got)) is not None:
                    await self._drive(work.mend(got, error))
                if work.checkpoints is not None:
                    await self._drive(work.save(n))
                took_s = now() - began_s
                lane.count_slow(took_s)
                lane.finish(1, n, took_s, took_s, 0)
                error = None
            elif got is SLEEP:
                await bell.wait()
            elif got is END:
                return
            else:
                await self._errand(got)

    async def _consume(self, elements: Sequence[Any]) -> BaseException | None:
        limit_s = None if self._work.retry is None else self._work.retry.attempt_timeout
        try:
            async with self._work.clock.timeout(limit_s):
                await self._work.callee.consume(elements)
        except BaseException as error:
            if _is_end(error):
                raise
            return error
        return None

    async def _errand(self, errand: Errand) -> None:
        work = self._work
        work.lane.begun_s = work.clock.monotonic()
        try:
            if (error := await self._consume(errand.elements)) is not None:
                await self._drive(work.redo(errand.elements, error))
        except BaseException as failure:
            if _is_end(failure):
                errand.future.set_exception(Unhandled(f"consumer {work.lane.name!r} was cancelled"))
                raise
            errand.future.set_exception(_told(failure))
        else:
            errand.future.set_result(None)
        finally:
            work.lane.begun_s = None

    async def _drive(self, steps: Steps) -> None:
        answer: BaseException | None = None
        try:
            while True:
                answer = await self._take(steps.send(answer))
        except StopIteration:
            return
        finally:
            answer = None  # see above

    async def _take(self, step: Step) -> BaseException | None:
        if isinstance(step, Sleep):
            await self._work.clock.asleep(step.seconds)
            return None
        if isinstance(step, Call):
            return await self._consume(step.elements)
        try:
            if self.home is None:
                step.fn()  # nothing else runs on this loop; and at exit of the process no other thread can be had
            else:
                await asyncio.to_thread(self._do_aside, step.fn)
        except BaseException as error:
            if _is_end(error):
                raise
            return error
        return None

    def _do_aside(self, fn: Callable[[], object]) -> None:
        self._aside = get_ident()
        try:
            fn()
        finally:
            self._aside = None


Loop = ThreadLoop | TaskLoop


def _name(work: Work) -> str:
    return f"holdfast-ring-{work.ring}-{work.lane.name}"


def _is_end(error: BaseException) -> bool:
    """Whether it is this task that is cancelled; a consumer may come up with such an error by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _told(error: BaseException) -> Exception:
    """An error as whoever has handed in an errand may get it: SystemExit and the like would end the wrong thread.

    Nor may it be taken for this ring's word that the errand was not handled.
    """
    if isinstance(error, Exception) and not isinstance(error, Unhandled):
        return error
    told = HoldfastError(f"the consumer raised {error!r}")
    told.__cause__ = error
    return told


def _closings(work: Work) -> list[Callable[[], Any]]:
    """What has to be closed at the end, each whatever comes of the others."""
    closings = [] if work.callee.close is None else [work.callee.close]
    return [*closings, *(one.close for one in (work.checkpoints, work.letters) if one is not None)]


def _died(core: Core, work: Work, error: BaseException) -> None:
    """A consumer's loop cannot go on: nothing more is taken, since nobody would handle it."""
    name = work.lane.name
    if isinstance(error, asyncio.CancelledError):  # whoever closes the ring is not the one that is cancelled
        work.error = HoldfastError(f"consumer {name!r} was cancelled before the ring was closed: aclose() comes first")
        work.error.__cause__ = error
    else:
        work.error = error
    _logger.critical("ring %s, consumer %s cannot go on", work.ring, name, exc_info=error)
    core.close(f"ring {work.ring!r} takes no more elements: consumer {name!r} cannot go on: {error!r}")


def _closed_badly(work: Work, error: BaseException) -> None:
    work.error = work.error or error
    _logger.error("ring %s, consumer %s was closed, and raised", work.ring, work.lane.name, exc_info=error)
