"""`python -m tests.simulation`: see `seeds`."""

from __future__ import annotations

import sys

from tests.simulation.seeds import main

if __name__ == "__main__":
    sys.exit(main())
