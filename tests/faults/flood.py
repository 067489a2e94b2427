"""Clients without manners, as programs: `python -m tests.faults.flood ask|listen PLAN`, with the plan as JSON.

`ask` sends requests as fast as they are answered, many at once; `listen` opens streams of events and keeps them. Both
print what came of it as JSON; `listen` also says how many there are once all have tried.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, json

from holdfast.clock import SystemClock
from tests.faults.ledger import ClientLedger

CLOCK: Final = SystemClock()
TOGETHER: Final = 16
"""Requests that are sent on one connection before the first of them is answered."""
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")
_WAIT: Final = re.compile(rb"\r\nretry-after: (\d+)\r\n", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)
_OPENED_AT_ONCE: Final = 30


class Plan(Struct, kw_only=True):
    """What to do, and to whom."""

    url: str
    token: str
    method: str = "GET"
    path: str = "/events"
    body: str = ""
    connections: int
    seconds: float
    ledger: str = ""
    """A file for the ids of all jobs that were acked."""


class Asked(Struct, kw_only=True):
    """What came of requests."""

    statuses: dict[str, int]
    waits: int
    """Answers with a Retry-After."""
    took_s: float


class Listened(Struct, kw_only=True):
    """What came of streams."""

    opened: int
    """Those that had a first message."""
    refused: dict[str, int]
    kept: int
    """Those that were still open in the end, and had more than one message."""
    opened_s: float


def request_of(plan: Plan) -> bytes:
    """One request, as bytes."""
    host = urlsplit(plan.url).netloc
    head = f"{plan.method} {plan.path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {plan.token}\r\n"
    if plan.body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(plan.body)}\r\n"
    return f"{head}\r\n{plan.body}".encode()


async def ask(plan: Plan) -> Asked:
    """Every connection sends some requests together, and the next ones when these are answered."""
    statuses: Counter[str] = Counter()
    waits = 0
    made: list[str] = []
    began_s = CLOCK.monotonic()
    batch = request_of(plan) * TOGETHER

    async def one() -> None:
        nonlocal waits
        while CLOCK.monotonic() - began_s < plan.seconds:
            try:
                reader, writer = await _connected(plan)
                try:
                    while CLOCK.monotonic() - began_s < plan.seconds:
                        writer.write(batch)
                        for _ in range(TOGETHER):
                            status, is_to_wait, body = await _answer(reader)
                            statuses[status] += 1
                            waits += is_to_wait
                            if status == "201":
                                made.append(json.decode(body)["id"])
                finally:
                    writer.close()
            except (OSError, EOFError):
                statuses["cut off"] += 1

    await asyncio.gather(*(one() for _ in range(plan.connections)))
    if plan.ledger:
        ClientLedger(Path(plan.ledger)).ack(made)
    return Asked(statuses=dict(statuses), waits=waits, took_s=CLOCK.monotonic() - began_s)


async def listen(plan: Plan) -> Listened:
    """Open all, a few at a time, and keep them until the time is over."""
    refused: Counter[str] = Counter()
    messages: list[int] = []
    tasks: list[asyncio.Task[None]] = []
    door = asyncio.Semaphore(_OPENED_AT_ONCE)
    began_s = CLOCK.monotonic()

    async def one(number: int) -> None:
        try:
            async with door:
                reader, writer = await _connected(plan)
                writer.write(request_of(plan))
                head = await reader.readuntil(b"\r\n\r\n")
                status = _STATUS.findall(head)[0].decode()
                if status != "200":
                    refused[status] += 1
                    writer.close()
                    return
                await reader.readuntil(b"\n\n")
                messages[number] = 1
            while await reader.readuntil(b"\n\n"):
                messages[number] += 1
        except (OSError, EOFError):
            if messages[number]:
                messages[number] = -1
            else:
                refused["cut off"] += 1

    for number in range(plan.connections):
        messages.append(0)
        tasks.append(asyncio.create_task(one(number)))
    while sum(map(bool, messages)) + refused.total() < plan.connections and CLOCK.monotonic() - began_s < 120:
        await CLOCK.asleep(0.1)
    opened_s = CLOCK.monotonic() - began_s
    print(json.encode({"opened": sum(map(bool, messages)), **refused}).decode(), flush=True)
    await CLOCK.asleep(plan.seconds)
    found = Listened(
        opened=sum(map(bool, messages)),
        refused=dict(refused),
        kept=sum(n > 1 for n in messages),
        opened_s=opened_s,
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


async def _connected(plan: Plan) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    place = urlsplit(plan.url)
    return await asyncio.open_connection(place.hostname, place.port, limit=1 << 22)


async def _answer(reader: asyncio.StreamReader) -> tuple[str, bool, bytes]:
    """The next one: its status, whether it says how long to wait, and its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    body = await reader.readexactly(int(length[1]) if length else 0)
    return _STATUS.findall(head)[0].decode(), _WAIT.search(head) is not None, body


if __name__ == "__main__":
    what, text = sys.argv[1:]
    doing = {"ask": ask, "listen": listen}[what]
    print(json.encode(asyncio.run(doing(json.decode(text, type=Plan)))).decode(), flush=True)
