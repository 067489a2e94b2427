"""The alerts of an app: which rules there are, who is told, and how they stand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import ConfigError
from holdfast.policy.alerts import Alert, AlertState
from holdfast.policy.notices import Notice
from holdfast.policy.rules import OF_STREAMS, HealthScore, Rule
from holdfast.runtime.alerts import AlertView, Target, metrics_of, minutes_for, read, states_in, view_of
from holdfast.runtime.health import Look, look_into

if TYPE_CHECKING:
    from holdfast.app.app import App

Callback = Callable[[Notice], Awaitable[object] | object]

AWAY: Final = "store away"
"""The alert that every server raises by itself, as there is no store then to share it through."""
_LONGEST_NAME: Final = 100
_ASK_S: Final = 2.0
"""For so long the server of a stream is waited for: a look has 5 s in all."""


class Watch(Struct, frozen=True):
    """An alert, and who is told of it."""

    alert: Alert
    to: tuple[Callback | Target, ...] = ()

    @property
    def targets(self) -> Mapping[str, Callback | Target]:
        """The same by names that hold in every process and version of a program, wherever they stand in the list."""
        return named_targets(self.to)


class AlertDesk:
    """The alerts of this app."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.watches: dict[str, Watch] = {}
        """What is watched, by name; `holdfast serve` does it."""

    def list(self) -> Sequence[AlertView]:
        """Every alert and how it stands, by name."""
        return self._app.bridge.run(self.alist())

    async def alist(self) -> Sequence[AlertView]:
        """The same for async code."""
        if not self.watches:
            return []
        look, score = await asyncio.gather(self.look(), self.score())
        states, now = states_in(look.reply.values), look.reply.now
        metrics = metrics_of(look, score)
        return [
            view_of(
                watch.alert,
                states.get(name, (AlertState(), 0))[0],
                read(watch.alert.rule, look, score, metrics),
                now,
            )
            for name, watch in sorted(self.watches.items())
        ]

    async def look(self) -> Look:
        """What the rules are judged by: one look into the store, and at the servers of streams that nobody reports."""
        look = await look_into(self._app.store, minutes_for(watch.alert for watch in self.watches.values()))
        if not any(isinstance(watch.alert.rule, OF_STREAMS) for watch in self.watches.values()):
            return look
        unseen = await self._app.streams.alags_unseen(look.stats, timeout=_ASK_S)
        return replace(look, asked={name: one.lag for name, one in unseen.items() if one.lag is not None})

    async def score(self) -> float | None:
        """The health score, where a rule asks for it."""
        if any(isinstance(watch.alert.rule, HealthScore) for watch in self.watches.values()):
            return (await self._app.ahealth()).score
        return None


def named_targets(targets: Iterable[Callback | Target]) -> dict[str, Callback | Target]:
    """Targets by name: a webhook by its URL, a function by where it is; a second one of a name has a number."""
    found: dict[str, Callback | Target] = {}
    for target in targets:
        key = getattr(target, "key", None)
        if not isinstance(key, str):
            what: Any = target if hasattr(target, "__qualname__") else type(target)
            key = f"{what.__module__}.{what.__qualname__}"
        number = sum(other.partition("#")[0] == key for other in found)
        found[f"{key}#{number + 1}" if number else key] = target
    return found


def watch_of(
    name: object,
    when: object,
    *,
    for_s: float,
    clear: float | None,
    repeat_s: float | None,
    to: object,
) -> Watch:
    """An alert with its targets, or ConfigError."""
    if not isinstance(name, str) or not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"name={name!r}: must be printable text of 1 to {_LONGEST_NAME} characters")
    if name == AWAY:
        raise ConfigError(f"name={name!r}: this alert is there by itself; give yours another name")
    if not isinstance(when, Rule):
        kinds = ", ".join(kind.__name__ for kind in get_args(Rule))
        raise ConfigError(f"when={when!r}: must be a rule of holdfast.alerts: {kinds}")
    if isinstance(to, str) or not isinstance(to, Sequence):
        raise ConfigError(f"to={to!r}: must be a list of functions and Webhooks")
    for target in to:
        if not callable(target) and not callable(getattr(target, "deliver", None)):
            raise ConfigError(f"to={target!r}: must be a function of a notice, or a Webhook")
    return Watch(Alert(name=name, rule=when, for_s=for_s, clear=clear, repeat_s=repeat_s), tuple(to))
