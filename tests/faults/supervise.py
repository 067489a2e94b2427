"""A supervisor as a program: `python -m tests.faults.supervise SETTINGS COUNT [TARGET]`."""

from __future__ import annotations

import logging
import sys

import msgspec

from holdfast.clock import SystemClock
from holdfast.runtime.supervisor import Supervisor
from holdfast.runtime.worker import WorkerSettings
from tests.faults.shop import TARGET


def main() -> None:
    """Keep so many worker processes running until told to stop."""
    logging.basicConfig(level=logging.INFO)
    settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
    target = sys.argv[3] if len(sys.argv) > 3 else TARGET
    sys.exit(Supervisor(target, settings, int(sys.argv[2]), SystemClock()).run())


if __name__ == "__main__":
    main()
