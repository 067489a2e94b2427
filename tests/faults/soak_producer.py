"""The producer of a soak: `python -m tests.faults.soak_producer LEDGER FIRST RATE SECONDS`, until SIGTERM.

It enqueues jobs FIRST, FIRST + 1, … into $HOLDFAST_URL at an even rate a second, each about SECONDS long. What is
refused it sends again, under the same ids, until it is acked.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Final

from holdfast import App
from holdfast.clock import SystemClock
from holdfast.errors import StoreError
from tests.faults.soak_ledger import ClientPen
from tests.faults.soak_shop import call_of

AT_ONCE: Final = 500
_PACE_S: Final = 0.04
_INSIST_S: Final = 60.0


class SoakProducer:
    """Enqueues numbered jobs, and keeps the client ledger."""

    def __init__(self, app: App, ledger: Path, first: int, seconds: float) -> None:
        self._app = app
        self._pen = ClientPen(ledger)
        self._seconds = seconds
        self._clock = SystemClock()
        self.next = first
        """The number of the next job."""

    def send(self, count: int) -> None:
        """So many more jobs, together; on return they are acked."""
        first, end = self.next, self.next + count
        calls = [call_of(self._app, number, self._seconds) for number in range(first, end)]
        self._pen.write("attempt", first, end)
        until_s = self._clock.monotonic() + _INSIST_S
        while True:
            try:
                self._app.enqueue_many(calls)
                break
            except StoreError:
                self._pen.write("refused", first, end)
                if self._clock.monotonic() > until_s:
                    raise
                self._clock.sleep(_PACE_S)
        self._pen.write("acked", first, end)
        self.next = end


def main() -> None:
    """Keep the pace until told to stop."""
    from tests.faults.soak_shop import app

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    first, rate, seconds = int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    producer = SoakProducer(app, Path(sys.argv[1]), first, seconds)
    clock = SystemClock()
    began_s = clock.monotonic()
    while not clock.wait(stop, _PACE_S):
        due = first + int(rate * (clock.monotonic() - began_s))
        while producer.next < due and not stop.is_set():
            producer.send(min(AT_ONCE, due - producer.next))
    app.close()


if __name__ == "__main__":
    main()
