"""The process that runs isolated jobs, one at a time: `python -m holdfast.runtime.isolated FD TARGET PATHS`."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import importlib
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import SystemClock, chance
from holdfast.errors import ConfigError, UnknownTask
from holdfast.policy.judge import Bury, judge
from holdfast.ports import Clock, Delivery, Note, Settlement, Store, Transaction
from holdfast.runtime import wire
from holdfast.runtime.context import JobContext
from holdfast.runtime.counts import completion
from holdfast.runtime.current import RUNNING
from holdfast.runtime.desk import check_transactions
from holdfast.runtime.logs import LOG_FORMAT, set_up_logs
from holdfast.runtime.run import encoded, storable
from holdfast.runtime.spec import TaskSpec
from holdfast.runtime.streams.spec import StreamSpec
from holdfast.runtime.this_process import end_if_forked
from holdfast.runtime.tracing import take_up
from holdfast.types import Change, Discard, Snooze

_PR_SET_PDEATHSIG = 1


def load(target: str) -> Any:
    """The object that `module:name` or `file.py:name` stands for; the current folder is importable."""
    module_name, _, attribute = target.partition(":")
    folder = os.getcwd()
    if module_name.endswith(".py"):
        path = Path(module_name).resolve()
        folder, module_name = str(path.parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found: Any = importlib.import_module(module_name)
    for name in (attribute or "app").split("."):
        found = getattr(found, name)
    return found


class Child:
    """Runs what the worker sends, and is gone when the worker is."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)  # a program that a job starts must not hold the line when this process is gone
        self._pid = os.getpid()
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._starts: queue.SimpleQueue[wire.Start | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._clock = SystemClock()
        self._is_running = False

    def serve(self, target: str) -> None:
        """Load the tasks and run jobs until the worker closes the line."""
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            app = load(target)
            specs: Mapping[str, TaskSpec] = app.specs
            streams: Mapping[str, StreamSpec] = app.stream_specs
        except BaseException as error:
            self._send(wire.Ready(f"{type(error).__name__}: {error}"))
            raise
        hooks = app.hooks
        with asyncio.Runner() as runner:
            try:
                runner.run(hooks.start())
            except BaseException as error:
                self._send(wire.Ready(f"a startup hook raised {type(error).__name__}: {error}"))
                raise
            self._send(wire.Ready())
            while (start := self._starts.get()) is not None:
                ended = self._run(runner, specs, streams, app.store, start)
                self._is_running = False
                self._send(ended)
            runner.run(hooks.stop())

    def note(self, note: Note) -> bool:
        """Ask the worker to remember it."""
        with self._lock:
            self._send(wire.Ask(note))
            return self._answers.get()

    async def anote(self, note: Note) -> bool:
        """The same without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(None, self.note, note)

    def _listen(self) -> None:
        # It is reset, and not only closed, where the worker has not read all that we sent.
        with self._socket.makefile("rb") as lines, suppress(ConnectionError):
            for line in lines:
                message = wire.decode_to_child(line)
                if isinstance(message, wire.Start):
                    self._is_running = True
                    self._send(wire.Heard())
                    self._starts.put(message)
                else:
                    self._answers.put(message.is_held)
        if self._is_running:
            os._exit(0)  # the worker is gone: what runs here belongs to nobody
        self._starts.put(None)

    def _send(self, message: wire.ToParent) -> None:
        with self._sending:  # a thread that the job has left behind may still be asking
            try:
                self._socket.sendall(wire.encode(message) + b"\n")
            except ConnectionError:
                os._exit(0)  # the worker is gone, and nobody else wants to know

    def _run(
        self,
        runner: asyncio.Runner,
        specs: Mapping[str, TaskSpec],
        streams: Mapping[str, StreamSpec],
        store: Store,
        start: wire.Start,
    ) -> wire.Ended:
        delivery = start.delivery
        desk = _ChildDesk(self, store, delivery, start.limit_s, self._clock)
        if delivery.task not in (streams if start.is_message else specs) and start.module:
            importlib.import_module(start.module)
        spec = _stream_task(streams, delivery.task) if start.is_message else specs.get(delivery.task)
        began_s = self._clock.monotonic()
        try:
            if spec is None:
                raise UnknownTask(f"no task named {delivery.task!r}")
            desk.spec = spec
            if spec.given is not None:
                delivery = spec.given.unpack(delivery)
            args, kwargs = spec.call_of(delivery)
            if spec.takes_context:
                args = (JobContext(delivery, desk), *args)
            context = copy_context()  # what one job sets, the next does not see
            context.run(RUNNING.set, (delivery, start.worker))
            context.run(take_up, start.trace)
            value = context.run(spec.fn, *args, **kwargs)
            if spec.is_async:
                value = runner.run(value, context=context)
            end_if_forked(self._pid)
        except BaseException as error:
            end_if_forked(self._pid, error)
            if spec is None:
                raise
            if isinstance(error, KeyboardInterrupt):
                os._exit(1)
            return _failed(spec, delivery, error, self._clock.monotonic() - began_s, is_settled=desk.is_settled)
        if isinstance(value, Snooze):
            return wire.Ended(snooze_s=value.seconds, snooze_why=value.why, is_settled=desk.is_settled)
        outputs = spec.given.pack_outputs(delivery) if spec.given is not None else b""
        if isinstance(value, Discard):
            return wire.Ended(discard=storable(str(value.reason)), is_settled=desk.is_settled, outputs=outputs)
        result, reason = encoded(value)
        return wire.Ended(result=result, reason=reason, is_settled=desk.is_settled, outputs=outputs)


def _stream_task(streams: Mapping[str, StreamSpec], name: str) -> TaskSpec | None:
    return streams[name].task if name in streams else None


class _ChildDesk:
    """What a context in this process asks of the worker."""

    def __init__(self, child: Child, store: Store, delivery: Delivery, limit_s: float, clock: Clock) -> None:
        self.note = child.note
        self.anote = child.anote
        self.is_settled = False
        self.spec: TaskSpec | None = None
        self._store = store
        self._delivery = delivery
        self._limit_s = limit_s
        self._clock = clock
        self._began_s = clock.monotonic()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Writes that commit together with the job's completion, from this process."""
        check_transactions(self._store)
        keep_s = self.spec.result_keep_s if self.spec else None
        settlement = Settlement(
            id=self._delivery.id,
            token=self._delivery.token,
            change=Change.COMPLETE,
            keep_s=keep_s,
            result=b"null",
            elapsed_s=self._delivery.elapsed_s,
        )
        run_s = self._clock.monotonic() - self._began_s
        counts = completion(self._delivery.claimed_at + run_s, self._delivery.task)  # the store's clock, or just before
        block: AbstractContextManager[Transaction] = self._store.transaction(settlement, self._limit_s, counts)
        with block as tx:
            yield tx
        self.is_settled = True


def _failed(spec: TaskSpec, delivery: Delivery, error: BaseException, run_s: float, *, is_settled: bool) -> wire.Ended:
    failure = spec.classify(error, spec.context)
    verdict = judge(spec.retry, failure, delivery.retries, delivery.elapsed_s + run_s, chance)
    is_buried = isinstance(verdict, Bury)
    return wire.Ended(
        is_settled=is_settled,
        failure_type=failure.type,
        severity=failure.severity,
        retry_after=failure.retry_after,
        texts={
            "error_name": storable(failure.error_name),
            "message": storable(failure.message),
            "traceback": storable(failure.traceback),
            "fingerprint": failure.fingerprint,
        },
        reason=verdict.reason if isinstance(verdict, Bury) else "",
        delay_s=None if is_buried else verdict.delay_s,  # type: ignore[union-attr]
    )


def main() -> None:
    """Serve the worker on the other end of the socket."""
    faulthandler.enable()  # what crashes in native code says where
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker decides; a terminal tells the whole group
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    fd, target, paths = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]  # what the worker can import, so can we
    if not target:
        raise ConfigError("isolated jobs need an app that can be imported")
    if os.environ.get(LOG_FORMAT):  # only a worker of the command line says so; elsewhere logging is the program's own
        set_up_logs()
    Child(fd).serve(target)


if TYPE_CHECKING:
    from holdfast.runtime.context import Desk

    _contract: type[Desk] = _ChildDesk

if __name__ == "__main__":
    main()
