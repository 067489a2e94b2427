"""The packages of the extra `crawl`, imported only where a crawl needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.errors import ConfigError
from holdfast.extras import how_to_install

_PACKAGES: Final = frozenset({"aiohttp", "idna", "protego", "selectolax", "yarl"})


@contextmanager
def wanted() -> Iterator[None]:
    """Where the block misses a package of the extra: ConfigError, with the line to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise ConfigError(f"a crawl needs the package {package}: {how_to_install('crawl')}") from None
