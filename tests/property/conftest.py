"""Property tests are the same in every run; HOLDFAST_PROPERTY=long looks further, and elsewhere each time."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, database=None, deadline=None, max_examples=200)
settings.register_profile(
    "long", database=None, deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("long" if os.environ.get("HOLDFAST_PROPERTY") == "long" else "ci")
