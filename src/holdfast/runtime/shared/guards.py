"""The guards of one worker, shared with all others through a store's values: a machine without clock or I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.policy.breaker import SUCCESS, BreakerConfig, Outcome
from holdfast.policy.budget import BudgetConfig
from holdfast.policy.limiter import Rate
from holdfast.ports import Exchanged, Value, ValueChange
from holdfast.runtime.shared import asking
from holdfast.runtime.shared.asking import Go, Hold, Request, Round
from holdfast.runtime.shared.breakers import SharedBreaker
from holdfast.runtime.shared.guard import SKEW_S, GuardChange
from holdfast.runtime.shared.limits import SharedLimit
from holdfast.runtime.shared.names import (
    QUEUE,
    breaker_gate,
    budget_key,
    limit_gate,
    queue_gate,
)
from holdfast.runtime.shared.registry import Registry, is_scoped
from holdfast.runtime.shared.seen import Seen
from holdfast.types import BreakerChanged, BreakerMode

__all__ = ["Go", "Hold", "Request", "Round", "SharedGuards", "breaker_gate", "budget_key", "limit_gate", "queue_gate"]

_SWEEP_EVERY_S: Final = 1.0
_SWEEP_MOST: Final = 100
_SWEEP_LOOKS: Final = 1_000


class SharedGuards:
    """Breakers, limits and budgets of one worker process, for one event loop.

    `now` is the store's clock everywhere. An exchange goes like this: send `changes(now)`, or a round's changes, with
    `seen`; then `absorb` the reply; then `confirm`, or `finish`, with its `changed`. If no reply came,
    tell `lost`. One exchange with changes at a time.
    """

    def __init__(self) -> None:
        self._seen = Seen()
        self._registry = Registry()
        self._paused: set[str] = set()
        self._latest = -math.inf
        self._swept_at = -math.inf
        self._unswept: list[str] = []

    # ---- settings

    def add_breaker(self, key: str, config: BreakerConfig) -> None:
        """A breaker of this key; ConfigError if there is one with other settings."""
        self._registry.add_breaker(key, config, self._latest)

    def forget_breaker(self, key: str) -> None:
        """Drop a breaker that is closed and has nothing to say; it may be added again, and is as the store knows it."""
        self._registry.drop_breaker(key)

    def add_limit(self, name: str, rate: Rate) -> None:
        """A limit, or with a scope in its name one for each value of it; ConfigError if it has another rate."""
        self._registry.add_limit(name, rate, self._latest)

    def add_budget(self, key: str, config: BudgetConfig) -> None:
        """A retry budget of this key; ConfigError if there is one with other settings."""
        self._registry.add_budget(key, config, self._latest)

    # ---- what the store says

    @property
    def seen(self) -> int:
        """For `Exchange.seen`: the newest version that is known; 0 where all values are to be read, and then anew."""
        return self._seen.version

    def doubt(self) -> None:
        """Something that the store said turned out to be wrong: with the next exchange all values are read anew.

        Not while an exchange is under way.
        """
        self._seen.doubt()

    def absorb(self, reply: Exchanged) -> list[BreakerChanged]:
        """Take over what the store says, and answer which breakers are in another state than before, by whomever."""
        now = reply.now
        self._look_at_clock(now)
        changes = []
        values = [value for value in reply.values if value.version > self.seen]
        if self._seen.hear(self.seen, reply):
            values = [*self._gone(values), *values]
        for value in values:
            if value.key.startswith(QUEUE):
                self._absorb_queue(value)
                continue
            guard = self._registry.known(value)
            if guard is None:
                continue
            guard.absorb(value, now)
            if isinstance(guard, SharedLimit):
                self._registry.look(guard, now)
            elif isinstance(guard, SharedBreaker):
                state, before = guard.known.state, guard.told
                if state.mode is not before:
                    guard.told = state.mode
                    changes.append(BreakerChanged(guard.name, before, state.mode, state.period, state.cause))
        return changes

    def _gone(self, values: Sequence[Value]) -> Iterator[Value]:
        """The removal of all that is known and not among these, which are all that the store has."""
        known = {*map(queue_gate, self._paused), *self._registry.stored()}
        for key in known.difference(value.key for value in values):
            yield Value(key, 0, None)

    def _absorb_queue(self, value: Value) -> None:
        name = value.key.removeprefix(QUEUE)
        if is_paused(value.data):
            self._paused.add(name)
        else:
            self._paused.discard(name)

    # ---- what may be claimed

    def caps(self, now: float) -> dict[str, int]:
        """For `Claim.caps`: how many runs each gate lets begin now; gates that are not named let all."""
        self._look_at_clock(now)
        registry = self._registry
        caps = {queue_gate(name): 0 for name in self._paused}
        for breaker in registry.breakers.values():
            cap = None if breaker.is_closed else breaker.cap(now)
            if cap is not None:
                caps[breaker.key] = cap
        for name, rate in registry.rates.items():
            if not is_scoped(name):  # the gates of a scope are known by their values only
                caps[limit_gate(name)] = rate.burst
        for gate, limit in registry.tight.items():
            caps[gate] = limit.left(now)
        return caps

    def next_opening_s(self, now: float) -> float | None:
        """Seconds until the earliest cap of zero lifts by itself; None where there is none that does."""
        self._look_at_clock(now)
        registry = self._registry
        waits = [breaker.opens_in_s(now) for breaker in registry.breakers.values() if not breaker.is_closed]
        waits += [limit.opens_in_s(now) for limit in registry.tight.values()]
        return min((max(0.0, wait) for wait in waits if wait is not None), default=None)

    # ---- before a run

    def calm_go(self, breaker: str | None, now: float, *, earns: str | None = None) -> Go | None:
        """A Go that many runs may share, where nothing but this breaker is asked and it is closed for certain."""
        if breaker is None:
            return Go(earns=earns, at=now)
        permit = self._registry.breaker(breaker).free_permit()
        return None if permit is None else Go(breaker, permit, earns=earns, at=now)

    def is_good(self, go: Go, untold: int = 0) -> bool:
        """Whether a run may still begin: not when its breaker has opened since. From any thread.

        untold: failures that are still to be reported, and would be in a row with those that were.
        """
        permit = go.permit
        if go.breaker is None or permit is None or permit.trial is not None:
            return True
        breaker = self._registry.breaker(go.breaker)
        state, config = breaker.view.state, breaker.config
        if state.period != permit.period:
            return False
        return untold == 0 or config.failure_rate is not None or state.failures + untold < config.failure_threshold

    def is_late(self, go: Go, now: float) -> bool:
        """Whether a run that begins now begins too long after the instant that its limits know. From any thread."""
        return asking.is_late(self._registry, go, now)

    def opens_in_s(self, breaker: str, now: float) -> float | None:
        """Seconds until this breaker lets runs begin; None where it does now, or where nobody knows."""
        return self._registry.breaker(breaker).opens_in_s(now)

    def open_breakers(self, now: float) -> dict[str, float]:
        """Those that let nothing begin now, and for how many seconds still; 0 where nobody knows."""
        breakers = self._registry.breakers.items()
        return {key: breaker.opens_in_s(now) or 0.0 for key, breaker in breakers if breaker.cap(now) == 0}

    def ask(self, requests: Sequence[Request], now: float) -> Round:
        """Ask for permits, in this order. Without changes to send, the answers are there already."""
        self._look_at_clock(now)
        return asking.begin(self._registry, requests, now)

    def finish(self, question: Round, changed: Sequence[bool], now: float, *, took_s: float = 0.0) -> bool:
        """The store's answer to a round's changes, after `absorb` of the same reply. False: send its changes again.

        took_s: from the request to its reply; by so much at most it may be later than `now`, which the reply says.

        A request gets all it asked for or keeps nothing. After a few rounds in which others were quicker it is held.
        """
        self._look_at_clock(now)
        self._doubt(question.changes, changed)
        return asking.carry_on(self._registry, question, changed, now, took_s)

    def release(self, go: Go) -> None:
        """The run will not begin: what it was granted goes back, to be sent with the next changes."""
        keys = [*dict.fromkeys(go.limits)]
        if go.breaker is not None:
            keys.append(breaker_gate(go.breaker))
        if go.budget is not None:
            keys.append(budget_key(go.budget))
        asking.give_back(self._registry, go, keys)

    # ---- after a run

    def report(self, go: Go, outcome: Outcome, now: float, *, slow_s: float = 0.0, cause: str | None = None) -> None:
        """How a run ended. slow_s: how long it took. cause: the failure, in words."""
        registry = self._registry
        if go.breaker is not None and go.permit is not None:
            breaker = registry.breaker(go.breaker)
            breaker.report(go.permit, outcome, now, slow_s=slow_s, cause=cause)
            if breaker.notes:
                registry.mark(breaker)
        if go.earns is not None and outcome is SUCCESS:
            budget = registry.budget(go.earns)
            budget.earn()
            registry.mark(budget)

    @property
    def is_urgent(self) -> bool:
        """Whether a failure, or what came of a trial, waits to be sent: others should know at once."""
        return any(guard.is_urgent for guard in self._registry.pending.values())

    def changes(self, now: float) -> list[ValueChange]:
        """What has to be sent with the next exchange; empty where nothing changed."""
        self._look_at_clock(now)
        changes: list[ValueChange] = []
        for guard in list(self._registry.pending.values()):
            draft: Any = guard.draft(now)
            change = guard.change(draft, now) if guard.differs(draft) else None
            if change is not None:
                changes.append(change)
            else:
                guard.landed(guard.upto)
                self._registry.mark(guard)
        return changes + self._sweep(now)

    def confirm(self, changes: Sequence[ValueChange], changed: Sequence[bool], now: float) -> None:
        """The store's answer to those, after `absorb`. What did not take effect is worked out anew next time."""
        self._look_at_clock(now)
        self._doubt(changes, changed)
        for change, is_done in zip(changes, changed, strict=True):
            guard = self._registry.find(change.key)
            if is_done and guard is not None and isinstance(change, GuardChange):
                guard.landed(change.upto)
                self._registry.mark(guard)

    def lost(self, changes: Sequence[ValueChange]) -> None:
        """No reply came, so nobody knows what took effect.

        Failures may then count twice; nothing is earned twice, or given back twice.
        """
        for change in changes:
            guard = self._registry.find(change.key)
            if guard is not None and isinstance(change, GuardChange):
                guard.lost(change.upto)
                self._registry.mark(guard)

    # ---- looking

    def state_of(self, key: str, now: float) -> BreakerMode:
        """The state of one breaker."""
        return self._registry.breaker(key).state_at(now).mode

    def breaker_states(self, now: float) -> dict[str, BreakerMode]:
        """The states of all breakers."""
        return {key: breaker.state_at(now).mode for key, breaker in self._registry.breakers.items()}

    # ---- inside

    def _sweep(self, now: float) -> list[ValueChange]:
        """Remove limits that remember nothing, a few at a time."""
        if 0.0 <= now - self._swept_at < _SWEEP_EVERY_S:
            return []
        self._swept_at = now
        changes: list[ValueChange] = []
        limits = self._registry.limits
        self._unswept = self._unswept or list(limits)
        looked, self._unswept = self._unswept[:_SWEEP_LOOKS], self._unswept[_SWEEP_LOOKS:]
        for gate in looked:
            limit = limits.get(gate)
            if limit is None or not limit.is_idle(now):
                continue
            if limit.version == 0:
                self._registry.drop(gate)
            elif len(changes) < _SWEEP_MOST:
                changes.append(GuardChange(gate, limit.version, None))
        return changes

    def _look_at_clock(self, now: float) -> None:
        """If the clock was set back, no instant that is known may hold work until it has caught up."""
        if now < self._latest - SKEW_S:
            for guard in self._registry:
                guard.set_back(now)
            self._latest = now
        elif now > self._latest:
            self._latest = now

    def _doubt(self, changes: Sequence[ValueChange], changed: Sequence[bool]) -> None:
        """A change that was refused although nothing newer came: the store was set back, so read it all again."""
        for change, is_done in zip(changes, changed, strict=True):
            guard = self._registry.find(change.key)
            if not is_done and guard is not None and guard.version == change.expected:
                guard.forget()
                self.doubt()


class _QueueValue(msgspec.Struct):
    paused: bool = False


_decode_queue: Final = msgspec.json.Decoder(_QueueValue).decode


def is_paused(data: bytes | None) -> bool:
    """Whether a queue's value says that it is paused."""
    try:
        return data is not None and _decode_queue(data).paused
    except (ValueError, RecursionError):
        return False
