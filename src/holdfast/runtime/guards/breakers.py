"""One circuit breaker per key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from weakref import WeakValueDictionary

from holdfast.errors import ConfigError
from holdfast.policy import bounds
from holdfast.policy.breaker import BreakerConfig
from holdfast.ports import Clock
from holdfast.runtime.guards.breaker import CircuitBreaker, Listener
from holdfast.runtime.guards.keyed import Keyed


class CircuitBreakers:
    """One breaker per key (service, task type, domain), made on first use, each apart from the others.

    config: the settings of every breaker; `overrides` has other settings for single keys. Past `max_keys` [10,000]
    breakers that are as good as new are forgotten, so keys may come from outside.
    """

    def __init__(
        self,
        config: BreakerConfig | None = None,
        *,
        overrides: Mapping[str, BreakerConfig] = MappingProxyType({}),
        max_keys: int = 10_000,
        clock: Clock | None = None,
        on_change: Listener | None = None,
    ) -> None:
        if not isinstance(overrides, Mapping):
            raise ConfigError(f"overrides={overrides!r}: must be a mapping from keys to BreakerConfigs")
        default = BreakerConfig() if config is None else config
        for field, one in {"config": default, **{f"overrides[{key!r}]": one for key, one in overrides.items()}}.items():
            if not isinstance(one, BreakerConfig):
                raise ConfigError(f"{field}={one!r}: must be a BreakerConfig")
        bounds.whole("max_keys", max_keys, low=1)

        def make(key: str) -> CircuitBreaker:
            breaker = CircuitBreaker.of(overrides.get(key, default), key, clock=clock, on_change=on_change)
            breaker.on_use = self._breakers.keep
            return breaker

        self._breakers = _Kept(make, lambda breaker: breaker.is_idle, max_keys)

    def __getitem__(self, key: str) -> CircuitBreaker:
        """The breaker of this key, made if there is none."""
        return self._breakers[key]

    def __contains__(self, key: object) -> bool:
        return key in self._breakers.things

    def __iter__(self) -> Iterator[CircuitBreaker]:
        return iter(self._breakers)

    def __len__(self) -> int:
        return len(self._breakers)


class _Kept(Keyed[CircuitBreaker]):
    """A breaker that was forgotten while somebody held it (a call in flight, an operator) is found again by its key."""

    def __init__(self, *settings: object) -> None:
        super().__init__(*settings)  # type: ignore[arg-type]
        self._forgotten: WeakValueDictionary[str, CircuitBreaker] = WeakValueDictionary()

    def keep(self, breaker: CircuitBreaker) -> None:
        """It has something to remember now, so that it must not be lost; not even to a sweep that is under way."""
        with self._lock:
            self.things.setdefault(breaker.name, breaker)

    def _missing(self, key: str) -> CircuitBreaker:
        held = self._forgotten.pop(key, None)
        return super()._missing(key) if held is None else held

    def _forget(self, key: str) -> None:
        self._forgotten[key] = self.things.pop(key)
