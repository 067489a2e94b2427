"""The HTTP API and the page: FastAPI over an app.

`build_api(app, ApiSettings(…))` makes an ASGI app that runs by itself or mounted in another one. It needs the extra
`web`, which is asked for when it is used: the settings and the tokens are there without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.ops.extras import wanted

if TYPE_CHECKING:
    from holdfast.ops.api.build import build_api
    from holdfast.ops.api.settings import ApiSettings
    from holdfast.ops.api.tokens import Token

__all__ = ["ApiSettings", "Token", "build_api"]

_PLACES = {"ApiSettings": "settings", "Token": "tokens", "build_api": "build"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with wanted("web"):
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
