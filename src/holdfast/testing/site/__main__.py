"""The site as a program: `python -m holdfast.testing.site --pages 5000 --faults not-found=0.02,slow=0.01`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from holdfast.errors import ConfigError
from holdfast.testing.site.fates import Kind
from holdfast.testing.site.plan import Burst, Site
from holdfast.testing.site.server import SiteServer, serve


def main() -> int:
    """Serve until SIGTERM or Ctrl-C; the first line on stdout is JSON and says where."""
    options = _options()
    try:
        site = msgspec.json.decode(options.site, type=Site) if options.site else _site(options)
    except (ConfigError, msgspec.DecodeError) as error:
        print(error, file=sys.stderr)  # noqa: T201 - a program
        return 2
    asyncio.run(_main(site, options))
    return 0


async def _main(site: Site, options: argparse.Namespace) -> None:
    def ready(server: SiteServer) -> None:
        line = {"ports": server.ports, "urls": server.bases, "pid": os.getpid(), "log": str(options.log)}
        print(msgspec.json.encode(line).decode(), flush=True)  # noqa: T201 - a program

    loop = asyncio.get_running_loop()
    work = loop.create_task(serve(site, options.log, port=options.port, is_buffered=options.buffered, ready=ready))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    if options.while_stdin:
        loop.add_reader(0, lambda: None if os.read(0, 4096) else work.cancel())
    try:
        await work
    except asyncio.CancelledError:
        return


def _site(options: argparse.Namespace) -> Site:
    burst = None
    if options.burst_per_second or options.burst_at_once:
        burst = Burst(
            per_second=options.burst_per_second,
            at_once=options.burst_at_once,
            retry_after_s=options.burst_retry_after,
        )
    return Site(
        pages=options.pages,
        seed=options.seed,
        hosts=options.hosts,
        faults=_shares(options.faults),
        links=options.links,
        latency_s=options.latency,
        slow_s=options.slow,
        burst=burst,
        crawl_delay_s=options.crawl_delay,
        robots_status=options.robots_status,
    )


def _shares(text: str) -> Mapping[Kind, float]:
    """`not-found=0.02,slow=0.01` as a table, whose names are checked by the site."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    try:
        return {cast(Kind, kind.strip()): float(share) for kind, _, share in pairs}
    except ValueError:
        raise ConfigError(f"--faults {text}: must look like not-found=0.02,slow=0.01") from None


def _options() -> argparse.Namespace:
    default = Site()
    parser = argparse.ArgumentParser(prog="python -m holdfast.testing.site", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="the first host's port, the others' follow; 0: any [0]")
    parser.add_argument("--pages", type=int, default=default.pages, help=f"how many [{default.pages}]")
    parser.add_argument("--seed", type=int, default=default.seed, help=f"another one is another site [{default.seed}]")
    parser.add_argument("--hosts", type=int, default=default.hosts, help="each on a port of its own [1]")
    parser.add_argument("--faults", default="", help="kinds of fates and their shares: not-found=0.02,slow=0.01")
    parser.add_argument("--links", type=int, default=default.links, help=f"links to anywhere [{default.links}]")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer [0]")
    parser.add_argument("--slow", type=float, default=default.slow_s, help=f"of slow pages [{default.slow_s}]")
    parser.add_argument("--crawl-delay", type=float, default=0.0, help="seconds, in robots.txt [none]")
    parser.add_argument("--robots-status", type=int, default=200, help="what robots.txt answers [200]")
    parser.add_argument("--burst-per-second", type=int, default=0, help="429 above so many starts a second [no limit]")
    parser.add_argument("--burst-at-once", type=int, default=0, help="429 above so many at once [no limit]")
    parser.add_argument("--burst-retry-after", type=int, default=1, help="what those say, in seconds [1]")
    parser.add_argument("--log", type=Path, default=Path(os.devnull), help="a file for the requests [none]")
    parser.add_argument("--buffered", action="store_true", help="write the log about every 50 ms, not at once")
    parser.add_argument("--while-stdin", action="store_true", help="end when stdin does")
    parser.add_argument("--site", help="all settings of the site as JSON, instead of the options above")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
