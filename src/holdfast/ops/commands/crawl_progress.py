"""How far a crawl is, while it runs: a live line on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import click

from holdfast.ops.text import length, plain
from holdfast.ports import Clock

if TYPE_CHECKING:
    from rich.live import Live

    from holdfast.crawl import Progress

_EVERY_S: Final = 10.0
_DRAWN_EVERY_S: Final = 0.25
_MOST_HELD: Final = 3


class Screen(Protocol):
    """Where progress is shown: on standard error, as answers go to standard output."""

    def show(self, progress: Progress) -> None:
        """How far it is now."""

    def say(self, line: str) -> None:
        """One line that stays."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def screen_for(clock: Clock, *, is_quiet: bool) -> Screen:
    """The screen for where standard error goes; is_quiet: without a terminal nothing is shown."""
    if sys.stderr.isatty():
        return LiveScreen(clock)
    return QuietScreen() if is_quiet else LineScreen(clock)


class LiveScreen:
    """A few lines that change in place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.monotonic()
        self._drawn_s: float | None = None
        self._live: Live | None = None

    def show(self, progress: Progress) -> None:
        """Draw it, a few times a second at most: it is drawn on the crawl's own time."""
        from rich.text import Text  # noqa: PLC0415 - rich costs 50 ms, and only a terminal needs it

        now_s = self._clock.monotonic()
        if self._drawn_s is not None and now_s < self._drawn_s + _DRAWN_EVERY_S:
            return
        self._drawn_s = now_s
        text = "\n".join(progress_lines(progress, now_s - self._began_s))
        self._opened().update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def say(self, line: str) -> None:
        """Above the lines that change."""
        self._opened().console.print(plain(line), markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Take the lines away, and show the cursor again."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _opened(self) -> Live:
        if self._live is None:
            from rich.console import Console  # noqa: PLC0415
            from rich.live import Live  # noqa: PLC0415

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        return self._live


class LineScreen:
    """A line every ten seconds, for logs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = self._told_s = clock.monotonic()

    def show(self, progress: Progress) -> None:
        """Tell it, if it is time."""
        now_s = self._clock.monotonic()
        if now_s < self._told_s + _EVERY_S:
            return
        self._told_s = now_s
        self.say(";".join(progress_lines(progress, now_s - self._began_s)))

    def say(self, line: str) -> None:
        """One line."""
        click.echo(plain(line), err=True)

    def close(self) -> None:
        """Nothing to leave."""


class QuietScreen:
    """Progress for nobody; lines that stay are told."""

    def show(self, progress: Progress) -> None:
        """Nobody looks."""

    def say(self, line: str) -> None:
        """One line."""
        click.echo(plain(line), err=True)

    def close(self) -> None:
        """Nothing to leave."""


class CurrentStderr:
    """Standard error as it is at the moment: while something is drawn there, lines go above it."""

    def write(self, text: str) -> int:
        """Write there."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Have it seen."""
        sys.stderr.flush()


def progress_lines(progress: Progress, took_s: float) -> Iterator[str]:
    """How far a crawl is: what matters most first, each line no wider than most terminals."""
    rate = f"{progress.rate_per_s:.1f} pages/s"
    eta = "" if progress.eta_s is None else f"ETA {length(progress.eta_s)}"
    yield _joined(
        progress.name, f"{progress.done:,} done", f"{progress.pending:,} pending", rate, eta, f"{length(took_s)} gone"
    )
    yield _joined(
        "",
        f"{progress.in_flight:,} in flight",
        f"{progress.dead:,} given up",
        f"{progress.skipped:,} skipped",
        f"{progress.failed_here:,} failed attempts",
        f"{progress.waiting:,} waiting" if progress.waiting else "",
    )
    if progress.held:
        yield _joined("", f"left alone: {_held(progress.held)}")


def _joined(label: str, *parts: str) -> str:
    head = f"{label}: " if label else "  "
    return plain(head + ", ".join(part for part in parts if part))


def _held(held: Mapping[str, float]) -> str:
    """The domains that nothing is asked of now."""
    longest = sorted(held.items(), key=lambda one: (-one[1], one[0]))
    names = ", ".join(f"{domain} for {length(left_s)}" for domain, left_s in longest[:_MOST_HELD])
    return names + (f" and {len(held) - _MOST_HELD} more" if len(held) > _MOST_HELD else "")
