"""Rings in a process that ends, or forks: what was taken is finished first; and a child has no consumers."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from typing import Any, Final, Protocol

_logger = logging.getLogger("holdfast.ring")

_AT_EXIT_S: Final = 30.0
"""So long a process that ends waits for a ring that nobody has closed."""


class Ring(Protocol):
    """What this needs of a ring."""

    name: str

    def close(self, timeout: float | None = None) -> Any:
        """Finish what was taken."""

    def _disown(self) -> None:
        """Its consumers are not in this process."""


_RINGS: weakref.WeakSet[Ring] = weakref.WeakSet()
_BEGUN: set[Ring] = set()
"""Those that have something to lose."""


def watch(ring: Ring) -> None:
    """A new ring."""
    _RINGS.add(ring)


def keep(ring: Ring) -> None:
    """It has begun: it is closed at exit, unless it was before."""
    _BEGUN.add(ring)


def let_go(ring: Ring) -> None:
    """Nothing is waited for at exit."""
    _BEGUN.discard(ring)


def _close_all() -> None:
    for ring in list(_BEGUN):
        try:
            ring.close(_AT_EXIT_S)
        except Exception:
            _logger.exception("ring %s was not closed before the process ended", ring.name)


def _disown_all() -> None:
    """A fork takes no threads along: nobody would consume what the child produces."""
    for ring in list(_RINGS):
        ring._disown()
    _BEGUN.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
