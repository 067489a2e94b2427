"""Packages that are installed only where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.errors import ConfigError
from holdfast.extras import how_to_install

_PACKAGES: Final = {"web": ("fastapi", "prometheus_client", "pydantic", "starlette", "uvicorn")}


@contextmanager
def wanted(extra: str) -> Iterator[None]:
    """Where the block misses a package of an extra: ConfigError, with the line to type."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES[extra]:
            raise
        raise ConfigError(f"{package} is not installed: {how_to_install(extra)}") from None
