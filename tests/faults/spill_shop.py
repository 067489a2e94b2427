"""The app of row 53 that spills what it knows, for a server of its own."""

from __future__ import annotations

import os

from tests.faults.test_row53_secrets import make_app

app = make_app(os.environ["HOLDFAST_URL"])
