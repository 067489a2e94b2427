"""Producers: they enqueue jobs and keep the client ledger; also as `python -m tests.faults.load LEDGER COUNT`.

As a program it enqueues one by one into $HOLDFAST_URL and then works until nothing is left, to be killed on the way.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast import App
from holdfast.app.task import Call
from holdfast.clock import new_secret
from tests.faults.ledger import ClientLedger


class Dice:
    """Chance that a seed repeats: HOLDFAST_SEED, or a new one each time. The seed is printed."""

    def __init__(self, seed: str | None = None) -> None:
        self.seed = seed or os.environ.get("HOLDFAST_SEED") or new_secret().hex()[:8]
        self._drawn = 0
        print(f"HOLDFAST_SEED={self.seed}")

    def draw(self) -> float:
        """A number in [0, 1)."""
        self._drawn += 1
        digest = hashlib.sha256(f"{self.seed} {self._drawn}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48

    def below(self, limit: int) -> int:
        """A whole number from 0 on."""
        return int(self.draw() * limit)


def enqueue(app: App, ledger: ClientLedger, calls: Sequence[Call[Any]]) -> None:
    """Send these together, with their lines before and after."""
    ids = [call.job.id for call in calls]
    ledger.attempt(ids)
    app.enqueue_many(calls)
    ledger.ack(ids)


def mixed_calls(app: App, count: int, dice: Dice, seconds: float) -> list[Call[Any]]:
    """Sync and async jobs of about this length; one in five has an idempotency key, one in a hundred fails once."""
    calls = []
    for number in range(count):
        key = f"order {number}" if number % 5 == 0 else None
        task = app.tasks["toil" if number % 4 == 0 else "work"].options(idempotency_key=key)
        failures = 1 if dice.below(100) == 0 else 0
        calls.append(task.bind(number, seconds=seconds * (0.5 + dice.draw()), failures=failures))
    return calls


def main() -> None:
    """Enqueue, then run everything to its end."""
    from tests.faults.shop import app

    ledger = ClientLedger(Path(sys.argv[1]))
    for number in range(int(sys.argv[2])):
        enqueue(app, ledger, [app.tasks["work"].bind(number)])
    app.run_until_idle()
    app.close()


if __name__ == "__main__":
    main()
