"""The Disruptor: what users write."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from holdfast.clock import SystemClock, chance
from holdfast.errors import CheckpointError, ConfigError, HoldfastError, RingClosed, RingStuck
from holdfast.policy import bounds
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Clock, RingReport
from holdfast.ring import lifetime
from holdfast.ring.checkpoints import checked_ring_name
from holdfast.ring.consumer import callee_of
from holdfast.ring.given_up import Decode, Encode, Hand
from holdfast.ring.lane import Alarm, Lane
from holdfast.ring.link import Link
from holdfast.ring.loops import Loop, TaskLoop, ThreadLoop
from holdfast.ring.meter import Meter
from holdfast.ring.places import Place, Wanted, checked_path
from holdfast.ring.producing import Producing, set_from_afar
from holdfast.ring.reprocess import Reprocessed, reprocess_file
from holdfast.ring.signals import CODE, Signals
from holdfast.ring.work import ErrorHandler, Work
from holdfast.runtime.guards.functions import is_async
from holdfast.runtime.machine import resident_bytes
from holdfast.runtime.rings import troubles
from holdfast.runtime.streams.progress import in_one_line

if TYPE_CHECKING:
    from holdfast.app import App

T = TypeVar("T")
C = TypeVar("C")

LARGEST: Final = 1 << 24
_FORKED: Final = (
    "this ring was made before a fork and had begun, or has checkpoints or consumers on an event loop, so it is the "
    "parent's: make one of your own here"
)


class Disruptor(Producing[T]):
    """A ring of elements between producers and consumers in one process.

    name: what it goes by in logs, metrics, dead letters and checkpoints.
    size: how many elements it holds at most, rounded up to a power of two [65,536]; a full ring holds producers back.
    consumer_error_handler: told (consumer, elements, error) of what was given up; what it raises is logged.
    app: an App, whose inbox takes the dead letters, whose store keeps checkpoints, and whose pages show the ring
        [None: nothing leaves the process but files].
    stuck_after: seconds at one batch after which a consumer counts as stuck [30].

    Consumers are registered before the first element is produced. Each runs on a thread of its own, or as a task where
    it is async; each sees every element, in order. Leaving `with ring:` closes it, and so does SIGTERM inside of it.
    """

    def __init__(
        self,
        *,
        name: str,
        size: int = 65_536,
        consumer_error_handler: ErrorHandler | None = None,
        app: App | None = None,
        stuck_after: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        bounds.whole("size", size, low=1)
        if size > LARGEST:
            raise ConfigError(f"size={size!r}: must be at most {LARGEST:,}")
        if consumer_error_handler is not None and (
            not callable(consumer_error_handler) or is_async(consumer_error_handler)
        ):
            raise ConfigError(f"consumer_error_handler={consumer_error_handler!r}: must be a function, and not async")
        own_clock = clock or (SystemClock() if app is None else app.clock)
        super().__init__(checked_ring_name("name", name), 1 << (size - 1).bit_length(), own_clock)
        self.stuck_after = bounds.length("stuck_after", stuck_after, above=0.0)
        self._app = app
        self._handler = consumer_error_handler
        self._works: dict[str, Work] = {}
        self._link: Link | None = None
        self._decoders: dict[str, Decode | None] = {}
        self._signals = Signals()
        self._meters: dict[str, Meter] = {"": Meter(self._clock.monotonic())}
        self._meter_lock = threading.Lock()
        lifetime.watch(self)
        # The tasks of async consumers do not hold the ring: one that nobody wants any more, and never began, ends them.
        weakref.finalize(self, self._core.close, f"ring {name!r} is gone").atexit = False

    # ---- consumers

    def register_consumer(
        self,
        consumer: C,
        *,
        name: str | None = None,
        after: Sequence[object] = (),
        retry: RetryPolicy | None = None,
        isolate: bool = False,
        batch_size: int = 1000,
        dead_letters: Wanted = None,
        encode: Encode | None = None,
        decode: Decode | None = None,
        checkpoint: Wanted = None,
        checkpoint_every: int = 1,
    ) -> C:
        """Add a consumer: an object with `consume(elements)` and maybe `close()`, or a function of the elements.

        name: what it goes by [its class's or function's]; dead letters and checkpoints are found by it.
        after: consumers registered before, or their names: it sees an element when all of these have finished it.
        retry: when a batch that failed is tried again [None: not at all].
        isolate: it may see elements again: a batch that keeps failing is halved until the bad elements are found, and
            only those are given up [False: the whole batch is].
        batch_size: it gets at most so many elements at a time [1000].
        dead_letters: where what was given up goes: True for the inbox of the app, or the path of a file of JSON lines
            [None: to the error handler and the log alone].
        encode, decode: from an element to a JSON value and back, for dead letters of elements that are not JSON.
        checkpoint: where it is remembered how far it is: True for the app's store, or a path [None: nowhere]. Then
            `produce` needs an offset.
        checkpoint_every: after so many batches [1].

        Returns the consumer. CheckpointError where a checkpoint is there and cannot be trusted.
        """
        callee = callee_of(consumer, name)
        own = checked_ring_name("name", callee.name)
        if self._has_begun:
            raise ConfigError(f"consumer {own!r}: register all consumers before the first element is produced")
        if own in self._works:
            raise ConfigError(f"two consumers are named {own!r}: give one of them another name=")
        if retry is not None and not isinstance(retry, RetryPolicy):
            raise ConfigError(f"retry={retry!r}: must be a RetryPolicy")
        if retry is not None and retry.attempt_timeout is not None and not callee.is_async:
            raise ConfigError("retry: attempt_timeout cannot stop a sync consumer; make it async, or leave it out")
        bounds.whole("batch_size", batch_size, low=1)
        bounds.whole("checkpoint_every", checkpoint_every, low=1)
        lane = Lane(own, [self._lane_of(one) for one in _sequence("after", after)], batch_size)
        for field, fn in (("encode", encode), ("decode", decode)):
            if fn is not None and not callable(fn):
                raise ConfigError(f"{field}={fn!r}: must be a function of an element")
        place = Place(self.name, own, self._app)
        letters = place.letters(dead_letters, encode)
        checkpoints = place.checkpoints(checkpoint, self._clock)
        loaded = None if checkpoints is None else checkpoints.load()
        if loaded is not None:
            lane.skip_to = lane.saved_offset = loaded.offset
            lane.batch = loaded.batch
        work = Work(
            ring=self.name,
            lane=lane,
            callee=callee,
            retry=retry,
            is_isolated=isolate,
            letters=letters,
            checkpoints=checkpoints,
            checkpoint_every=checkpoint_every,
            loaded=loaded,
            handler=self._handler,
            clock=self._clock,
            rng=chance,
        )
        loop: Loop = TaskLoop(self._core, work) if callee.is_async else ThreadLoop(self._core, work)
        self._core.join(lane)
        if isinstance(loop, TaskLoop) and loop.home is not None:
            loop.start()  # now, on this loop; the threads of the others come with the first element
        self._has_checkpoints = self._has_checkpoints or checkpoints is not None
        self._decoders[own] = decode
        self._meters[own] = Meter(self._clock.monotonic())
        self._works[own] = work
        self._loops.append(loop)
        return consumer

    def _lane_of(self, wanted: object) -> Lane:
        for name, work in self._works.items():
            if wanted == name or wanted is work.callee.consumer:
                return work.lane
        raise ConfigError(f"after={wanted!r}: must be a consumer that was registered before, or its name")

    @property
    def start_offset(self) -> int:
        """Where a source has to begin: the lowest offset that a consumer with a checkpoint has not done; 0 at first."""
        loaded = [work.loaded for work in self._works.values() if work.checkpoints is not None]
        return min((0 if one is None else one.offset for one in loaded), default=0)

    def reset_checkpoints(self) -> None:
        """Forget how far the consumers are, so that they begin anew; before the first element is produced."""
        if self._has_begun:
            raise ConfigError("reset_checkpoints: must be called before the first element is produced")
        for work in self._works.values():
            if work.checkpoints is not None:
                work.checkpoints.reset()
                work.loaded = None
                work.lane.skip_to = work.lane.saved_offset = None
                work.lane.batch = 0

    # ---- beginning and end

    def start(self) -> None:
        """Begin now, and not with the first element: from here on the app shows the ring, and its letters come back."""
        self._begin()

    def _begin(self) -> None:
        with self._begin_lock:
            if self._has_begun:
                return
            if self._core.why_closed:
                raise RingClosed(self._core.why_closed)
            if not self._works:
                raise ConfigError(f"ring {self.name!r} has no consumer: register them before elements are produced")
            self._start_loops()
            if self._app is not None and self._link is None:  # an interrupt may have come after it
                link = Link(self._app, self.name, self.stats, self._hands())
                link.start()
                self._link = link
            lifetime.keep(self)
            self._has_begun = True

    def _start_loops(self) -> None:
        for loop in self._loops:
            if not loop.is_started:
                loop.start()

    def _hands(self) -> dict[str, Hand]:
        def hand_of(lane: Lane) -> Hand:
            return Hand(lambda elements: self._core.hand(lane, elements).result(), self._decoders[lane.name])

        return {name: hand_of(work.lane) for name, work in self._works.items()}

    def reprocess(self, path: str | Path) -> Reprocessed:
        """Hand the dead letters of a file of JSON lines to the consumers that they died in, and say what came of it.

        Those that fail again are in the file again; a crash on the way leaves all that was not finished for next time.
        """
        if self._is_on_a_loop():
            raise HoldfastError(
                "this method blocks the loop that its consumers run on; await asyncio.to_thread(ring.reprocess, path)"
            )
        if self._is_own():
            raise HoldfastError("a consumer cannot reprocess letters of its own ring: it would wait for itself")
        self._begin()
        return reprocess_file(checked_path("path", path), ring=self.name, consumers=self._hands(), clock=self._clock)

    def close(self, timeout: float | None = None) -> None:
        """Take no more elements, finish all that were taken, save the checkpoints and close the consumers.

        Producers that wait for room are told RingClosed. timeout: seconds to wait for the consumers [None: as long as
        it takes]; then RingStuck, which names those that are not through and how much they have before them. They go
        on, and so may `close`. Called by a consumer of the ring it waits for nothing.

        CheckpointError, or what else kept a consumer from coming to its end, is raised here.
        """
        limit_s = None if timeout is None else bounds.length("timeout", timeout)
        if self._is_on_a_loop():
            raise HoldfastError("this method blocks the loop that its consumers run on; await aclose() instead")
        ended = Alarm()
        if self._closing(ended.set):
            self._clock.wait(ended, limit_s)
            self._closed(timeout)

    async def aclose(self, timeout: float | None = None) -> None:
        """The same as `close` for async code."""
        limit_s = None if timeout is None else bounds.length("timeout", timeout)
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        if self._closing(lambda: set_from_afar(ended, loop)):
            with suppress(TimeoutError):
                async with self._clock.timeout(limit_s):
                    await ended.wait()
            await asyncio.to_thread(self._closed, timeout)

    def _closing(self, on_end: Callable[[], object]) -> bool:
        """Begin to close; say whether the caller can wait for it."""
        with self._begin_lock:
            self._start_loops()  # each consumer is closed on its own thread, also where nothing has come
        self._core.close(f"ring {self.name!r} is closed")
        if self._is_own():
            return False
        self._core.tell_end(on_end)
        return True

    def _closed(self, timeout: float | None) -> None:
        left = {work.lane.name: self._core.left(work.lane) for work in self._works.values() if not work.lane.has_ended}
        if left:
            some = ", ".join(f"{name!r} ({n:,} left)" for name, n in left.items())
            raise RingStuck(f"ring {self.name!r} was not through after {timeout:g} s: {some}", left)
        lifetime.let_go(self)
        link, self._link = self._link, None
        if link is not None:
            link.close()
        for work in self._works.values():
            error, work.error = work.error, None
            if error is not None:
                raise error

    def __enter__(self) -> Disruptor[T]:
        self._signals.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.close()
        except Exception:
            raise
        except BaseException:  # a second Ctrl-C or SIGTERM: nothing is waited for any more
            lifetime.let_go(self)
            raise
        finally:
            self._signals.leave()

    async def __aenter__(self) -> Disruptor[T]:
        self._signals.aenter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception:
            raise
        except BaseException:
            lifetime.let_go(self)
            raise
        finally:
            self._signals.leave()
        if self._signals.has_come and isinstance(error, asyncio.CancelledError):
            raise SystemExit(CODE) from None

    # ---- looking

    def stats(self) -> RingReport:
        """How it is doing: exact counts, at any time and from any thread."""
        with self._meter_lock:
            now_s = self._clock.monotonic()
            produced, used, blocked = self._core.look()
            return RingReport(
                name=self.name,
                size=self.size,
                used=used,
                produced=produced,
                rate_per_s=self._meters[""].rate(now_s, produced),
                blocked=blocked,
                memory_bytes=resident_bytes(),
                is_closing=bool(self._core.why_closed),
                consumers=tuple(
                    work.lane.report(
                        produced, now_s, self._meters[name].rate(now_s, work.lane.processed), self.stuck_after
                    )
                    for name, work in list(self._works.items())
                ),
            )

    def check(self) -> None:
        """Raise RingStuck, with their names, where consumers have been at one batch for longer than `stuck_after`.

        CheckpointError where none are, and a checkpoint cannot be saved: a restart would repeat what came since.
        """
        report = self.stats()
        stuck = [one for one in report.consumers if one.is_stuck]
        if stuck:
            some = ", ".join(
                f"{one.name!r} has been at batch {one.batch} for {one.running_s:.0f} s"
                + (f" ({one.doing})" if one.doing else "")
                for one in stuck
            )
            raise RingStuck(f"ring {self.name!r}: {some}", {one.name: one.lag for one in stuck})
        if unsaved := list(troubles(report)):
            raise CheckpointError(in_one_line(unsaved))

    def _disown(self) -> None:
        """For the child of a fork: consumers that have begun are the parent's, so it takes no elements here.

        Before that it is the child's own as well; but a checkpoint has one owner, and an event loop one process.
        """
        self._begin_lock, self._meter_lock = threading.Lock(), threading.Lock()
        if not self._has_checkpoints and not any(loop.is_started for loop in self._loops):
            self._core.renew_lock()
            return
        self._core.disown(_FORKED)
        self._loops = []
        self._link = None  # its thread is the parent's

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ring can be neither copied nor pickled: its consumers run in this process")

    def __repr__(self) -> str:
        return f"<Disruptor {self.name!r} {len(self._works)} consumers>"


def _sequence(field: str, value: Any) -> Sequence[Any]:
    if isinstance(value, list | tuple):
        return value
    raise ConfigError(f"{field}={value!r}: must be a list of consumers, or of their names")
