"""A retry budget that all workers share."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from holdfast.policy.budget import BudgetConfig, earned, spent
from holdfast.runtime.shared.guard import Guard
from holdfast.runtime.shared.names import budget_key


class BudgetValue(Struct, frozen=True):
    """What is left of a budget. A full one has no value."""

    tokens: float


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(BudgetValue).decode


class SharedBudget(Guard[float, bool]):
    """One budget, as this worker knows it. A note is a success, or (True) a retry that was paid and never made."""

    def __init__(self, name: str, config: BudgetConfig) -> None:
        self.name = name
        self.config = config
        super().__init__(budget_key(name))

    def take(self, draft: float) -> float | None:
        """The tokens after one retry; None when there are not enough for it."""
        return spent(draft)

    def earn(self) -> None:
        """Note a success, unless the budget is full."""
        if self.notes or self.known < self.config.cap:
            self.add(False)

    def lost(self, upto: int) -> None:
        """What may have been earned already is not earned again: there are never more retries than paid for."""
        self.landed(upto)

    def empty(self) -> float:
        """A full one."""
        return self.config.cap

    def read(self, data: bytes, now: float) -> float | None:
        """The tokens, within the budget's bounds."""
        del now
        try:
            return min(max(0.0, _decode(data).tokens), self.config.cap)
        except (ValueError, RecursionError):
            return None

    def write(self, state: float, now: float) -> bytes | None:
        """The tokens as bytes; None for a full one."""
        del now
        return None if state >= self.config.cap else _encode(BudgetValue(state))

    def draft(self, now: float) -> float:
        """The tokens, with what was earned since."""
        del now
        tokens = self.known
        for _, is_refund in self.notes:
            tokens = min(self.config.cap, tokens + 1.0) if is_refund else earned(self.config, tokens)
        return tokens

    def differs(self, draft: float) -> bool:
        """Whether anything was earned."""
        return draft != self.known

    def set_back(self, now: float) -> None:
        """A budget knows no time."""
