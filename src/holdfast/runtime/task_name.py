"""The name of a task that was given none: the same in every process, however its file was started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import PurePath
from types import FunctionType
from typing import Any, Final

from holdfast.errors import ConfigError

_MAIN: Final = ("__main__", "__mp_main__")
"""The file that was started, and what it is called in the processes that it spawns."""


def task_name(fn: Callable[..., Any]) -> str:
    """Module and qualified name, such as "shop.tasks.charge"; ConfigError where that would name nothing stable."""
    if not isinstance(fn, FunctionType):
        raise ConfigError(f"{fn!r} is not a plain function: give it a name with name=")
    path = fn.__qualname__.split(".")
    if path[-1] == "<lambda>":
        raise ConfigError(f"a lambda in {fn.__module__} has no name of its own: give it one with name=")
    if len(path) > 1 and path[-2] != "<locals>":
        raise ConfigError(f"{fn.__qualname__} belongs to a class: give it a name with name=, or make it a function")
    return ".".join([_module_of(fn), *(part for part in path if part != "<locals>")])


def _module_of(fn: FunctionType) -> str:
    """The name under which importing its file would have it."""
    name = fn.__module__
    if not name:
        raise ConfigError(f"{fn.__qualname__} belongs to no module: give it a name with name=")
    if name not in _MAIN:
        return name
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if spec is not None and spec.name not in _MAIN:
        return str(spec.name)
    file = getattr(module, "__file__", None)
    return PurePath(file).stem if file else "__main__"
