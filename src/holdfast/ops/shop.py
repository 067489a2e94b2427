"""The tasks of the demo's shop: three services, each as flaky as it is told to be."""

from __future__ import annotations

import json
import os
from urllib.request import urlopen

from holdfast import App, CircuitBreaker, RetryPolicy

app = App()

_settings: dict[str, str] = json.loads(os.environ.get("HOLDFAST_DEMO", "{}"))
_retry = RetryPolicy(max_retries=6, initial_delay=0.2, multiplier=2.0, max_delay=2.0)
NAMES = ("Ada Lovelace", "Grace Hopper", "Plato", "Edsger Dijkstra", "Barbara Liskov")
"""The shop's customers; one of them has no last name, which somebody forgot."""


def call(service: str, order: int) -> None:
    """One request to a service; raises what urllib raises."""
    with urlopen(f"{_settings[service]}/{order}", timeout=5) as answer:  # noqa: S310 - our own loopback URL
        answer.read()


@app.task(name="charge", retry=_retry, breaker=CircuitBreaker("payments", recovery_timeout=1.5), timeout=10)
def charge(order: int, cents: int) -> str:
    """Charge a customer; for nothing it is a mistake, which cannot heal."""
    if cents <= 0:
        raise ValueError(f"order {order} has nothing to pay")
    call("payments", order)
    return f"charged {cents}"


@app.task(name="ship", retry=_retry, breaker=CircuitBreaker("shipping", recovery_timeout=1.5), timeout=10)
def ship(order: int) -> str:
    """Send a parcel."""
    call("shipping", order)
    return "on its way"


@app.task(name="mail", retry=_retry, breaker=CircuitBreaker("mail", recovery_timeout=1.5), timeout=10)
def mail(order: int, name: str) -> str:
    """Thank a customer, by the last name; the first version does not think of those who have none."""
    words = name.split()
    last = words[1] if _settings.get("version") == "1" else words[-1]
    call("mail", order)
    return f"Dear {last}"
