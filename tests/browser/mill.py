"""A mill whose stream fails until somebody mends it; `holdfast dev` runs it, its topics in memory."""

from __future__ import annotations

from holdfast import App, Permanent, RetryPolicy
from holdfast.types import Outgoing
from tests.browser.shop import is_mended

app = App()


@app.stream("memory://grain", group="mill", name="grind", breaker=None, retry=RetryPolicy(max_retries=0))
async def grind(sack: dict[str, int]) -> None:
    """Stands still until somebody mends it, so that a replay heals."""
    if not is_mended("mill"):
        raise Permanent(f"sack {sack['number']} is stuck in the mill")


@app.task(name="deliver", breaker=None)
async def deliver(number: int) -> None:
    """Bring a sack to the mill."""
    source = app.open_source(app.stream_specs["grind"])
    await source.send([Outgoing("grain", b'{"number": %d}' % number, key=b"farm-7")])
    await source.close()
