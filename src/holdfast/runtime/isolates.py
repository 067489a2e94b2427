"""A few processes of their own for jobs that may crash or hang, or that may have killed a worker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable

from holdfast.errors import TimeLimitExceeded, WorkerDied
from holdfast.ports import Clock, Delivery, Note
from holdfast.runtime import wire

_logger = logging.getLogger("holdfast.worker")

_START_LIMIT_S = 60.0
_SHORT_S = 1.0
_LEAVE_LIMIT_S = 5.0
_LARGEST = 64 * 1024 * 1024
SCARCE = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""What a machine answers that has no process to give, for want of ids, descriptors or memory: that may pass."""


class NoProcess(Exception):
    """The machine has no process to give, for want of descriptors or memory: no failure of the job's."""


class Isolates:
    """Runs one job at a time in each of up to `size` processes. A process that survives its job is used again."""

    def __init__(
        self,
        size: int,
        target: str,
        note: Callable[[Note], Awaitable[bool]],
        clock: Clock,
        transaction_limit_s: float,
        worker: str = "",
    ) -> None:
        self.size = size
        self._target = target
        self._note = note
        self._clock = clock
        self._limit_s = transaction_limit_s
        self._worker = worker
        self._places = asyncio.Semaphore(size)
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()

    async def run(
        self,
        delivery: Delivery,
        timeout_s: float | None,
        on_start: Callable[[], None],
        module: str = "",
        trace: str | None = None,
        *,
        is_message: bool = False,
        may_begin: Callable[[], Awaitable[bool]] | None = None,
    ) -> wire.Ended | None:
        """Run one attempt to its end. WorkerDied when the process died of it, TimeLimitExceeded when it was killed.

        NoProcess where none can be started, after a pause: until then its place is taken. `may_begin` is asked when the
        process is there, which may take a while; None where it says no.
        """
        async with self._places:
            on_start()  # it waits no longer: a slow start of the process is no reason to give it back
            start = wire.Start(delivery, module, self._limit_s, self._worker, trace, is_message)
            while True:
                child = await self._child()
                is_begun = False
                try:
                    is_begun = may_begin is None or await may_begin()
                finally:
                    if not is_begun:
                        self._idle.append(child)
                if not is_begun:
                    return None
                on_start()
                try:
                    return await self._run_in(child, start, timeout_s)
                except WorkerDied:
                    if child.has_heard:
                        raise
                    # It had died before it was handed the job, which is not to blame: another one.

    async def _run_in(self, child: _Child, start: wire.Start, timeout_s: float | None) -> wire.Ended:
        self._busy.add(child)
        is_well = False
        try:
            async with self._clock.timeout(timeout_s) as limit:
                ended = await child.run(start, self._note)
            is_well = True
        except TimeoutError:
            if limit.expired() and timeout_s is not None:
                raise TimeLimitExceeded(timeout_s) from None
            raise
        finally:
            self._busy.discard(child)
            if is_well:
                self._idle.append(child)
            else:
                await child.kill()
        return ended

    async def _child(self) -> _Child:
        """A process that waits, if one does and is still there; its death while idle is nobody's failure."""
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            await child.kill()
        try:
            return await _Child.start(self._target, self._clock)
        except OSError as error:
            if error.errno not in SCARCE:  # as when the program is gone: that does not pass
                raise
            _logger.error("no process can be started for isolated jobs, which are given back: %s", error)
            await self._clock.asleep(_SHORT_S)
            raise NoProcess(str(error)) from error

    async def close(self) -> None:
        """End every process: the idle ones by themselves, with their shutdown hooks, the others whatever they run."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(child.leave(self._clock) for child in idle))
        for child in list(self._busy):
            await child.kill()


class _Child:
    """One process, and the line to it."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._watching = asyncio.create_task(self._watch())
        self.has_heard = False
        """Whether it has the job that it was sent last."""

    @classmethod
    async def start(cls, target: str, clock: Clock) -> _Child:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "holdfast.runtime.isolated",
                    str(theirs.fileno()),
                    target,
                    json.dumps(sys.path),
                    pass_fds=(theirs.fileno(),),
                    stdin=asyncio.subprocess.DEVNULL,
                )
        except BaseException:
            ours.close()
            raise
        reader, writer = await asyncio.open_connection(sock=ours, limit=_LARGEST)
        child = cls(process, reader, writer)
        try:
            async with clock.timeout(_START_LIMIT_S):
                ready = await child._receive()
            if not isinstance(ready, wire.Ready) or ready.error:
                raise WorkerDied(f"an isolated process could not load {target!r}: {getattr(ready, 'error', ready)}")
        except BaseException as error:
            await child.kill()
            if isinstance(error, TimeoutError):
                raise WorkerDied(f"an isolated process did not start within {_START_LIMIT_S:g} s") from None
            raise
        return child

    async def run(self, start: wire.Start, note: Callable[[Note], Awaitable[bool]]) -> wire.Ended:
        self.has_heard = False
        await self._send(start)
        while True:
            match await self._receive():
                case wire.Heard():
                    self.has_heard = True
                case wire.Ended() as ended:
                    return ended
                case wire.Ask(asked):
                    await self._send(wire.Noted(await note(asked)))
                case wire.Ready():
                    raise WorkerDied("an isolated process lost its place")

    @property
    def is_alive(self) -> bool:
        """Whether the process is still there, and its end of the line open."""
        return self._process.returncode is None and not self._reader.at_eof()

    async def _watch(self) -> None:
        """End the line with the process: what its job has forked may hold the other end open for longer.

        What the process has sent before its end is still read.
        """
        await self._process.wait()
        line: socket.socket = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError):  # it is closed already
            line.shutdown(socket.SHUT_RD)

    async def leave(self, clock: Clock) -> None:
        """Let an idle process end by itself; not for long."""
        self._writer.close()
        try:
            async with clock.timeout(_LEAVE_LIMIT_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the process, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._writer.close()
        await self._process.wait()

    async def _send(self, message: wire.ToChild) -> None:
        try:
            self._writer.write(wire.encode(message) + b"\n")
            await self._writer.drain()
        except ConnectionError:
            raise WorkerDied(await self._how_it_ended()) from None

    async def _receive(self) -> wire.ToParent:
        try:
            line = await self._reader.readline()
        except ConnectionError:
            line = b""
        if not line.endswith(b"\n"):
            raise WorkerDied(await self._how_it_ended())
        return wire.decode_to_parent(line)

    async def _how_it_ended(self) -> str:
        code = await self._process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
        return f"the process that ran this job alone {how}"
