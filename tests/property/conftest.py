"""Property tests are the same in every run, but for two sizes that look elsewhere each time: HOLDFAST_PROPERTY=full is
that of `make faults`, which prints its seed, and HOLDFAST_SEED repeats it; HOLDFAST_PROPERTY=long looks much further.
"""

from __future__ import annotations

import os
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.faults.load import Dice

SIZE: Final = os.environ.get("HOLDFAST_PROPERTY", "ci")
_ELSEWHERE: Final = settings(
    derandomize=False, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

# `make mutate` finds what there is to be found with fewer; the rest is for `make faults`.
settings.register_profile("ci", derandomize=True, database=None, deadline=None, max_examples=60)
settings.register_profile("full", _ELSEWHERE, max_examples=200)
settings.register_profile("long", _ELSEWHERE, max_examples=5_000)
# For mutation testing, where any failure will do and nobody reads it.
settings.register_profile("mutation", settings.get_profile("ci"), max_examples=50, phases=[Phase.generate])
settings.load_profile(SIZE)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hand hypothesis the seed before it asks for one; processes of xdist have that of the first by the environment."""
    if SIZE == "full" and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = os.environ["HOLDFAST_SEED"] = Dice().seed
