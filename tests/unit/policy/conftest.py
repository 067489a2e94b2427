"""No test leans on what another has left in a cache; mutation testing learns from it which test reaches which code."""

from __future__ import annotations

import pytest

from holdfast.policy import classify


@pytest.fixture(autouse=True)
def _no_plans_left() -> None:
    classify._plans.clear()
