"""The two loops that run a consumer: on a thread, and as a task. What they do is in `work`; here it is only done."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from types import CoroutineType
from typing import Any, Final

from holdfast.ring.core import END, SLEEP, Core
from holdfast.ring.lane import Errand, LoopBell, ThreadBell
from holdfast.ring.work import Call, Sleep, Steps, Work
from holdfast.runtime.guards.functions import is_async, refuse_coroutine

_LATE_S: Final = 0.0005
"""Others hear after so long at the latest what is finished, or else after a batch."""

_logger = logging.getLogger("holdfast.ring")


class ThreadLoop:
    """Runs a sync consumer on a thread of its own."""

    def __init__(self, core: Core, work: Work) -> None:
        self._core = core
        self._work = work
        self._bell = ThreadBell()
        work.lane.bell = self._bell
        # A stuck consumer must not keep the process from ending: a ring that is not closed is closed at exit.
        self.thread = threading.Thread(target=self._run, name=f"holdfast-ring-{work.lane.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def is_here(self) -> bool:
        """Whether the caller is this consumer itself."""
        return threading.current_thread() is self.thread

    def _run(self) -> None:
        try:
            self._loop()
            self._drive(self._work.save_now())
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
        while True:
            got = turn(lane)
            if type(got) is list:
                began_s = turned_s = now()
                while True:
                    lane.begun_s = began_s
                    lane.batch += 1
                    try:
                        if (value := consume(got)) is not None and type(value) is CoroutineType:
                            refuse_coroutine(value)
                    except BaseException as error:
                        self._drive(work.mend(got, error))
                    if has_checkpoints:
                        self._drive(work.save(len(got)))
                    ended_s = now()
                    lane.finish(len(got), began_s, ended_s)
                    if not lane.ahead or ended_s - turned_s > _LATE_S:
                        lane.ahead = []
                        break
                    got = lane.ahead.pop()
                    lane.end += len(got)
                    lane.next_piece += 1
                    began_s = ended_s
            elif got is SLEEP:
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
            errand.future.set_exception(failure)
        else:
            errand.future.set_result(None)
        finally:
            work.lane.begun_s = None

    def _drive(self, steps: Steps) -> None:
        consume, clock = self._work.callee.consume, self._work.clock
        answer: BaseException | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(step, Sleep):
                clock.sleep(step.seconds)
            elif isinstance(step, Call):
                elements = step.elements
                answer = self._call(lambda: consume(elements))  # noqa: B023 - called before the next step
            else:
                answer = self._call(step.fn)

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

    def start(self) -> None:
        """Begin."""
        if self.home is not None:
            self._begin()
            return
        ready = threading.Event()
        name = f"holdfast-ring-{self._work.lane.name}"
        threading.Thread(target=lambda: asyncio.run(self._alone(ready)), name=name, daemon=True).start()
        ready.wait()

    def is_here(self) -> bool:
        """Whether the caller is this consumer itself."""
        try:
            return self._task is not None and asyncio.current_task() is self._task
        except RuntimeError:
            return False

    async def _alone(self, ready: threading.Event) -> None:
        self._begin()
        ready.set()
        assert self._task is not None  # noqa: S101 - it was just made
        await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        self._bell = self._work.lane.bell = LoopBell(asyncio.get_running_loop(), asyncio.Event())
        self._task = asyncio.create_task(self._run(), name=f"holdfast-ring-{self._work.lane.name}")
        self._task.add_done_callback(self._ended)  # a task that is cancelled before its first step runs no line

    async def _run(self) -> None:
        try:
            await self._loop()
            await self._drive(self._work.save_now())
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
                if (error := await self._consume(got)) is not None:
                    await self._drive(work.mend(got, error))
                if work.checkpoints is not None:
                    await self._drive(work.save(len(got)))
                lane.finish(len(got), began_s, now())
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
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is this loop that is to end
            return error
        except BaseException as error:
            return error
        return None

    async def _errand(self, errand: Errand) -> None:
        work = self._work
        work.lane.begun_s = work.clock.monotonic()
        try:
            if (error := await self._consume(errand.elements)) is not None:
                await self._drive(work.redo(errand.elements, error))
        except BaseException as failure:
            errand.future.set_exception(failure)
            if isinstance(failure, asyncio.CancelledError):
                raise
        else:
            errand.future.set_result(None)
        finally:
            work.lane.begun_s = None

    async def _drive(self, steps: Steps) -> None:
        answer: BaseException | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                return
            answer = None
            if isinstance(step, Sleep):
                await self._work.clock.asleep(step.seconds)
            elif isinstance(step, Call):
                answer = await self._consume(step.elements)
            else:
                try:
                    await asyncio.to_thread(step.fn)
                except asyncio.CancelledError:
                    raise
                except BaseException as error:
                    answer = error


Loop = ThreadLoop | TaskLoop


def _closings(work: Work) -> list[Callable[[], Any]]:
    """What has to be closed at the end, each whatever comes of the others."""
    closings = [] if work.callee.close is None else [work.callee.close]
    return [*closings, *(one.close for one in (work.checkpoints, work.letters) if one is not None)]


def _died(core: Core, work: Work, error: BaseException) -> None:
    """A consumer's loop cannot go on: nothing more is taken, since nobody would handle it."""
    work.error = error
    name = work.lane.name
    _logger.critical("ring %s, consumer %s cannot go on", work.ring, name, exc_info=error)
    core.close(f"ring {work.ring!r} takes no more elements: consumer {name!r} cannot go on: {error!r}")


def _closed_badly(work: Work, error: BaseException) -> None:
    work.error = work.error or error
    _logger.error("ring %s, consumer %s was closed, and raised", work.ring, work.lane.name, exc_info=error)
