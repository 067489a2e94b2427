"""`holdfast demo`: a guarded call through the troubles of a real local service, told step by step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.error import HTTPError
from urllib.request import urlopen

from holdfast.clock import SystemClock
from holdfast.errors import CircuitOpenError, Refused
from holdfast.ops.flaky_server import FlakyServer, Mood
from holdfast.policy.classify import classify
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Clock
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.guards.policy import Policy
from holdfast.types import BreakerChanged, RetryScheduled

Tell = Callable[[str, str], None]
"""Told a kind ("scene", "event", "result", "summary") and a line."""

RECOVERY_S = 1.5
CUSTOMERS = 1_000


@dataclass
class Demo:
    """The story, and whether it came out as promised."""

    tell: Tell
    clock: Clock = field(default_factory=SystemClock)
    surprises: list[str] = field(default_factory=list)

    def run(self) -> bool:
        """Tell it all; True when every promise held."""
        logging.getLogger("holdfast").addHandler(logging.NullHandler())  # told below in the story's own words
        with FlakyServer() as service:
            self._tell_all(service)
        return not self.surprises

    def _tell_all(self, service: FlakyServer) -> None:
        breaker = CircuitBreaker("payments", recovery_timeout=RECOVERY_S, clock=self.clock, on_change=self._on_change)
        policy = Policy(
            retry=RetryPolicy(max_retries=3, initial_delay=0.2, multiplier=2.0, jitter=False),
            breaker=breaker,
            on_retry=self._on_retry,
            clock=self.clock,
        )

        @policy
        def charge(order: int) -> str:
            with urlopen(f"{service.url}/charge/{order}", timeout=5) as answer:  # noqa: S310 - our own loopback URL
                return f"charged ({answer.status})"

        self.tell(
            "scene", f"A payment service runs on {service.url}. charge(order) calls it under a Policy: up to 3 retries"
        )
        self.tell("scene", f"and a breaker that opens after 5 failures in a row, for {RECOVERY_S} s.")
        self._expect(charge, 1, "charged (200)")

        self.tell("scene", "The network hiccups: two connections are reset. A failure that can heal is tried again.")
        service.answer_next(Mood.RESETTING, Mood.RESETTING)
        self._expect(charge, 2, "charged (200)")

        self.tell("scene", "The service asks to slow down: 429, Retry-After: 1. It is taken at its word.")
        service.answer_next(Mood.BUSY)
        began_at = self.clock.monotonic()
        self._expect(charge, 3, "charged (200)")
        waited_s = self.clock.monotonic() - began_at
        self._check(1.0 <= waited_s < 5.0, "order 3 waits as long as it is asked to")

        self.tell("scene", "An order is malformed: 422. Trying again cannot help, so nobody does.")
        service.answer_next(Mood.REJECTING)
        before = service.requests
        self._expect(charge, 4, "VALIDATION")
        self._check(service.requests == before + 1, "one request for the malformed order")

        self.tell("scene", "The service goes down: 503. Retries do not heal it, and the breaker opens.")
        service.mood = Mood.DOWN
        self._expect(charge, 5, "TRANSIENT")
        self._expect(charge, 6, "TRANSIENT")
        self._check(breaker.state == "open", "the breaker is open")

        self.tell("scene", f"{CUSTOMERS:,} customers press the button meanwhile. None of them adds to the outage.")
        before = service.requests
        refused = sum(self._is_refused(charge, order) for order in range(7, 7 + CUSTOMERS))
        self.tell("result", f"{refused} calls refused at once, {service.requests - before} requests sent")
        self._check(refused == CUSTOMERS and service.requests == before, "no request while the breaker is open")

        self.tell(
            "scene", f"The service heals. After {RECOVERY_S} s trial calls are let through, and the breaker closes."
        )
        service.mood = Mood.WELL
        self.clock.sleep(RECOVERY_S)
        for order in (7, 8, 9):
            self._expect(charge, order, "charged (200)")
        self._check(breaker.state == "closed", "the breaker is closed")
        loop = 4 * CUSTOMERS
        self.tell("summary", f"{service.requests} requests reached it; a loop of 4 attempts sends over {loop:,}.")

    def _expect(self, charge: Callable[[int], str], order: int, expected: str) -> None:
        try:
            outcome = charge(order)
        except (OSError, Refused) as error:
            failure = classify(error)
            outcome = failure.type.name
            self.tell("result", f"order {order}: {failure.error_name}: {failure.message} ({outcome})")
            if isinstance(error, HTTPError):
                error.close()
        else:
            self.tell("result", f"order {order}: {outcome}")
        self._check(outcome == expected, f"order {order}: {expected}")

    def _is_refused(self, charge: Callable[[int], str], order: int) -> bool:
        try:
            charge(order)
        except CircuitOpenError:
            return True
        except OSError:
            return False
        return False

    def _check(self, is_so: bool, promise: str) -> None:
        if not is_so:
            self.surprises.append(promise)

    def _on_retry(self, event: RetryScheduled) -> None:
        failure = event.failure
        self.tell("event", f"attempt {event.attempt} failed: {failure.type.name}; again in {event.delay_s:g} s")

    def _on_change(self, event: BreakerChanged) -> None:
        self.tell("event", f"breaker {event.name}: {event.before.value} → {event.after.value}")
