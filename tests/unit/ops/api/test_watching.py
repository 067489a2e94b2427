"""How everything is, over HTTP."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from holdfast.errors import StoreError
from holdfast.ops.api import ApiSettings
from holdfast.ports import Count, Exchange
from holdfast.testing import ManualClock
from tests.unit.ops.api.shopfront import BASE, Shopfront, new_app, turns, two_tenants


async def test_the_overview_counts_what_there_is(front: Shopfront) -> None:
    await front.letters(5, 6, 500)
    await front.app.tasks["mail/send"].aenqueue([])
    await front.post("/breakers/mail%2Fer/force-open")
    overview = await front.get("/overview")
    assert overview["states"] == {"completed": 2, "dead_letter": 1, "queued": 1}
    assert overview["dead_letters"] == 1
    assert overview["success_rate"] == pytest.approx(2 / 3)
    assert overview["failures_by_type"] == {"permanent": 1}
    assert overview["open_breakers"] == ["mail/er"]
    assert [queue["name"] for queue in overview["queues"]] == ["default", "mail/out"]
    assert len(overview["minutes"]) == 60
    assert sum(minute["completed"] for minute in overview["minutes"]) == 2
    assert overview["store"] == "memory://"
    assert not overview["is_durable"]
    assert overview["reasons"] == [
        "33 % of attempts failed in 5 minutes",
        "breaker mail/er is open",
        "jobs are due and no worker is alive",
        "1 job became dead letters in 5 minutes",
    ]


async def test_the_percentiles_of_a_minute_come_out_of_its_histogram(front: Shopfront) -> None:
    now = (await front.app.store.exchange(Exchange())).now
    counts = [Count(int(now // 60), "", f"run_le:{bucket}", 50) for bucket in (0, 4)]
    await front.app.store.exchange(Exchange(counts=counts))
    minute = (await front.get("/overview"))["minutes"][-1]
    assert minute["run_p50_s"] == pytest.approx(0.005)
    assert minute["run_p95_s"] == pytest.approx(0.095)
    assert minute["wait_p50_s"] is None


async def test_health_has_the_shape_of_c6_and_is_503_when_unhealthy(front: Shopfront) -> None:
    health = await front.get("/health")
    assert health["healthy"]
    assert health["reasons"] == []
    assert set(health["checks"]["store"]) == {"status", "duration", "error"}
    store = front.faulty()
    store.fail("exchange")
    answer = await front.client.get("/health")
    assert answer.status_code == 503
    assert not answer.json()["healthy"]
    assert answer.json()["reasons"] == ["check store failed"]
    assert answer.json()["checks"]["store"]["status"] == "failed"


async def test_a_server_lives_without_its_store_but_is_not_ready(front: Shopfront) -> None:
    assert (await front.get("/health/ready"))["status"] == "ok"
    store = front.faulty()
    store.fail()
    front.server.live._reached_s = None  # what was seen half a second ago still counts
    assert (await front.get("/health/live"))["status"] == "ok"
    answer = await front.client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json() == {"status": "failed", "reason": "the store is away"}


async def test_while_the_store_is_away_reading_is_503(front: Shopfront) -> None:
    front.faulty().fail()
    for path in ("/jobs", "/dead-letters", "/dead-letters/groups", "/overview", "/breakers", "/workers", "/replays"):
        answer = await front.client.get(path)
        assert answer.status_code == 503, path
        assert answer.headers["retry-after"] == "2"
    assert (await front.client.get("/metrics")).status_code == 200


async def test_a_store_of_another_version_is_503_for_readers_and_507_for_writers(front: Shopfront) -> None:
    front.faulty().fail(error=StoreError("the tables are of version 9"))
    assert (await front.client.get("/jobs")).status_code == 503
    await front.post("/queues/x/pause", status=507)


async def test_metrics_are_prometheus_text(front: Shopfront) -> None:
    await front.letters(500)
    answer = await front.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'holdfast_dead_letters{task="shop.charge"} 1' in answer.text


async def hang() -> None:
    await asyncio.get_running_loop().create_future()


async def test_metrics_wait_neither_for_a_check_that_hangs_nor_for_a_store_that_does() -> None:
    still = ManualClock(auto=False)
    app = new_app(clock=still)
    front = Shopfront(app)
    assert "holdfast_health_score" in (await front.client.get("/metrics")).text
    app.health_check("vendor", hang, timeout=20.0)
    store = front.faulty()
    store.fail(fault="hang")
    began = still.monotonic()
    still.advance(5.0)  # what is known of the health is old now
    scrape = asyncio.ensure_future(front.client.get("/metrics"))
    while not scrape.done():
        await turns()
        still.advance(0.5)
    assert still.monotonic() - began - 5.0 <= 4.5
    assert "holdfast_store_up 0" in scrape.result().text
    assert "holdfast_health_score" in scrape.result().text  # of seconds ago
    still.advance(20.0)  # now the check has had its time
    await turns()
    scrape = asyncio.ensure_future(front.client.get("/metrics"))
    while not scrape.done():
        await turns()
        still.advance(0.5)
    assert "holdfast_health_score 0.0" in scrape.result().text
    store.mend()
    still.advance(20.0)
    await turns()
    await app.aclose()


async def test_a_score_that_is_a_minute_old_is_not_told() -> None:
    still = ManualClock(auto=False)
    app = new_app(clock=still)
    front = Shopfront(app)
    assert await front.server.live.score() == 1.0
    app.health_check("vendor", hang, timeout=600.0)
    for wait_s, expected in ((30.0, 1.0), (31.0, None)):
        still.advance(wait_s)
        asked = asyncio.ensure_future(front.server.live.score())
        await turns()
        still.advance(1.0)
        assert await asked == expected
    still.advance(600.0)
    await turns()
    await app.aclose()


async def test_the_session_says_who_asks_and_what_they_may() -> None:
    app = new_app()
    front, clients = two_tenants(app)
    session = (await clients["a"].get("/session")).json()
    assert (session["name"], session["role"], session["tenant"], session["is_open"]) == ("a", "operator", "a", False)
    nobody = (await front.client.get("/session")).json()
    assert (nobody["name"], nobody["role"], nobody["tenant"], nobody["is_open"]) == ("", None, None, False)
    assert (await front.client.get("/session", headers={"Authorization": "Bearer hf_x"})).status_code == 401
    old = await front.client.get("/session", headers={"Cookie": "holdfast_session=hf_old"})
    assert (old.status_code, old.json()["role"]) == (200, None)
    await app.aclose()


async def test_signing_in_sets_a_cookie_that_works_until_signing_out() -> None:
    app = new_app()
    front, clients = two_tenants(app)
    token = clients["viewer"].headers["authorization"].removeprefix("Bearer ")
    origin = {"Origin": "http://127.0.0.1:8080"}
    assert (await front.client.post("/session", json={"token": "hf_x_y"}, headers=origin)).status_code == 401
    signed_in = await front.client.post("/session", json={"token": token}, headers=origin)
    assert signed_in.json()["name"] == "viewer"
    assert "HttpOnly" in signed_in.headers["set-cookie"]
    assert (await front.client.get("/session")).json()["role"] == "viewer"
    assert (await front.client.delete("/session", headers=origin)).status_code == 204
    assert (await front.client.get("/session")).json()["role"] is None
    assert (await front.client.get("/jobs")).status_code == 401
    await app.aclose()


async def test_where_nobody_can_sign_in_whoever_asks_from_elsewhere_is_told_why() -> None:
    app = new_app()
    front = Shopfront(app)
    transport = httpx.ASGITransport(app=front.api, client=("203.0.113.9", 5000))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as stranger:
        answer = await stranger.get("/session")
    assert answer.status_code == 401
    assert "this server has no tokens" in answer.json()["detail"]
    await app.aclose()


async def test_where_no_tokens_are_asked_for_there_is_nothing_to_sign_in_to(front: Shopfront) -> None:
    assert (await front.get("/session"))["is_open"]
    await front.post("/session", {"token": "x"}, status=409)


async def test_a_read_only_api_refuses_every_change_but_not_a_preview() -> None:
    front = Shopfront(new_app(), ApiSettings(read_only=True))
    await front.letters(500)
    await front.post("/jobs", {"task": "shop.charge"}, status=403)
    await front.post("/queues/default/pause", status=403)
    assert (await front.post("/replays/preview", {}))["total"] == 1
    assert (await front.get("/session"))["is_read_only"]
    await front.app.aclose()
