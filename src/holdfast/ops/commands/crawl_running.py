"""A crawler that runs on the command line: shown, and stopped by signals."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, Final, TextIO, cast

from holdfast.errors import NotFound, StoreError
from holdfast.ops.commands.crawl_progress import CurrentStderr, Screen, screen_for
from holdfast.ops.commands.crawl_summary import Ended, as_fields, summary_lines
from holdfast.ops.commands.lazy import FAILED, Unusable
from holdfast.ops.commands.output import echo_json, hint, say
from holdfast.ops.commands.target import APP_VARIABLE
from holdfast.ops.redact import redacted_text
from holdfast.ops.text import many
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.crawls import CrawlView
from holdfast.runtime.logs import LOG_LEVEL, set_up_logs
from holdfast.wiring import shown

if TYPE_CHECKING:
    from holdfast.crawl import Crawler, CrawlSummary, Progress

LEFT: Final = 3
"""The exit code of a crawl that was stopped with pages left."""
_STANDARD_OUTPUT: Final = "-"


def set_up_run_logs() -> None:
    """Log errors alone, unless the environment says otherwise: what fails is counted, and told at the end by cause."""
    set_up_logs(level=os.environ.get(LOG_LEVEL) or "ERROR", stream=cast(TextIO, CurrentStderr()))


def run_on(
    crawler: Crawler, urls: Sequence[str], out: str, *, url: str | None, target: str | None, as_json: bool
) -> Ended:
    """Run a crawler to its end, or until a signal, and show how far it is."""
    app = crawler.app
    screen = screen_for(app.clock, is_quiet=as_json)
    if not as_json:
        _tell_start(crawler, urls, out, screen)
    try:
        before, summary = asyncio.run(_run(crawler, urls, out, screen))
    finally:
        screen.close()
    return Ended(
        summary=summary,
        before=before,
        groups=app.dead_letters.groups(task=queue_of(crawler.name)) if summary.dead else (),
        out=_absolute(out),
        where=_options_for_store(url, target),
        target=target or "",
    )


def tell(ended: Ended, *, as_json: bool) -> None:
    """Print what became of it; beside items on standard output, on standard error."""
    is_err = ended.out == _STANDARD_OUTPUT
    if as_json:
        echo_json(as_fields(ended), err=is_err)
        return
    for line in summary_lines(ended):
        (hint if is_err else say)(line)


def code_of(ended: Ended) -> int:
    """The exit code of a run that has ended."""
    if not ended.summary.is_finished:
        return LEFT
    return 0 if ended.summary.done else FAILED


async def _run(
    crawler: Crawler, urls: Sequence[str], out: str, screen: Screen
) -> tuple[CrawlView | None, CrawlSummary]:
    before: CrawlView | None = None
    with suppress(NotFound):
        before = await crawler.app.crawls.aget(crawler.name)
    if before is None and not urls:
        raise Unusable(f"the crawl {crawler.name} has not begun yet: give it a URL")
    stopping = _Stopping(crawler, screen, is_piped=out == _STANDARD_OUTPUT)
    with stopping.by_signals():
        try:
            summary = await crawler.arun(*urls, out=out or None, on_progress=stopping.on_progress)
        except StoreError as error:
            if not stopping.is_unread:
                raise
            raise _unread() from error
    if stopping.is_unread:  # whether or not there was an item left to write
        raise _unread()
    return before, summary


def _unread() -> BrokenPipeError:
    """Which is no error of anybody's: the reader has what it wanted."""
    return BrokenPipeError(errno.EPIPE, "nobody reads the items any more")


class _Stopping:
    """The first signal stops the crawl, the second one ends the process."""

    def __init__(self, crawler: Crawler, screen: Screen, *, is_piped: bool) -> None:
        self._crawler = crawler
        self._screen = screen
        self._is_piped = is_piped
        self._is_asked = False
        self._in_flight = 0
        self.is_unread = False
        """Whether nobody reads the items on standard output any more."""

    def on_progress(self, progress: Progress) -> None:
        """Show it; and stop, where that was said before there was anything to stop, or nobody reads the items."""
        self._in_flight = progress.in_flight
        self._screen.show(progress)
        if self._is_asked:
            self._crawler.stop()
        elif self._is_piped and is_reader_gone(sys.stdout):
            self._is_asked = self.is_unread = True
            self._crawler.stop()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM, on the main thread's event loop."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        if self._is_asked:
            self._screen.close()
            os._exit(128 + number)  # as a kill would: the store and the output are made for that
        self._is_asked = True
        active = many(self._in_flight, "active request") if self._in_flight else "what is active"
        self._screen.say(f"finishing {active}; press again to leave at once")
        self._crawler.stop()


def is_reader_gone(stream: IO[Any]) -> bool:
    """Whether a stream is a pipe that has nobody at its other end any more."""
    try:
        fd = stream.fileno()
    except OSError:  # it is no file at all
        return False
    asking = select.poll()
    asking.register(fd, 0)
    return any(event & select.POLLERR for _, event in asking.poll(0))


def _tell_start(crawler: Crawler, urls: Sequence[str], out: str, screen: Screen) -> None:
    capabilities = crawler.app.store.capabilities
    durable = "" if capabilities.is_durable else f" (not durable: {capabilities.durability})"
    first = f" from {redacted_text(urls[0])}" if urls else ""
    more = f" and {len(urls) - 1} more" if len(urls) > 1 else ""
    place = "standard output" if out == _STANDARD_OUTPUT else _absolute(out)
    items = f", items to {place}" if out else ""
    screen.say(f"crawl {crawler.name}{first}{more}; its pages are in {capabilities.location}{durable}{items}")


def _absolute(out: str) -> str:
    return os.path.abspath(out) if out and out != _STANDARD_OUTPUT else out


def _options_for_store(url: str | None, target: str | None) -> str:
    """What another command needs to find the same store, with a space in front."""
    if url:
        return f" --url {shown(url)}"
    return f" --app {target}" if target and target != os.environ.get(APP_VARIABLE) else ""
