"""Rings over HTTP: as their processes reported them last, without secrets; and letters that are elements."""

from __future__ import annotations

import asyncio
import json

from holdfast.ops.api.live import LOOK_S
from holdfast.ports import Operation
from holdfast.testing import ManualClock
from holdfast.types import Change
from tests.unit.ops.api.shopfront import Shopfront, listening, new_app, two_tenants
from tests.unit.ringed import consumer, ring_letter, ring_report, turning

ORIGIN = {"kind": "ring", "ring": "prices", "consumer": "enrich", "batch": 12, "offset": "4100", "count": 2}


async def test_a_ring_is_shown_with_its_consumers(front: Shopfront) -> None:
    one = consumer(
        "enrich",
        after=("parse",),
        processed=90,
        lag=10,
        batches=3,
        batch=12,
        rate_per_s=4.5,
        batch_s=0.75,
        slowest_s=0.5,
        batch_le=(0, 0, 0, 0, 3, 0, 0, 0),
        errors=5,
        retries=4,
        given_up=3,
        dead_letters=2,
        running_s=1.5,
        doing="waiting for a retry",
        offset=2**60,
    )
    process = await turning(
        front.app, ring_report("prices", one, used=256, produced=100, rate_per_s=9.0, blocked=1, memory_bytes=10**8)
    )
    (found,) = (await front.get("/rings"))["items"]
    (told,) = found.pop("consumers")
    assert found.pop("seen_at") > 0
    assert found == {
        "name": "prices",
        "worker": process.id,
        "host": "mill",
        "pid": 7,
        "size": 1024,
        "used": 256,
        "utilisation": 0.25,
        "produced": 100,
        "rate_per_s": 9.0,
        "blocked": 1,
        "memory_bytes": 10**8,
        "is_closing": False,
    }
    assert told == {
        "name": "enrich",
        "after": ["parse"],
        "state": "waiting",
        "doing": "waiting for a retry",
        "running_s": 1.5,
        "lag": 10,
        "processed": 90,
        "rate_per_s": 4.5,
        "batches": 3,
        "batch": 12,
        "batch_s": 0.75,
        "mean_s": 0.25,
        "slowest_s": 0.5,
        "errors": 5,
        "retries": 4,
        "given_up": 3,
        "dead_letters": 2,
        "in_inbox": 0,
        "offset": str(2**60),
        "checkpoint_error": "",
    }


async def test_one_ring_is_found_by_its_name_in_every_process_that_has_it(front: Shopfront) -> None:
    await turning(front.app, ring_report("a/b"), ring_report("other"), pid=1)
    await turning(front.app, ring_report("a/b"), pid=2)
    assert [one["pid"] for one in (await front.get("/rings/a%2Fb"))["items"]] == [1, 2]
    refused = await front.get("/rings/none", status=404)
    assert refused["detail"] == "no live process reports a ring 'none'"


async def test_what_consumers_say_is_shown_without_secrets_and_not_at_any_length(front: Shopfront) -> None:
    secret = "postgres://shop:canary-53@db/shop " + "x" * 1000
    await turning(front.app, ring_report("prices", consumer(doing=secret, checkpoint_error=secret)))
    answer = await front.client.get("/rings")
    assert "canary-53" not in answer.text
    assert answer.text.count("[redacted]") == 2
    assert len(answer.json()["items"][0]["consumers"][0]["doing"]) == 500


async def test_rings_are_the_whole_fleets() -> None:
    app = new_app()
    await turning(app, ring_report("prices"))
    _, clients = two_tenants(app)
    for path in ("/rings", "/rings/prices"):
        assert (await clients["a"].get(path)).status_code == 403
        assert (await clients["viewer"].get(path)).status_code == 200
    await app.aclose()


async def test_a_change_is_told_to_whoever_listens() -> None:
    still = ManualClock(auto=False)
    app = new_app(clock=still)
    front = Shopfront(app)
    async with listening(front) as stream, asyncio.timeout(5):
        told = b""
        while b"event: rings" not in told:
            told += await anext(stream)
        await turning(app, ring_report("prices", consumer(lag=41)))
        still.advance(LOOK_S)
        told = b""
        while b"event: rings" not in told:
            told += await anext(stream)
    line = told.decode().partition("event: rings\ndata: ")[2].partition("\n")[0]
    assert json.loads(line)["items"][0]["consumers"][0]["lag"] == 41
    await app.aclose()


# ---------------------------------------------------------------- letters that are elements


async def test_elements_say_where_they_were_given_up_wherever_they_are_shown(front: Shopfront) -> None:
    letter = ring_letter("prices", "enrich", {"sku": 1}, {"password": "canary-53"}, offset=4100)
    await turning(front.app, ring_report("prices", consumer("enrich")))
    await front.app.store.enqueue([letter])
    (listed,) = (await front.get("/dead-letters", task="prices/enrich"))["items"]
    assert listed["origin"] == ORIGIN
    whole = await front.get(f"/dead-letters/{letter.id}")
    assert whole["origin"] == ORIGIN
    assert whole["arguments"]["elements"] == [{"sku": 1}, {"password": "[redacted]"}]
    (line,) = (await front.client.get("/dead-letters/export")).text.splitlines()
    assert json.loads(line)["origin"] == ORIGIN
    assert (await front.get("/rings/prices"))["items"][0]["consumers"][0]["in_inbox"] == 1


async def test_an_element_is_edited_without_writing_its_hidden_fields_anew(front: Shopfront) -> None:
    letter = ring_letter("prices", "enrich", {"sku": 1, "token": "canary-53"}, {"sku": 2, "token": "canary-54"})
    await front.app.store.enqueue([letter])
    arguments = (await front.get(f"/dead-letters/{letter.id}"))["arguments"]
    arguments["elements"][1]["sku"] = 3
    answer = await front.client.post(f"/dead-letters/{letter.id}/retry", json={"arguments": arguments})
    assert answer.status_code == 200, answer.text
    (record,) = await front.app.store.get([letter.id])
    assert record is not None
    edited = [{"sku": 1, "token": "canary-53"}, {"sku": 3, "token": "canary-54"}]
    assert json.loads(record.payload)["elements"] == edited
    assert "canary" not in answer.text


async def test_an_origin_that_an_edit_has_spoiled_is_read_from_the_original(front: Shopfront) -> None:
    letter = ring_letter("prices", "enrich", 1, 2)
    await front.app.store.enqueue([letter])
    await front.app.store.change(Operation(change=Change.REPLAY, ids=[letter.id], payload=b'{"origin": 1}'))
    assert (await front.get(f"/jobs/{letter.id}"))["origin"] == ORIGIN | {"offset": None}
