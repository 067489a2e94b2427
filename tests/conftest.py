"""What every test may ask for."""

from __future__ import annotations

import pytest

from holdfast.testing import ManualClock


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
