"""Which guards there are, and the values of those that nobody has added yet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from holdfast.errors import ConfigError
from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.limiter import Rate
from holdfast.ports import Value
from holdfast.runtime.shared.breakers import SharedBreaker, write_breaker
from holdfast.runtime.shared.budgets import SharedBudget
from holdfast.runtime.shared.limits import SharedLimit
from holdfast.runtime.shared.names import BREAKER, BUDGET, LIMIT, limit_gate

AnyGuard = SharedBreaker | SharedLimit | SharedBudget
_FEW: Final = 1_000
_GUARDS: Final = (BREAKER, LIMIT, BUDGET)
Config = TypeVar("Config", BreakerConfig, BudgetConfig, Rate)


class Registry:
    """Guards by name. Those of scoped limits are made when they are first heard of, and forgotten when idle."""

    def __init__(self) -> None:
        self.breakers: dict[str, SharedBreaker] = {}
        self.budgets: dict[str, SharedBudget] = {}
        self.rates: dict[str, Rate] = {}
        self.limits: dict[str, SharedLimit] = {}
        """By gate."""
        self.tight: dict[str, SharedLimit] = {}
        """Those worth naming in a claim, by gate: all that are used up, and not too many of the others."""
        self.pending: dict[str, AnyGuard] = {}
        """Those with notes, by the key of their value."""
        self._by_key: dict[str, SharedBreaker | SharedBudget] = {}
        self._others: dict[str, Value] = {}

    # ---- adding

    def add_breaker(self, name: str, config: BreakerConfig, now: float) -> None:
        """A breaker of this name."""
        known = self.breakers.get(name)
        if known is None:
            self.breakers[name] = guard = SharedBreaker(name, config)
            self._begin(guard, now)
            guard.told = guard.known.state.mode
        else:
            _refuse_other(f"breaker {name!r}", known.config, config)

    def add_budget(self, name: str, config: BudgetConfig, now: float) -> None:
        """A budget of this name."""
        known = self.budgets.get(name)
        if known is None:
            self.budgets[name] = guard = SharedBudget(name, config)
            self._begin(guard, now)
        else:
            _refuse_other(f"retry budget {name!r}", known.config, config)

    def add_limit(self, name: str, rate: Rate, now: float) -> None:
        """A rate under this name: a limit's own, or that of each value of its scope."""
        _refuse_other(f"limit {name!r}", self.rates.setdefault(name, rate), rate)
        for key in [key for key in self._others if key.startswith(limit_gate(name))]:
            if self.rate_of(key) is rate:
                limit = self.limit(key)
                limit.absorb(self._others.pop(key), now)
                self.look(limit, now)

    def _begin(self, guard: SharedBreaker | SharedBudget, now: float) -> None:
        self._by_key[guard.key] = guard
        value = self._others.pop(guard.key, None)
        if value is not None:
            guard.absorb(value, now)

    # ---- finding

    def breaker(self, name: str) -> SharedBreaker:
        """The breaker of this name, which has been added."""
        return _added(self.breakers, name, "breaker")

    def budget(self, name: str) -> SharedBudget:
        """The budget of this name, which has been added."""
        return _added(self.budgets, name, "retry budget")

    def limit(self, gate: str) -> SharedLimit:
        """The limit of this gate, whose rate has been added."""
        guard = self.limits.get(gate)
        if guard is None:
            rate = self.rate_of(gate)
            if rate is None:
                raise ConfigError(f"limit {gate!r}: no rate was added for it")
            self.limits[gate] = guard = SharedLimit(gate, rate)
        return guard

    def rate_of(self, gate: str) -> Rate | None:
        """The rate of a gate: that of its whole name, or of its name and scope, which a value follows."""
        name = gate.removeprefix(LIMIT)
        rate = self.rates.get(name)
        while rate is None:
            name = name.rpartition(":")[0]
            if not is_scoped(name):
                return None
            rate = self.rates.get(name)
        return rate

    def find(self, key: str) -> AnyGuard | None:
        """The guard whose value has this key."""
        if key.startswith(LIMIT):
            guard = self.limits.get(key)
            return guard if guard is not None or self.rate_of(key) is None else self.limit(key)
        return self._by_key.get(key)

    def known(self, value: Value) -> AnyGuard | None:
        """The guard of a value. Where there is none the value is kept, for its guard may be added later."""
        if value.data is not None:
            guard = self.find(value.key)
            if guard is None and value.key.startswith(_GUARDS):
                self._others[value.key] = value
            return guard
        self._others.pop(value.key, None)
        return self.limits.get(value.key) or self._by_key.get(value.key)  # nothing is made for what is gone

    def look(self, limit: SharedLimit, now: float) -> None:
        """Note whether a limit that has changed is worth naming in a claim.

        There may be one for each of very many users. One that still has room need not be named: what is claimed beyond
        it is parked, and then it is used up.
        """
        if limit.key in self.tight:
            return
        if len(self.tight) < _FEW or limit.key.removeprefix(LIMIT) in self.rates or limit.left(now) == 0:
            self.tight[limit.key] = limit

    def drop(self, gate: str) -> None:
        """Forget a limit that remembers nothing."""
        del self.limits[gate]
        self.tight.pop(gate, None)

    def drop_breaker(self, name: str) -> None:
        """Forget a breaker that holds nothing back and has nothing to send; what is stored of it is kept."""
        guard = self.breakers.get(name)
        if guard is None or guard.notes or not guard.is_closed:
            return
        del self.breakers[name], self._by_key[guard.key]
        if guard.version:
            self._others[guard.key] = Value(guard.key, guard.version, write_breaker(guard.known))

    def mark(self, guard: AnyGuard) -> None:
        """Note whether it has something to send."""
        if guard.notes:
            self.pending[guard.key] = guard
        else:
            self.pending.pop(guard.key, None)

    def stored(self) -> Iterator[str]:
        """The keys of all values that the store has, as far as is known."""
        yield from (guard.key for guard in self if guard.version)
        yield from self._others

    @property
    def waiting(self) -> int:
        """How many values are kept for guards that nobody has added."""
        return len(self._others)

    def __iter__(self) -> Iterator[AnyGuard]:
        yield from self.breakers.values()
        yield from self.limits.values()
        yield from self.budgets.values()


def is_scoped(name: str) -> bool:
    """Whether a limit's name has a scope, so that each of the scope's values has a gate of its own."""
    return ":" in name


_Guard = TypeVar("_Guard", SharedBreaker, SharedBudget)


def _added(guards: dict[str, _Guard], name: str, kind: str) -> _Guard:
    guard = guards.get(name)
    if guard is None:
        raise ConfigError(f"{kind} {name!r}: was not added")
    return guard


def _refuse_other(what: str, known: Config, given: Config) -> None:
    if known != given:
        raise ConfigError(f"{what}: two different configurations under one name: {known!r} and {given!r}")
