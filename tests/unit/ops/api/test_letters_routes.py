"""Dead letters and replays over HTTP."""

from __future__ import annotations

import csv
import json

import pytest

from holdfast.errors import ConfigError
from holdfast.ports import Query
from holdfast.runtime.export import import_letters
from tests.unit.ops.api.shopfront import Shopfront, new_app, two_tenants


async def test_the_inbox_is_grouped_by_cause(front: Shopfront) -> None:
    await front.letters(500, 600, 5)
    inbox = await front.get("/dead-letters/groups")
    assert inbox["total"] == 2
    (group,) = inbox["items"]
    assert (group["count"], group["tasks"], group["failure_type"]) == (2, ["shop.charge"], "permanent")
    assert "s3cret" not in group["message"]
    page = await front.get("/dead-letters", group=group["fingerprint"])
    assert len(page["items"]) == 2
    assert (await front.get("/dead-letters/groups", failure_type="network"))["items"] == []


async def test_letters_are_the_same_under_retry(front: Shopfront) -> None:
    await front.letters(500)
    assert await front.get("/retry/dead-letters") == await front.get("/dead-letters")


async def test_one_that_is_no_dead_letter_is_not_found(front: Shopfront) -> None:
    (good,) = await front.letters(5)
    await front.get(f"/dead-letters/{good}", 404)
    await front.get("/dead-letters/no-such", 404)
    await front.post("/dead-letters/no-such/retry", status=404)
    await front.post(f"/dead-letters/{good}/retry", status=409)
    await front.ask("DELETE", f"/dead-letters/{good}", 409)


async def test_a_letter_goes_back_with_other_arguments_and_keeps_what_was_hidden(front: Shopfront) -> None:
    (dead,) = await front.letters(500, password="hunter2", note="postgres://a:s3cret@b/c")
    shown = (await front.get(f"/dead-letters/{dead}"))["arguments"]
    changed = await front.post(f"/dead-letters/{dead}/retry", {"arguments": shown | {"cents": 50}})
    assert changed == {"id": dead, "is_done": True, "state": "queued"}
    await front.app.arun_until_idle()
    record = (await front.app.jobs.aget(dead)).record
    assert json.loads(record.payload) == {
        "order_id": 0,
        "cents": 50,
        "password": "hunter2",
        "note": "postgres://a:s3cret@b/c",
    }
    assert record.state == "completed"
    job = await front.get(f"/jobs/{dead}")
    assert job["original_arguments"]["cents"] == 500
    assert job["original_arguments"]["password"] == "[redacted]"


async def test_arguments_that_do_not_fit_leave_the_letter_where_it_is(front: Shopfront) -> None:
    (dead,) = await front.letters(500)
    await front.post(f"/dead-letters/{dead}/retry", {"arguments": {"order_id": "seven"}}, status=422)
    await front.post(f"/dead-letters/{dead}/retry", {"arguments": {"order_id": 1, "note": "[redacted]"}}, status=422)
    await front.get(f"/dead-letters/{dead}")


async def test_a_letter_is_retried_by_its_other_name_without_a_body(front: Shopfront) -> None:
    (dead,) = await front.letters(500)
    assert (await front.post(f"/retry/dead-letters/{dead}/retry"))["is_done"]


async def test_letters_are_removed_one_by_one_or_by_age(front: Shopfront) -> None:
    first, *_ = await front.letters(500, 600, 700)
    assert await front.ask("DELETE", f"/dead-letters/{first}") == {"removed": 1}
    assert await front.ask("DELETE", "/dead-letters", params={"older_than_hours": 1}) == {"removed": 0}
    assert await front.ask("DELETE", "/retry/dead-letters", params={"older_than_hours": 0}) == {"removed": 2}
    await front.ask("DELETE", "/dead-letters", 422)


async def test_an_export_has_every_attempt_and_no_secret(front: Shopfront) -> None:
    await front.letters(500, 600, password="hunter2")
    text = (await front.client.get("/dead-letters/export")).text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["payload"]["cents"] for line in lines] == [600, 500]
    assert all(len(line["attempts"]) == 1 for line in lines)
    assert "hunter2" not in text
    assert "s3cret" not in text


async def test_an_export_says_what_it_left_out_and_is_not_imported_then(front: Shopfront) -> None:
    await front.letters(500)
    await front.letters(600, password="hunter2", note="postgres://a:s3cret@b/c")
    lines = (await front.client.get("/dead-letters/export")).text.splitlines()
    marks = [json.loads(line)["redacted"] for line in lines]
    assert marks == [["/payload/password", "/payload/note"], []]
    store = new_app().store
    with pytest.raises(ConfigError, match="line 2: /payload/password was left out as a secret"):
        await import_letters(store, [lines[1], lines[0]])
    assert (await store.find(Query())).items == []
    assert (await import_letters(store, lines[1:])).new == 1


async def test_no_cell_of_a_table_is_a_formula(front: Shopfront) -> None:
    job = await front.app.tasks["shop.charge"].options(user="=1+1", tenant="-2", project="@x").aenqueue(1, 500)
    await front.app.arun_until_idle()
    answer = await front.client.get("/dead-letters/export", params={"format": "csv"})
    assert answer.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(answer.text.splitlines())
    assert row["id"] == job.id
    assert (row["user"], row["tenant"], row["project"]) == ("'=1+1", "'-2", "'@x")


async def test_a_replay_is_previewed_started_steered_and_listed(front: Shopfront) -> None:
    await front.letters(500, 600, password="hunter2")
    asked = {"filter": {"task": "shop.charge"}, "edit": {"cents": 5}, "canary": 1, "rate": 10, "replay_id": "r/1"}
    preview = await front.post("/replays/preview", asked)
    assert preview["total"] == 2
    assert {one["arguments"]["cents"] for one in preview["sample"]} == {5}
    assert "hunter2" not in str(preview)
    assert (await front.get("/replays"))["items"] == []
    started = await front.post("/replays", asked | {"replay_id": "r-1"}, status=201)
    assert (started["id"], started["state"], started["verdict"], started["total"]) == ("r-1", "running", "waiting", 2)
    assert (await front.post("/replays/r-1/pause"))["state"] == "paused"
    assert (await front.post("/replays/r-1/resume"))["state"] == "running"
    assert (await front.post("/replays/r-1/stop"))["reason"] == "stopped by local"
    assert [one["id"] for one in (await front.get("/replays"))["items"]] == ["r-1"]
    await front.post("/replays/none/stop", status=404)


async def test_an_edit_with_a_hidden_value_is_refused(front: Shopfront) -> None:
    await front.letters(500)
    problem = await front.post("/replays", {"edit": {"deep": [{"password": "[redacted]"}]}}, status=422)
    assert "[redacted]" in problem["detail"]


async def test_a_tenant_replays_and_sees_its_own_letters_alone() -> None:
    app = new_app()
    front, clients = two_tenants(app)
    await front.letters(500, tenant="a")
    (other,) = await front.letters(600, tenant="b")
    a = clients["a"]
    assert (await a.get("/dead-letters/groups")).json()["total"] == 1
    assert other not in (await a.get("/dead-letters/export", params={"tenant": "b"})).text
    assert (await a.get(f"/dead-letters/{other}")).status_code == 404
    assert (await a.request("DELETE", f"/dead-letters/{other}")).status_code == 404
    assert (await a.request("DELETE", "/dead-letters", params={"older_than_hours": 0})).status_code == 403
    started = (await a.post("/replays", json={"filter": {"tenant": "b"}, "replay_id": "mine"})).json()
    assert (started["tenant"], started["total"]) == ("a", 1)
    whole = (await clients["admin"].post("/replays", json={"replay_id": "all"})).json()
    assert whole["total"] == 2
    assert [one["id"] for one in (await a.get("/replays")).json()["items"]] == ["mine"]
    assert (await a.post("/replays/all/stop")).status_code == 404
    again = await a.post("/replays", json={"replay_id": "all"})  # an id of somebody else is not known to be taken
    assert (again.status_code, again.json()["id"], again.json()["tenant"]) == (201, "all", "a")
    assert (await clients["admin"].post("/replays/all/pause")).json()["tenant"] is None
    await app.aclose()
