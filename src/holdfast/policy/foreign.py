"""Asking objects that others made, whose properties and methods may fail: the only place that is defensive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def quietly(ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What foreign code answers, or None when it raises."""
    try:
        return ask(*args, **kwargs)
    except Exception:  # whatever it was, it is not what we came to classify
        return None


def attribute(thing: object, name: str) -> Any:
    """The attribute, or None when it is missing or cannot be had."""
    try:  # as `quietly` would, at a third of its price: this is read twenty times for one error
        return getattr(thing, name, None)
    except Exception:
        return None


def answer(thing: object, name: str) -> Any:
    """What the method of that name answers, or None when there is no such method or it fails."""
    method = attribute(thing, name)
    return quietly(method) if callable(method) else None
