"""What a running ring has to do with its app's store: it reports there, and takes up its letters that are replayed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import chance
from holdfast.errors import Invalid
from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.classify import classify
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import RingReport
from holdfast.redact import error_in_words
from holdfast.ring.given_up import Hand, Unhandled
from holdfast.ring.letters import KEEP_S
from holdfast.runtime.outage import AGAIN
from holdfast.runtime.payload import Arguments
from holdfast.runtime.ring_letters import RingLetter, read_ring_letter
from holdfast.runtime.ring_origins import QUEUE
from holdfast.runtime.rings import task_of
from holdfast.runtime.runner import Room
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.worker import Exit, Worker, WorkerSettings
from holdfast.types import FailureContext, Snooze

if TYPE_CHECKING:
    from holdfast.app import App

_logger = logging.getLogger("holdfast.ring")

_ONCE: Final = RetryPolicy(max_retries=0)
"""The consumer has a retry policy of its own."""
_IN_FLIGHT: Final = 2
"""So many letters of one consumer are here at a time: one that it is at, and the next. The others wait in the store, so
that a consumer which is stuck holds up no other, and another process may take them."""
_GRACE_S: Final = 5.0
_LAST_WORDS_S: Final = 10.0
"""So long at most `close` waits for a store that does not answer."""
_UNTIL_NEXT_S: Final = 2.0
"""So long a letter waits that a closing ring has not handled, which may go on closing for a while."""
_LOOK_S: Final = 0.05


class Link:
    """A small worker of the app, on a thread with an event loop of its own, for as long as the ring runs.

    Its heartbeats carry the ring's report. It claims letters of this ring alone, and hands each to its consumer; one
    that fails again is buried again, with what it failed with. Without a store the ring works on: the link goes on
    trying. Keep the consumers until `close` has returned, or have their hands raise Unhandled: such letters wait.
    """

    def __init__(
        self, app: App, ring_name: str, report: Callable[[], RingReport], consumers: Mapping[str, Hand]
    ) -> None:
        self._app = app
        self._name = ring_name
        self._report = report
        self._specs = _Specs(app, ring_name, consumers)
        threads = _IN_FLIGHT * max(len(consumers), 1)
        self._room = Room(concurrency=2 * threads, threads=threads)  # never alone: a death is no single letter's
        self._thread = threading.Thread(target=self._run, name=f"holdfast-ring-{ring_name}", daemon=True)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._is_closing = False
        self._closing = asyncio.Event()
        self._is_ill = False

    def start(self) -> None:
        """Begin; returns at once, also while the store is away."""
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Claim no more, settle what the consumers are at, and take leave; never raises for a store that is away.

        timeout: seconds to wait at most. [None: for as long as a consumer is at a letter, and then a few seconds.] What
        is not settled by then is once it can be, while the process lives.
        """
        with self._lock:
            self._is_closing = True
            if self._loop is not None:
                with suppress(RuntimeError):  # it has ended
                    self._loop.call_soon_threadsafe(self._stop)
        if not self._thread.is_alive():
            return
        if timeout is not None:
            self._thread.join(timeout)
            return
        idle_s = 0.0
        while self._thread.is_alive() and idle_s < _LAST_WORDS_S:
            self._thread.join(_LOOK_S)
            idle_s = 0.0 if self._specs.running else idle_s + _LOOK_S

    # ---- on its own thread

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            if self._is_closing:
                return
        tries = 0
        while not self._is_closing:
            self._worker = worker = Worker(
                self._app.store,
                self._specs,
                settings=WorkerSettings(queues=(f"{QUEUE}{self._name}",), room=self._room, grace_s=_GRACE_S),
                clock=self._app.clock,
                rings=self._reports,
            )
            try:
                code = await worker.run()
            except Exception as error:  # whatever it is, the ring must not stop for it
                if self._closing.is_set():  # at the end of a process that has not closed it no executor works any more
                    why = error_in_words(error)
                    _logger.warning("the ring %s could not take leave, and is shown for a while: %s", self._name, why)
                else:
                    _logger.exception("the ring %s has no link to its store, and tries again", self._name)
                tries += 1
            else:
                tries = 0 if code is Exit.DRAINED else tries + 1
            await self._see_out()
            if not self._is_closing:
                await self._rest(AGAIN.delay(max(tries, 1), rng=chance))

    def _stop(self) -> None:
        self._closing.set()
        if self._worker is not None:
            self._worker.stop()

    async def _rest(self, seconds: float) -> None:
        """Wait, unless it is closed meanwhile."""
        with suppress(TimeoutError):
            async with self._app.clock.timeout(seconds):
                await self._closing.wait()

    async def _see_out(self) -> None:
        """A letter that a consumer is still at is settled when it is through, also beyond the end of its worker."""
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*rest, return_exceptions=True)

    def _reports(self) -> tuple[RingReport, ...]:
        """How the ring is; a heart that has no answer beats all the same."""
        try:
            report = self._report()
        except Exception:  # nothing of the ring may end its lease
            if not self._is_ill:
                _logger.exception("the ring %s cannot say how it is", self._name)
            self._is_ill = True
            return ()
        self._is_ill = False
        return (report,)


# ---------------------------------------------------------------- consumers as tasks


class _Specs(Mapping[str, TaskSpec]):
    """The ring's consumers as tasks, and the app's own tasks, whose orphans this worker may have to judge.

    Every name of this ring is there: a letter whose consumer is not is told so, and does not wait for a deploy.
    """

    def __init__(self, app: App, ring: str, consumers: Mapping[str, Hand]) -> None:
        self._app = app
        self._prefix = task_of(ring, "")
        self._consumers = consumers
        self.running: set[object] = set()
        """One for each letter that a consumer is at."""
        self._known = dict(app.specs) | {task_of(ring, name): self._spec(task_of(ring, name)) for name in consumers}

    def __getitem__(self, task: str) -> TaskSpec:
        if task not in self._known and task.startswith(self._prefix):
            return self._spec(task)
        return self._known[task]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def _spec(self, task: str) -> TaskSpec:
        def hand_over(letter: RingLetter) -> Snooze | None:
            return self._hand_over(task, letter)

        return TaskSpec(
            name=task,
            fn=hand_over,
            is_async=False,
            takes_context=False,
            arguments=_Letters(),
            queue="",
            priority=0,
            retry=_ONCE,
            breaker=None,
            breaker_config=BreakerConfig(),
            rates={},
            budget=None,
            budget_config=BudgetConfig(),
            timeout_s=None,
            is_isolated=False,
            waits_for_breaker=True,
            has_dead_letters=True,
            dead_letter_keep_s=KEEP_S,
            result_keep_s=self._app.keep_s,
            classify=classify,
            context=FailureContext(task),
            in_flight=_IN_FLIGHT,
        )

    def _hand_over(self, task: str, letter: RingLetter) -> Snooze | None:
        name = task.removeprefix(self._prefix)
        origin = letter.origin
        if task_of(origin.ring, origin.consumer) != task:
            raise Invalid(f"the letter is of {task_of(origin.ring, origin.consumer)}, and not of {task}")
        hand = self._consumers.get(name)
        if hand is None:
            known = ", ".join(sorted(self._consumers)) or "none at all"
            raise Invalid(f"the ring {origin.ring} has no consumer {name!r} any more; it has {known}")
        turn = object()
        self.running.add(turn)
        try:
            hand(letter.elements)
        except Unhandled as error:
            return Snooze(_UNTIL_NEXT_S, str(error))  # whoever runs the ring next takes it up
        finally:
            self.running.discard(turn)
        return None


class _Letters(Arguments):
    """From a payload to the letter that it is."""

    def __init__(self) -> None:
        super().__init__(_shape, skip_first=False)

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (read_ring_letter(payload),), {}


def _shape(origin: dict[str, Any], elements: list[Any], unreadable: list[int] | None = None) -> None:
    """What the payload of a ring's letter looks like; nothing is called with it."""
