"""A failure that never happened, on a real breaker: to see what would open, and who is told."""

from __future__ import annotations

from typing import Final

from holdfast.app import App
from holdfast.errors import HoldfastError
from holdfast.policy.breaker import FAILURE, BreakerConfig, Permit
from holdfast.ports import Exchange
from holdfast.runtime.shared.breakers import SharedBreaker
from holdfast.runtime.shared.names import breaker_gate

_CAUSE: Final = "a simulated failure"
_ATTEMPTS: Final = 20


async def simulate(app: App, key: str, config: BreakerConfig) -> None:
    """Count one failure on the shared breaker, as a worker's failed run would; compare and set until it is done.

    As with a run: one that is open lets none through, so none is counted; a half-open one opens again.
    """
    breaker = SharedBreaker(key, config)
    gate = breaker_gate(key)
    for _ in range(_ATTEMPTS):
        reply = await app.store.exchange(Exchange())
        for value in reply.values:
            if value.key == gate:
                breaker.absorb(value, reply.now)
        state, permit = breaker.take(breaker.known, reply.now)
        if not isinstance(permit, Permit):
            return
        breaker.known = state
        breaker.report(permit, FAILURE, reply.now, cause=_CAUSE)
        change = breaker.change(breaker.view, reply.now)
        breaker.landed(breaker.upto)
        if change is None:
            return
        answer = await app.store.exchange(Exchange(changes=[change], seen=change.expected))
        if answer.changed[0]:
            return
        breaker.forget()
    raise HoldfastError(f"breaker {key!r} is being changed by others all the time")
