"""The clients of bench-api: HTTP/1.1 over plain sockets, so light that the server is the bottleneck.

Each function runs in a process of its own (jobs_call.py). What a client costs is told with what it measured.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HOST = "127.0.0.1"
OK, CREATED = 200, 201
WARM_UP = 0.1
"""So many of the requests are sent before the clock starts, or 100 where that is less."""
PATIENCE_S = 120.0
_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


def request(method: str, target: str, body: bytes = b"") -> bytes:
    """The bytes of a request on a connection that stays open."""
    head = f"{method} {target} HTTP/1.1\r\nHost: {HOST}\r\nAccept: application/json\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


def size_of(answer: bytes | bytearray) -> int | None:
    """How many bytes the first answer takes; None while its head is not whole. All of ours say their length."""
    end = answer.find(_END)
    if end < 0:
        return None
    head = bytes(answer[:end]).lower()
    at = head.find(_LENGTH)
    if at < 0:
        raise RuntimeError(f"an answer without a length: {head[:200]!r}")
    length = head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]
    return end + len(_END) + int(length)


# ---- submitting


class _Caller(asyncio.Protocol):
    """Sends a request, and the next one when its answer is there."""

    def __init__(self, sent: bytes, answered: Callable[[int], bool]) -> None:
        self._sent = sent
        self._answered = answered
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._sent)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        size = size_of(self._buffer)
        if size is None or len(self._buffer) < size:
            return
        status = int(self._buffer[9:12])
        del self._buffer[:size]
        if self._answered(status):
            self._transport.write(self._sent)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._answered(0)  # one that is missing is noticed


def submit(port: int, requests: int, connections: int) -> dict[str, float]:
    """POST /jobs so often over so many connections: requests a second, and the part of a core that this took here."""
    arguments = {"order": 7, "cents": 1999, "note": "of the bench"}
    body = json.dumps({"task": "charge", "arguments": arguments, "tenant": "acme", "priority": 3}).encode()

    async def work() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        warm = min(100, int(requests * WARM_UP))
        left, began, used = requests + warm, 0.0, 0.0

        def answered(status: int) -> bool:
            nonlocal left, began, used
            if done.done():
                return False
            if status != CREATED:
                done.set_exception(RuntimeError(f"POST /jobs was answered with {status or 'the end of a connection'}"))
                return False
            left -= 1
            if left == requests:
                began, used = time.perf_counter(), _cpu_s()
            if left == 0:
                done.set_result(time.perf_counter())
            return left > 0

        sent = request("POST", "/jobs", body)
        for _ in range(connections):
            await loop.create_connection(lambda: _Caller(sent, answered), HOST, port)
        async with asyncio.timeout(PATIENCE_S):
            ended = await done
        took = ended - began
        return {"rate": requests / took, "client": (_cpu_s() - used) / took, "sent": requests + warm}

    return asyncio.run(work())


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# ---- asking


class Line:
    """One blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, sent: bytes) -> tuple[int, bytes]:
        """Status, and the whole answer with its head."""
        self._socket.sendall(sent)
        buffer = bytearray()
        while (size := size_of(buffer)) is None or len(buffer) < size:
            data = self._socket.recv(1 << 20)
            if not data:
                raise RuntimeError("the server closed the connection")
            buffer += data
        return int(buffer[9:12]), bytes(buffer)

    def close(self) -> None:
        self._socket.close()


def call_ms(
    ports: Sequence[int], laps: Sequence[Sequence[str]], calls: int, pause_s: float
) -> list[dict[str, list[float]]]:
    """Milliseconds of each of so many calls of each target, at each server.

    Servers and targets take turns, so that all meet the same machine. What a server remembers for less than the pause
    between two laps has to be looked up again in the next one. Each call has a connection that was used before.
    """
    times: list[dict[str, list[float]]] = [{target: [] for lap in laps for target in lap} for _ in ports]
    for turn in range(calls + 1):  # the first is for warming up
        for lap in laps:
            time.sleep(pause_s)
            took = _lap_ms(ports, lap)
            if turn:
                for of_server, of_lap in zip(times, took, strict=True):
                    for target, one in of_lap.items():
                        of_server[target].append(one)
    return times


def _lap_ms(ports: Sequence[int], targets: Sequence[str]) -> list[dict[str, float]]:
    times: list[dict[str, float]] = [{} for _ in ports]
    lines = [Line(port) for port in ports]
    for line in lines:
        line.ask(request("GET", "/health/live"))
    for target in targets:
        sent = request("GET", target)
        for line, of_server in zip(lines, times, strict=True):
            asked = time.perf_counter()
            status, answer = line.ask(sent)
            of_server[target] = (time.perf_counter() - asked) * 1e3
            if status != OK:
                raise RuntimeError(f"GET {target} was answered with {status}: {answer[-500:]!r}")
    for line in lines:
        line.close()
    return times


# ---- listening


def listen(port: int, clients: int, said: str) -> None:
    """Read that many streams of events until killed; the file says how many are open and what they have heard."""

    def tell(heard: list[list[int]]) -> None:
        figures = {"open": sum(one[0] for one in heard), "events": sum(one[1] for one in heard)}
        Path(said).write_text(json.dumps(figures))

    async def client(heard: list[int]) -> None:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(request("GET", "/events"))
        if b" 200 " not in await reader.readline():
            raise RuntimeError("GET /events was refused")
        while data := await reader.read(1 << 16):
            heard[0] |= 1
            heard[1] += data.count(b"event: ")

    async def work() -> None:
        heard = [[0, 0] for _ in range(clients)]
        tasks = [asyncio.create_task(client(one)) for one in heard]
        while all(not task.done() for task in tasks):
            await asyncio.sleep(0.2)
            tell(heard)
        for task in tasks:
            if task.done():
                task.result()
        raise RuntimeError("the server ended a stream")

    asyncio.run(work())
