"""The switch that tests use: policies off, or policies that do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class _Switch:
    __slots__ = ("has_policies", "has_waits")

    def __init__(self) -> None:
        self.has_policies = True
        self.has_waits = True


# One for the process, against the house rule: a test must reach policies in modules that it does not own. It is changed
# only by the two context managers below, which put it back.
SWITCH = _Switch()


@contextmanager
def policies_off() -> Iterator[None]:
    """Inside this block every `Policy` calls its function once, as if it were not there."""
    before, SWITCH.has_policies = SWITCH.has_policies, False
    try:
        yield
    finally:
        SWITCH.has_policies = before


@contextmanager
def no_wait() -> Iterator[None]:
    """Inside this block every `Policy` retries as ever but never waits, neither for a retry nor for its rate limit."""
    before, SWITCH.has_waits = SWITCH.has_waits, False
    try:
        yield
    finally:
        SWITCH.has_waits = before
