"""What the one who watches a soak does again and again, each errand after a pause of its own."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.workers import CLOCK

Errand = tuple[Callable[[], float], Callable[[], None]]
"""How long to wait before it, drawn anew each time; and what is done then."""


class Errands:
    """Several of them, in one thread."""

    def __init__(self, *errands: Errand) -> None:
        self._errands = errands
        self._due_s = [CLOCK.monotonic() + pause() for pause, _ in errands]

    def run_due(self) -> None:
        """Do those whose time has come."""
        for place, (pause, errand) in enumerate(self._errands):
            if CLOCK.monotonic() >= self._due_s[place]:
                errand()
                self._due_s[place] = CLOCK.monotonic() + pause()
