"""A producer that does not take no for an answer: `python -m tests.faults.insistent LEDGER COUNT BALLAST MODE`.

It enqueues one by one into $HOLDFAST_URL and prints each refusal, and sends what was refused again. In the mode `work`
it then runs everything to its end; in the mode `go` it just ends.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from holdfast import App
from holdfast.app.task import Call
from holdfast.errors import StoreError
from tests.faults.ledger import ClientLedger
from tests.faults.workers import SETTINGS

REFUSED: Final = "refused: "
"""What a line about a refusal begins with."""
_TRIES: Final = 50


def main() -> None:
    """Enqueue, and perhaps work."""
    from tests.faults.shop import app

    path, count, ballast, mode = sys.argv[1:]
    ledger = ClientLedger(Path(path))
    with closing(app):
        for number in range(int(count)):
            _insist(app, ledger, app.tasks["work"].bind(number, ballast="x" * int(ballast)))
        if mode == "work":
            app.bridge.run(app.worker(SETTINGS).run_until_idle(skip=False))


def _insist(app: App, ledger: ClientLedger, call: Call[Any]) -> None:
    ledger.attempt([call.job.id])
    for _ in range(_TRIES):
        try:
            app.enqueue_many([call])
        except StoreError as error:
            print(f"{REFUSED}{error}", flush=True)
        else:
            ledger.ack([call.job.id])
            return
    raise SystemExit(f"{call.job.id} was refused {_TRIES} times")


if __name__ == "__main__":
    main()
