"""Streams over HTTP: as their workers reported them last, without secrets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from holdfast import Permanent
from holdfast.ops.api.live import LOOK_S
from holdfast.ports import Operation
from holdfast.testing import ManualClock
from holdfast.types import Change, Outgoing
from tests.unit.ops.api.shopfront import Shopfront, listening, new_app, two_tenants
from tests.unit.reported import counted, part, reported, stream_report, stream_spec

REDIS_ENTRY = (1_700_000_000_000 << 64) + 3


async def test_a_stream_is_shown_with_its_partitions(front: Shopfront) -> None:
    front.app.stream_specs["bill"] = stream_spec()
    await counted(front.app, "bill", minutes_ago=1, processed=90)
    worker = await reported(
        front.app,
        stream_report(
            "bill",
            part(1, position=REDIS_ENTRY, lag=7, paused="in_flight"),
            part(0, position=12, lag=5, in_flight=2, buffered=3, stuck_id="orders/0/12", stuck_key="A", stuck_s=4.5),
            in_flight=2,
            last_error="ValueError: no",
            last_error_at=12.5,
        ),
    )
    (found,) = (await front.get("/streams"))["items"]
    first, second = found.pop("partitions")
    assert found == {
        "name": "bill",
        "group": "billing",
        "topic": "orders",
        "location": "kafka://127.0.0.1:1/orders",
        "workers": 1,
        "lag": 12,
        "in_flight": 2,
        "rate_per_s": 1.5,
        "dead_letters": 0,
        "last_error": "ValueError: no",
        "last_error_at": 12.5,
        "away": "",
    }
    assert first == {
        "topic": "orders",
        "partition": 0,
        "worker": worker.id,
        "position": "12",
        "lag": 5,
        "in_flight": 2,
        "buffered": 3,
        "paused": "",
        "stuck_id": "orders/0/12",
        "stuck_key": "A",
        "stuck_s": 4.5,
    }
    assert (second["position"], second["paused"]) == ("1700000000000-3", "in_flight")


async def test_a_registered_stream_without_a_worker_is_there(front: Shopfront) -> None:
    front.app.stream_specs["bill"] = stream_spec()
    (found,) = (await front.get("/streams"))["items"]
    assert (found["workers"], found["lag"], found["partitions"], found["last_error_at"]) == (0, None, [], None)


async def test_one_stream_is_found_by_its_name(front: Shopfront) -> None:
    front.app.stream_specs["a/b"] = stream_spec("a/b")
    assert (await front.get("/streams/a%2Fb"))["name"] == "a/b"
    refused = await front.get("/streams/none", status=404)
    assert refused["detail"] == "no stream is named 'none'"


async def test_keys_errors_and_addresses_are_shown_without_secrets(front: Shopfront) -> None:
    secret = "postgres://shop:canary-53@db/shop"
    await reported(
        front.app,
        stream_report(
            "bill",
            part(0, stuck_key=secret, paused=f"waits for {secret}", in_flight=1),
            last_error=f"OSError: {secret}",
            away=f"cannot reach {secret}",
            location=secret,
        ),
    )
    answer = await front.client.get("/streams")
    assert "canary-53" not in answer.text
    assert answer.text.count("[redacted]") == 5


async def test_streams_are_the_whole_fleets(front: Shopfront) -> None:
    app = new_app()
    app.stream_specs["bill"] = stream_spec()
    _, clients = two_tenants(app)
    for path in ("/streams", "/streams/bill"):
        assert (await clients["a"].get(path)).status_code == 403
        assert (await clients["viewer"].get(path)).status_code == 200
    await app.aclose()


async def test_a_change_is_told_to_whoever_listens() -> None:
    still = ManualClock(auto=False)
    app = new_app(clock=still)
    front = Shopfront(app)
    async with listening(front) as stream, asyncio.timeout(5):
        told = b""
        while b"event: streams" not in told:
            told += await anext(stream)
        await reported(app, stream_report("bill", part(0, lag=41)))
        still.advance(LOOK_S)
        told = b""
        while b"event: streams" not in told:
            told += await anext(stream)
    line = told.decode().partition("event: streams\ndata: ")[2].partition("\n")[0]
    assert json.loads(line)["items"][0]["lag"] == 41
    await app.aclose()


@pytest.mark.parametrize("path", ["/jobs", "/dead-letters"])
async def test_a_job_says_that_it_is_one(front: Shopfront, path: str) -> None:
    await front.letters(500)
    (found,) = (await front.get(path))["items"]
    assert found["origin"] == {"kind": "job"}
    assert (await front.get(f"/dead-letters/{found['id']}"))["origin"] == {"kind": "job"}


# ---------------------------------------------------------------- letters that are messages


@pytest.fixture
async def given_up(front: Shopfront) -> str:
    """The id of a message that was given up, with a secret in it."""

    @front.app.stream("memory://orders", group="billing", name="bill")
    async def bill(order: dict[str, Any]) -> None:
        raise Permanent("no")

    async with front.app.streams.source_of(front.app.stream_specs["bill"]) as source:
        await source.send([Outgoing("orders", b'{"n":1.10,"password":"canary-53"}', b"k")])
    await front.app.arun_until_idle()
    (letter,) = (await front.app.dead_letters.alist()).items
    return letter.id


ORIGIN = {"kind": "message", "group": "billing", "topic": "orders", "partition": 0, "offset": "0"}


async def test_a_message_says_where_it_came_from_wherever_it_is_shown(front: Shopfront, given_up: str) -> None:
    (listed,) = (await front.get("/dead-letters"))["items"]
    assert listed["origin"] == ORIGIN
    for path in (f"/dead-letters/{given_up}", f"/jobs/{given_up}"):
        assert (await front.get(path))["origin"] == ORIGIN
    (line,) = (await front.client.get("/dead-letters/export")).text.splitlines()
    assert json.loads(line)["origin"] == ORIGIN
    table = (await front.client.get("/dead-letters/export?format=csv")).text
    assert table.splitlines()[0].endswith(",origin")
    assert '""topic"":""orders""' in table
    assert "canary-53" not in line + table
    assert (await front.get("/streams/bill"))["dead_letters"] == 1


async def test_an_origin_that_an_edit_has_spoiled_is_read_from_the_original(front: Shopfront, given_up: str) -> None:
    edit = Operation(change=Change.REPLAY, ids=[given_up], payload=b'{"origin": 1}')
    await front.app.store.change(edit)
    assert (await front.get(f"/jobs/{given_up}"))["origin"] == ORIGIN


async def test_a_message_goes_to_its_topic_when_asked_and_byte_for_byte(front: Shopfront, given_up: str) -> None:
    answer = await front.post(f"/dead-letters/{given_up}/retry", {"to_topic": True})
    assert answer == {"id": given_up, "is_done": True, "state": "queued"}
    await front.app.arun_until_idle()
    async with front.app.streams.source_of(front.app.stream_specs["bill"]) as source:
        values = [one.value async for batch in source.read("orders") for one in batch]
    assert values == [b'{"n":1.10,"password":"canary-53"}'] * 2
    await front.post(f"/dead-letters/{given_up}/retry", {"to_topic": True}, status=409)


async def test_a_job_has_no_topic_to_go_to(front: Shopfront) -> None:
    (job,) = await front.letters(500)
    refused = await front.post(f"/dead-letters/{job}/retry", {"to_topic": True}, status=422)
    assert "is a job of shop.charge" in refused["detail"]


async def test_an_edited_letter_is_checked_before_it_goes(front: Shopfront, given_up: str) -> None:
    shown = (await front.get(f"/dead-letters/{given_up}"))["arguments"]
    good = {"arguments": shown | {"value": {"n": 2}}}
    assert await front.post("/tasks/bill/validate", good) == {"is_valid": True, "errors": []}
    bad = await front.post("/tasks/bill/validate", {"arguments": {"value": 1}})
    assert not bad["is_valid"]
    await front.post(f"/dead-letters/{given_up}/retry", {"arguments": {"value": 1}}, status=422)
    await front.post(f"/dead-letters/{given_up}/retry", good)


@pytest.mark.parametrize(
    ("name", "value"), [("timestamp", 0), ("is_gone", True), ("origin", {**ORIGIN, "topic": "payments"})]
)
async def test_which_message_it_is_cannot_be_edited(front: Shopfront, given_up: str, name: str, value: Any) -> None:
    shown = (await front.get(f"/dead-letters/{given_up}"))["arguments"]
    for path, body in (
        (f"/dead-letters/{given_up}/retry", {"arguments": shown | {name: value}}),
        ("/replays", {"filter": {"task": "bill"}, "edit": {name: value}}),
        ("/replays/preview", {"filter": {"task": "bill"}, "edit": {name: value}}),
    ):
        refused = await front.post(path, body, status=422)
        assert f"the {name} of a message cannot be edited" in refused["detail"]


async def test_canaries_do_not_go_to_the_topic(front: Shopfront, given_up: str) -> None:
    del given_up
    body = {"filter": {"task": "bill"}, "edit": {"to": "topic"}, "canary": 1}
    refused = await front.post("/replays", body, status=422)
    assert "goes with replays to a message's own group alone" in refused["detail"]
    await front.post("/replays", body | {"canary": 0}, status=201)


async def test_a_breaker_of_a_stream_is_shown_with_its_settings(front: Shopfront, given_up: str) -> None:
    del given_up
    breakers = {one["key"]: one for one in (await front.get("/breakers"))["items"]}
    assert (breakers["bill"]["tasks"], breakers["bill"]["window"]) == (["bill"], "5 in a row")
