"""What all workers share, over HTTP; names may have slashes."""

from __future__ import annotations

import pytest

from tests.unit.ops.api.shopfront import Shopfront, new_app, two_tenants


async def test_tasks_are_listed_with_the_schema_of_their_arguments(front: Shopfront) -> None:
    mail, charge = (await front.get("/tasks"))["items"]
    assert (mail["name"], mail["queue"], mail["breaker"]) == ("mail/send", "mail/out", "mail/er")
    assert charge["arguments_schema"]["properties"]["cents"] == {"type": "integer", "default": 5}


async def test_arguments_are_checked_without_a_job(front: Shopfront) -> None:
    good = await front.post("/tasks/mail%2Fsend/validate", {"arguments": {"to": ["a"]}})
    assert good == {"is_valid": True, "errors": []}
    bad = await front.post("/tasks/shop.charge/validate", {"arguments": {"order_id": "x"}})
    assert not bad["is_valid"]
    assert "order_id" in bad["errors"][0]["message"]
    await front.post("/tasks/none/validate", {"arguments": {}}, status=404)
    assert (await front.get("/jobs"))["items"] == []


async def test_a_breaker_is_forced_open_and_reset_by_its_key(front: Shopfront) -> None:
    opened = await front.post("/breakers/mail%2Fer/force-open")
    assert (opened["key"], opened["state"], opened["tasks"]) == ("mail/er", "forced_open", ["mail/send"])
    assert opened["window"] == "5 in a row"
    await front.post("/breakers/mail%2Fer/disable", status=409)
    assert (await front.post("/breakers/mail%2Fer/reset"))["state"] == "closed"
    assert (await front.post("/breakers/mail%2Fer/disable"))["state"] == "disabled"
    await front.post("/breakers/none/reset", status=404)
    assert [one["key"] for one in (await front.get("/breakers"))["items"]] == ["mail/er", "shop.charge"]


async def test_a_breaker_is_reset_by_the_name_of_its_task_too(front: Shopfront) -> None:
    await front.post("/breakers/mail%2Fer/force-open")
    assert (await front.post("/retry/circuit-breakers/mail%2Fsend/reset"))["state"] == "closed"
    assert await front.get("/retry/circuit-breakers") == await front.get("/breakers")


async def test_a_queue_is_paused_and_resumed(front: Shopfront) -> None:
    await front.app.tasks["mail/send"].aenqueue(["x"])
    paused = await front.post("/queues/mail%2Fout/pause")
    assert (paused["name"], paused["is_paused"], paused["depth"]) == ("mail/out", True, 1)
    await front.app.arun_until_idle()
    (queue,) = (await front.get("/queues"))["items"]
    assert queue["states"] == {"queued": 1}
    assert not (await front.post("/queues/mail%2Fout/resume"))["is_paused"]
    await front.post("/queues/a%00b/pause", status=422)


async def test_a_schedule_is_paused_and_resumed(front: Shopfront) -> None:
    assert (await front.post("/schedules/night%2Fly/pause"))["is_paused"]
    (schedule,) = (await front.get("/schedules"))["items"]
    assert (schedule["name"], schedule["next_at"]) == ("night/ly", None)
    assert (await front.post("/schedules/night%2Fly/resume"))["next_at"] is not None
    await front.post("/schedules/none/pause", status=404)


async def test_there_are_no_workers_until_one_runs(front: Shopfront) -> None:
    assert (await front.get("/workers"))["items"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/breakers"),
        ("POST", "/breakers/x/reset"),
        ("GET", "/queues"),
        ("POST", "/queues/x/pause"),
        ("GET", "/workers"),
        ("GET", "/schedules"),
        ("GET", "/streams"),
        ("GET", "/overview"),
        ("GET", "/metrics"),
        ("GET", "/retry/stats"),
        ("GET", "/retry/circuit-breakers"),
        ("POST", "/retry/simulate-failure?task_type=shop.charge"),
        ("GET", "/alerts"),
        ("GET", "/audit"),
    ],
)
async def test_what_is_the_whole_fleets_is_not_for_one_tenant(method: str, path: str) -> None:
    app = new_app()
    _, clients = two_tenants(app)
    assert (await clients["a"].request(method, path)).status_code == 403
    await app.aclose()
