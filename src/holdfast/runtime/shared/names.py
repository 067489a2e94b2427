"""What gates and shared values are called: each name is made in one place."""

from __future__ import annotations

from typing import Final

BREAKER: Final = "breaker:"
LIMIT: Final = "limit:"
BUDGET: Final = "budget:"
QUEUE: Final = "queue:"


def breaker_gate(key: str) -> str:
    """The gate of a breaker, and the key of its value."""
    return BREAKER + key


def limit_gate(name: str, scope: str | None = None, value: str | None = None) -> str:
    """The gate of a limit, and the key of its value: `limit:shop.charge`, or `limit:shop.charge:user:7` for one user.

    The rate of a scoped one is added under name and scope: `shop.charge:user`.
    """
    return LIMIT + (name if scope is None else f"{name}:{scope}:{value}")


def budget_key(key: str) -> str:
    """The key of a retry budget's value. A budget is no gate: it is asked for retries only."""
    return BUDGET + key


def queue_gate(name: str) -> str:
    """The gate of a queue, and the key of the value that pauses it."""
    return QUEUE + name
