"""What librdkafka says of itself goes to Python's logger `holdfast.kafka`, and never to stderr."""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("holdfast.kafka")

_TOLD_OTHERWISE: Final = frozenset({"FAIL", "ERROR", "CONFWARN", "TERMINATE"})
"""Kinds of lines that come with every attempt to connect, which `Owner.away` tells once, or on every start."""


class ClientLog:
    """Takes the lines of one client; it looks like a logger to the binding."""

    def log(self, level: int, text: str, *args: object) -> None:
        """One line, whose first argument is its kind."""
        is_expected = bool(args) and args[0] in _TOLD_OTHERWISE
        log.log(logging.DEBUG if is_expected or level < logging.WARNING else logging.WARNING, text, *args)
