"""`POST /jobs`."""

from __future__ import annotations

from typing import Any, get_type_hints

import msgspec
import pytest
from opentelemetry import trace

from holdfast.errors import StoreAway, StoreError
from holdfast.ops.api.schemas import NewJobRequest
from holdfast.ops.api.submit import NewJobBody
from tests.unit.ops.api.shopfront import Shopfront, new_app, two_tenants

ORDER = {"task": "shop.charge", "arguments": {"order_id": 7, "cents": 9}}


async def test_a_new_job_is_in_the_store_when_the_answer_is_there(front: Shopfront) -> None:
    answer = await front.post(
        "/jobs",
        ORDER | {"queue": "fast", "priority": 3, "delay_s": 60, "tenant": "t", "user": "u", "project": "p"},
        status=201,
    )
    assert answer["is_new"]
    assert answer["state"] == "queued"
    job = await front.get(f"/jobs/{answer['id']}")
    assert job["arguments"] == {"order_id": 7, "cents": 9}
    assert (job["queue"], job["priority"], job["tenant"], job["user"], job["project"]) == ("fast", 3, "t", "u", "p")
    assert job["due_at"] == pytest.approx(job["created_at"] + 60)


async def test_a_job_carries_the_trace_of_whoever_asked_for_it(front: Shopfront) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    headers = {"traceparent": parent, "tracestate": "vendor=x"}
    made = await front.ask("POST", "/jobs", 201, json=ORDER, headers=headers)
    assert (await front.get(f"/jobs/{made['id']}"))["trace"] == f"{parent} vendor=x"
    made = await front.ask("POST", "/jobs", 201, json=ORDER, headers={"traceparent": "00-nonsense"})
    assert (await front.get(f"/jobs/{made['id']}"))["trace"] is None


async def test_a_span_of_this_server_comes_before_the_callers_header(front: Shopfront) -> None:
    ours = trace.SpanContext(trace_id=5, span_id=7, is_remote=False, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(ours)):
        headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
        made = await front.ask("POST", "/jobs", 201, json=ORDER, headers=headers)
    assert (await front.get(f"/jobs/{made['id']}"))["trace"] == f"00-{5:032x}-{7:016x}-01"


async def test_a_job_keeps_the_gates_of_its_task(front: Shopfront) -> None:
    await front.post("/breakers/shop.charge/force-open")
    made = await front.post("/jobs", ORDER, status=201)
    await front.app.arun_until_idle()
    assert (await front.get(f"/jobs/{made['id']}"))["state"] == "queued"


async def test_a_second_job_with_the_same_key_is_the_first_one(front: Shopfront) -> None:
    first = await front.post("/jobs", ORDER | {"idempotency_key": "k"}, status=201)
    again = await front.post("/jobs", ORDER | {"idempotency_key": "k"}, status=200)
    assert again == {"id": first["id"], "is_new": False, "state": "queued"}


async def test_a_key_means_the_same_call_from_python_and_over_http(front: Shopfront) -> None:
    first = await front.app.tasks["shop.charge"].options(idempotency_key="k").aenqueue(7, 9)
    again = await front.post("/jobs", ORDER | {"idempotency_key": "k"}, status=200)
    assert again["id"] == first.id


async def test_a_key_with_other_arguments_is_a_conflict(front: Shopfront) -> None:
    await front.post("/jobs", ORDER | {"idempotency_key": "k"}, status=201)
    other = {"task": "shop.charge", "arguments": {"order_id": 8}, "idempotency_key": "k"}
    assert "taken by job" in (await front.post("/jobs", other, status=409))["detail"]


async def test_an_unknown_task_is_not_found(front: Shopfront) -> None:
    assert "no.such" in (await front.post("/jobs", {"task": "no.such"}, status=404))["detail"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.task"),
        ({"task": ""}, "body.task"),
        (ORDER | {"priority": 1001}, "body.priority"),
        (ORDER | {"delay_s": -1}, "body.delay_s"),
        (ORDER | {"argument": 1}, "body.argument"),
        (ORDER | {"idempotency_key": ""}, "body.idempotency_key"),
        (ORDER | {"user": "u" * 201}, "body.user"),
        ([], "body"),
        ({"task": "shop.charge", "arguments": {"order_id": "seven"}}, "body.arguments"),
        ({"task": "shop.charge", "arguments": {}}, "body.arguments"),
        ({"task": "shop.charge", "arguments": []}, "body.arguments"),
    ],
)
async def test_a_wrong_body_is_refused_with_the_place_that_is_wrong(front: Shopfront, body: Any, where: str) -> None:
    problem = await front.post("/jobs", body, status=422)
    assert problem["errors"][0]["where"] == where
    assert (await front.get("/jobs"))["items"] == []


async def test_what_cannot_be_a_name_is_refused(front: Shopfront) -> None:
    await front.post("/jobs", ORDER | {"queue": "a\u0000b"}, status=422)


async def test_a_body_that_is_no_json_is_refused(front: Shopfront) -> None:
    await front.ask("POST", "/jobs", 422, content=b'{"task":', headers={"Content-Type": "application/json"})


async def test_no_text_is_taken_for_a_number(front: Shopfront) -> None:
    await front.post("/jobs", ORDER | {"priority": "5"}, status=422)
    await front.post("/jobs", ORDER | {"delay_s": "5"}, status=422)
    await front.post("/replays/preview", {"filter": {"since": "5"}}, status=422)


async def test_while_the_store_is_away_the_client_is_told_when_to_ask_again(front: Shopfront) -> None:
    front.faulty().fail("enqueue", error=StoreAway("no connection to postgres://shop:s3cret@db/shop"))
    answer = await front.client.post("/jobs", json=ORDER)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"
    assert "s3cret" not in answer.text


async def test_a_store_that_cannot_write_is_507(front: Shopfront) -> None:
    front.faulty().fail("enqueue", error=StoreError("the disk is full"))
    assert (await front.post("/jobs", ORDER, status=507))["detail"] == "the disk is full"


async def test_a_bug_is_500_with_an_id_that_the_log_has_too(
    front: Shopfront, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: object) -> None:
        raise ZeroDivisionError("s3cret")

    monkeypatch.setattr(front.app.tasks["shop.charge"], "new_job", broken)
    problem = await front.post("/jobs", ORDER, status=500)
    assert "s3cret" not in problem["detail"]
    assert problem["detail"].rpartition(" ")[2] in caplog.text


async def test_a_job_of_a_tenants_token_is_the_tenants_whatever_it_says() -> None:
    app = new_app()
    _, clients = two_tenants(app)
    made = (await clients["a"].post("/jobs", json=ORDER | {"tenant": "b"})).json()
    assert (await app.jobs.aget(made["id"])).record.tenant == "a"
    assert (await clients["viewer"].post("/jobs", json=ORDER)).status_code == 403
    await app.aclose()


def test_what_is_read_quickly_has_the_fields_and_bounds_of_what_is_documented() -> None:
    kinds = get_type_hints(NewJobBody, include_extras=True)
    del kinds["arguments"]  # bytes here, an object there
    schemas, _ = msgspec.json.schema_components(kinds.values())
    quick = dict(zip(kinds, schemas, strict=True))
    slow = NewJobRequest.model_json_schema()["properties"]
    assert slow.pop("arguments")["type"] == "object"

    def bounds(schema: dict[str, Any]) -> dict[str, Any]:
        names = ("minLength", "maxLength", "minimum", "maximum")
        parts = [schema, *schema.get("anyOf", ())]
        return {name: part[name] for part in parts for name in names if name in part}

    assert {name: bounds(one) for name, one in quick.items()} == {name: bounds(one) for name, one in slow.items()}
