"""The tasks of bench-api; the store is the one that HOLDFAST_URL names."""

from __future__ import annotations

from holdfast import App

app = App()


@app.task(name="charge")
def charge(order: int, cents: int, note: str = "") -> None:
    """What is submitted over HTTP, and what the lists show."""
