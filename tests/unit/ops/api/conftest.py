"""What the tests of the API may ask for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.ops.api.shopfront import Shopfront, new_app


@pytest.fixture
def front() -> Iterator[Shopfront]:
    app = new_app()
    yield Shopfront(app)
    app.close()
