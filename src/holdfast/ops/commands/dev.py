"""The page of `holdfast dev`: where it is, and how a worker process gets it beside its work."""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

from msgspec import Struct

from holdfast.errors import ConfigError
from holdfast.ops.commands.output import hint
from holdfast.ops.extras import wanted
from holdfast.runtime import process
from holdfast.runtime.worker import Worker

_logger = logging.getLogger("holdfast.dev")
_HOST: Final = "127.0.0.1"
_PORT: Final = 8080
_TRIED: Final = 20


class DevPage(Struct, frozen=True):
    """A port of this machine for the API and the page."""

    port: int
    module: str = __name__
    """What the worker process runs."""

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{_HOST}:{self.port}/"

    @property
    def arguments(self) -> tuple[str, ...]:
        """What the worker process is told."""
        return (str(self.port),)


def find_page(port: int | None) -> DevPage | None:
    """A page at this port, or at the first free one from 8080 on; None, and a line that says why, without the extra."""
    try:
        with wanted("web"):
            from holdfast.ops.api.page_files import NOT_BUILT, is_built  # noqa: PLC0415
            from holdfast.ops.api.serving import listen  # noqa: PLC0415
    except ConfigError as error:
        hint(f"no page    {error}")
        return None
    if not is_built():
        hint(f"no page    {NOT_BUILT}; the API alone is at its address")
    if port is not None:
        listen(_HOST, port).close()
        return DevPage(port)
    for free in range(_PORT, _PORT + _TRIED):
        try:
            listen(_HOST, free).close()
        except ConfigError:
            continue
        return DevPage(free)
    raise ConfigError(f"no port from {_PORT} to {_PORT + _TRIED - 1} is free: give one by --port")


def main() -> None:
    """A worker process with the API and the page beside its work: `python -m …dev TARGET SETTINGS PORT`."""
    process.main(_beside)


def _beside(app: Any, worker: Worker) -> process.Companion | None:
    from holdfast.ops.api.serving import ApiServer, listen  # noqa: PLC0415 - the command itself does not need them
    from holdfast.ops.api.settings import ApiSettings  # noqa: PLC0415

    try:
        listening = listen(_HOST, int(sys.argv[3]))
    except ConfigError as error:  # somebody took it in the meantime; the jobs are to be run all the same
        _logger.warning("there is no page: %s", error)
        return None
    return ApiServer(app, ApiSettings(allows_simulation=True), listening, worker=worker)


if __name__ == "__main__":
    main()
