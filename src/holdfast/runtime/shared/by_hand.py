"""What operators do to shared values, from any process: pure, as a value in and a change out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from holdfast.policy import breaker as rules
from holdfast.policy.breaker import BreakerState
from holdfast.ports import Value, ValueChange
from holdfast.runtime.shared.breakers import BreakerValue, moved, read_breaker, write_breaker
from holdfast.runtime.shared.names import BREAKER, breaker_gate, queue_gate
from holdfast.types import BreakerMode

_OPEN: Final = BreakerMode.OPEN
_PAUSED: Final = b'{"paused":true}'


class BreakerView(Struct, frozen=True, kw_only=True):
    """A shared breaker, for lists."""

    key: str
    mode: BreakerMode
    failures: int
    """Consecutive failures, or those in its window."""
    until: float | None
    """While open: when trials begin, on the store's clock."""
    retry_after: float | None
    """The same, in seconds from now."""
    cause: str | None
    period: int
    trips: int
    """How often it has opened by itself."""


def reset(value: Value | None, key: str) -> ValueChange:
    """Close a breaker, whatever it was."""
    return _changed(value, key, rules.reset)


def force_open(value: Value | None, key: str) -> ValueChange:
    """Hold a breaker open until it is reset; IllegalChange while it is disabled."""
    return _changed(value, key, rules.force_open)


def disable(value: Value | None, key: str) -> ValueChange:
    """Let everything through a breaker until it is reset; IllegalChange while it is forced open."""
    return _changed(value, key, rules.disable)


def pause(value: Value | None, queue: str) -> ValueChange:
    """Let no worker claim from a queue until it is resumed."""
    return ValueChange(queue_gate(queue), _version(value), _PAUSED)


def resume(value: Value | None, queue: str) -> ValueChange:
    """Let workers claim from a queue again."""
    return ValueChange(queue_gate(queue), _version(value), None)


def breaker_views(values: Iterable[Value], now: float) -> list[BreakerView]:
    """The breakers among these values, by key; workers take those that cannot be read as absent, and so does this."""
    views = []
    for value in values:
        if value.key.startswith(BREAKER) and value.data is not None:
            shared = read_breaker(value.data)
            if shared is not None:
                views.append(_view(value.key.removeprefix(BREAKER), shared, now))
    return sorted(views, key=lambda view: view.key)


def _view(key: str, value: BreakerValue, now: float) -> BreakerView:
    state = rules.aged(value.state, now)
    is_open = state.mode is _OPEN
    return BreakerView(
        key=key,
        mode=state.mode,
        failures=state.failures or sum(chunk.failures for chunk in value.chunks),
        until=state.until if is_open else None,
        retry_after=state.until - now if is_open else None,
        cause=state.cause,
        period=state.period,
        trips=value.trips,
    )


def _changed(value: Value | None, key: str, change: Callable[[BreakerState], BreakerState]) -> ValueChange:
    shared = None if value is None or value.data is None else read_breaker(value.data)
    before = BreakerValue() if shared is None else shared
    return ValueChange(breaker_gate(key), _version(value), write_breaker(moved(before, change(before.state))))


def _version(value: Value | None) -> int:
    """What a change has to expect."""
    return 0 if value is None or value.data is None else value.version
