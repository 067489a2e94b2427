"""What the tests of guards may ask for."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Threads take turns as often as Python lets them, so that a race that can happen soon does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
