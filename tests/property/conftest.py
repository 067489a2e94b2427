"""Property tests are the same in every run. HOLDFAST_PROPERTY=full is the size that `make faults` runs them at, and
HOLDFAST_PROPERTY=long looks much further, and elsewhere each time.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

# `make mutate` finds what there is to be found with fewer; the rest is for `make faults`.
settings.register_profile("ci", derandomize=True, database=None, deadline=None, max_examples=60)
settings.register_profile("full", settings.get_profile("ci"), max_examples=200)
settings.register_profile(
    "long", database=None, deadline=None, max_examples=5_000, suppress_health_check=[HealthCheck.too_slow]
)
# For mutation testing, where any failure will do and nobody reads it.
settings.register_profile("mutation", settings.get_profile("ci"), max_examples=50, phases=[Phase.generate])
settings.load_profile(os.environ.get("HOLDFAST_PROPERTY", "ci"))
