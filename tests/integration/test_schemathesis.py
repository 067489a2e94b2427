"""The API is as its document says, whatever is sent: no 5xx, no undocumented answer, no answer of another shape."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast import App, Permanent
from holdfast.ops.api import ApiSettings, build_api
from holdfast.ops.api.tokens import make_token
from holdfast.types import Outgoing
from tests.unit.crawled import crawl_report, crawling, domain, page_letter
from tests.unit.reported import part, reported, stream_report

EXAMPLES = 2
TOKEN = make_token(name="tester", role="admin")


def _api() -> FastAPI:
    app = App("memory://")

    @app.task(name="charge")
    def charge(order_id: int, cents: int = 5) -> str:
        if cents > 100:
            raise Permanent("declined")
        return "charged"

    @app.stream("memory://orders", group="billing", name="bill")
    async def bill(order: dict[str, Any]) -> None:
        raise Permanent("declined")

    async def given_up() -> None:
        async with app.streams.source_of(app.stream_specs["bill"]) as source:
            await source.send([Outgoing("orders", b"{}", b"key")])
        await reported(app, stream_report("bill", part(0, lag=3, position=7, stuck_id="orders/0/7", stuck_s=1.5)))
        await crawling(app, crawl_report("shop", domain(latency_s=0.5), domain("slow.example", held_s=9.0, why="429")))
        await app.store.enqueue([page_letter("shop", depth=1)])

    app.bridge.run(given_up())
    app.schedule(charge.bind(1), every=60, name="nightly")
    app.enqueue_many([charge.bind(i, 500 * (i == 0)) for i in range(50)])
    app.run_until_idle()
    limits: dict[str, Any] = {"rate": None, "read_rate": None, "submit_rate": None}
    return build_api(app, ApiSettings(tokens=[TOKEN.token], hosts=["testserver"], allows_simulation=True, **limits))


# `/events` does not end. A request that fits the document may still be refused: arguments have types of their own. And
# `/health` is 503 when what the other cases do has made the app unhealthy.
schema = schemathesis.openapi.from_asgi("/openapi.json", _api()).exclude(path="/events")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_is_a_documented_one(case: schemathesis.Case[Any]) -> None:
    excluded: list[Any] = [positive_data_acceptance, *([not_a_server_error] if case.path == "/health" else [])]
    case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN.text}"}, excluded_checks=excluded)
