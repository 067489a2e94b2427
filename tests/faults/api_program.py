"""What `holdfast serve` does, with settings that it has no options for: `python -m … TOKENS '{"max_clients": 900}'`."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

from msgspec import json

from holdfast.ops.api.serving import ApiServer, address_of, listen
from holdfast.ops.api.settings import ApiSettings
from holdfast.ops.api.tokens import TokenFile
from tests.faults.shop import app


async def serve(tokens: str, settings: dict[str, Any]) -> None:
    """Until SIGTERM; says where it is once it answers."""
    listening = listen("127.0.0.1", 0)
    server = ApiServer(app, ApiSettings(tokens=TokenFile(tokens), **settings), listening)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    start = json.encode({"kind": "start", "url": address_of("127.0.0.1", listening)})
    await server.run(lambda: print(start.decode(), flush=True))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], json.decode(sys.argv[2])))
    app.close()
