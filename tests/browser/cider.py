"""A press whose ring fails until somebody mends it: `python -m tests.browser.cider` runs it until SIGTERM."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from holdfast import App, Permanent
from holdfast.clock import SystemClock
from holdfast.ring import Disruptor
from tests.browser.shop import is_mended


def press(apples: Sequence[int]) -> None:
    """Stands still until somebody mends it, so that a replay heals."""
    if not is_mended("press"):
        raise Permanent(f"{len(apples)} apples are stuck in the press")


def bottle(apples: Sequence[int]) -> None:
    """Takes whatever comes."""
    del apples


def main() -> None:
    """Produce three apples, and tell of the ring for as long as it is left alone."""
    clock = SystemClock()
    with closing(App()) as app, Disruptor[int](name="cider", size=8, app=app) as ring:
        ring.register_consumer(press, dead_letters=True)
        ring.register_consumer(bottle, after=[press])
        ring.produce([1, 2, 3])
        print("turning", flush=True)
        while True:
            clock.sleep(60.0)


if __name__ == "__main__":
    main()
