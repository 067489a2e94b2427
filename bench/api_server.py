"""The web servers of bench-api, each in a process of its own: ours, and a bare FastAPI route (api_bare.py).

Both are uvicorn on asyncio with h11, which is what `pip install 'holdfast[web]'` brings.
"""

from __future__ import annotations

import asyncio
import http.client
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import NamedTuple

from jobs_timing import LOG_SHOWN, PYTHON, Failed, started

UP_WITHIN_S = 60.0
PLENTY = "1000000/second"
"""The limits on requests are checked as ever, and never reached: not they are to be measured."""
_numbers = count(1)


# ---- inside its process


def serve(port: int) -> None:
    """The API of api_tasks:app, as `holdfast serve` runs it."""
    from api_tasks import app

    from holdfast.ops.api import ApiSettings
    from holdfast.ops.api.serving import ApiServer, listen

    settings = ApiSettings(rate=PLENTY, submit_rate=PLENTY, read_rate=PLENTY)

    async def run() -> None:
        server = ApiServer(app, settings, listen("127.0.0.1", port))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
        await server.run()

    asyncio.run(run())
    app.close()


# ---- outside


class Serving(NamedTuple):
    """A server that runs."""

    port: int
    pid: int


@contextmanager
def serving(environment: Mapping[str, str], folder: Path, module: str = "api_server") -> Iterator[Serving]:
    """A server, by default ours, which has answered a first request."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    log = folder / f"server-{next(_numbers)}.log"
    command = [str(PYTHON), "-m", "jobs_call", module, "serve", f'{{"port": {port}}}']
    with started(command, environment, log) as process:
        began = time.monotonic()
        while not _answers(port):
            if process.poll() is not None or time.monotonic() - began > UP_WITHIN_S:
                raise Failed(f"{module} does not answer: {log.read_text(errors='replace')[-LOG_SHOWN:]}")
            time.sleep(0.05)
        yield Serving(port, process.pid)


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=UP_WITHIN_S)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
