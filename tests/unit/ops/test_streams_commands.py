"""`holdfast streams`, and what `holdfast dlq` does with messages."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import App
from holdfast.runtime.isolated import load
from holdfast.types import Outgoing
from tests.unit.ops.conftest import Shop
from tests.unit.reported import part, reported, stream_report

STREAMS = r"""
from typing import Any

from holdfast import App, Permanent

app = App("sqlite:///shop.db")


@app.stream("memory://orders", group="billing", name="bill")
async def bill(order: dict[str, Any]) -> None:
    if order.get("is_bad"):
        raise Permanent("no \x1b[31m thanks")


@app.stream("kafka://127.0.0.1:1/parcels", group="shipping", name="ship")
async def ship(parcel: dict[str, Any]) -> None: ...


@app.task
def charge() -> None:
    raise Permanent("declined")
"""


@pytest.fixture
def streams(shop: Shop) -> Iterator[Shop]:
    """The shop with streams: one in memory, one whose server is away."""
    (shop.folder / "flow.py").write_text(STREAMS)
    sys.modules.pop("flow", None)
    yield shop
    app_of(shop).close()
    sys.modules.pop("flow", None)


def app_of(shop: Shop) -> App:
    del shop
    app: App = load("flow:app")
    return app


def on(shop: Shop, work: Any) -> Any:
    """Run something of the app's in this process."""
    return app_of(shop).bridge.run(work)


def refuse(shop: Shop, n: int = 1, *, value: bytes = b'{"is_bad":true}', key: bytes = b"k") -> None:
    """Let so many messages be given up."""
    app = app_of(shop)

    async def send() -> None:
        async with app.streams.source_of(app.stream_specs["bill"]) as source:
            await source.send([Outgoing("orders", value, key)] * n)
        del app.stream_specs["ship"]  # whose server is away
        await app.arun_until_idle()

    app.bridge.run(send())


def test_streams_are_listed_with_what_holds_them_up(streams: Shop) -> None:
    stuck = part(0, lag=12, in_flight=1, stuck_id="orders/0/7", stuck_key="postgres://u:canary-53@h/x", stuck_s=90.0)
    on(
        streams,
        reported(app_of(streams), stream_report("bill", stuck, last_error="OSError: \x1b[31mno", last_error_at=5.0)),
    )
    text = streams.cli("streams", "--app", "flow:app").stdout
    assert "stuck for 2m at orders/0/7" in text
    assert "no worker" in text
    assert "\x1b" not in text
    assert "canary-53" not in text
    bill, ship = streams.json("streams", "list", "--app", "flow:app")["items"]
    assert (bill["name"], bill["lag"], bill["partitions"][0]["stuck_s"]) == ("bill", 12, 90.0)
    assert "canary-53" not in bill["partitions"][0]["stuck_key"]
    assert (ship["name"], ship["workers"], ship["lag"]) == ("ship", 0, None)
    (alone,) = streams.json("streams")["items"]
    assert alone["name"] == "bill"


def test_without_streams_it_says_so(streams: Shop) -> None:
    streams.enqueue('{"order_id": 1}')
    assert streams.cli("streams").stderr == "no worker reports a stream; --app shows those of an app\n"
    done = streams.cli("streams", "lag", code=2)
    assert "no streams: give --app" in done.stderr
    assert "did you mean bill?" in streams.cli("streams", "lag", "bil", "--app", "flow:app", code=1).stderr


def test_the_lag_is_told_by_partition_and_in_all_and_makes_no_store(streams: Shop) -> None:
    found = streams.json("streams", "lag", "bill", "--app", "flow:app")["items"][0]
    assert (found["name"], found["lag"], found["error"]) == ("bill", 0, "")
    assert found["partitions"][0] == {"topic": "orders", "partition": 0, "lag": 0, "position": None, "end": "0"}
    text = streams.cli("streams", "lag", "bill", "--app", "flow:app").stdout
    assert "orders.billing.retry.0" in text
    assert "in all" in text
    assert not Path("shop.db").exists()


def test_a_server_that_is_away_is_one_line_and_exit_code_1(streams: Shop) -> None:
    pytest.importorskip("confluent_kafka")
    done = streams.cli("streams", "lag", "--app", "flow:app", "--timeout", "1s", code=1)
    (line,) = done.stderr.splitlines()
    assert line.startswith("stream ship: ")
    assert "in all" in done.stdout, "the other one is told all the same"


def test_a_message_is_shown_with_where_it_came_from(streams: Shop) -> None:
    refuse(streams)
    (letter,) = streams.json("dlq", "list")["items"]
    assert letter["origin"] == {"kind": "message", "group": "billing", "topic": "orders", "partition": 0, "offset": "0"}
    text = streams.cli("dlq", "show", letter["id"]).stdout
    assert "orders, partition 0, offset 0" in text
    assert "group billing" in text
    assert '"origin":{"kind":"message"' in streams.cli("dlq", "export").stdout


def test_a_dlq_topic_is_replayed_once(streams: Shop) -> None:
    refuse(streams, 2)
    words = ("dlq", "replay", "--topic", "orders.dlq", "--app", "flow:app")
    assert streams.cli(*words, "--dry-run").stdout == (
        "orders.dlq: 2 letters not replayed yet; 2 would go back by way of the inbox, 0 out of the topic\n"
    )
    done = streams.json(*words, "--type", "permanent", "--limit", "1", "--rate", "5")
    assert (done["found"], done["queued"], done["sent"]) == (2, 1, 0)
    told = streams.cli(*words, "--to-topic")
    assert (
        told.stdout == "orders.dlq: 2 letters not replayed yet; 1 went back by way of the inbox, 0 out of the topic\n"
    )
    assert told.stderr.splitlines() == [
        "1 letter left alone: under way, ended, or nothing to send",
        "no worker is running: those of the inbox go when one is there",
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--topic", "orders.dlq"], "--topic needs the app whose streams they are"),
        (["--topic", "x.dlq", "--app", "flow:app"], "no stream of this app has the DLQ topic 'x.dlq'"),
        (["--topic", "orders.dlq", "--app", "flow:app", "--canary", "1"], "--canary does not go with --topic"),
        (["--topic", "orders.dlq", "--app", "flow:app", "--task", "bill"], "--task does not go with --topic"),
        (["--topic", "orders.dlq", "--app", "flow:app", "--all"], "--all does not go with --topic"),
        (["--all", "--limit", "1"], "--limit goes with --topic"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(streams: Shop, words: list[str], line: str) -> None:
    streams.enqueue('{"order_id": 1}')
    code = 1 if "x.dlq" in words else 2
    done = streams.cli("dlq", "replay", *words, code=code)
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_only_messages_go_to_a_topic(streams: Shop) -> None:
    refuse(streams)
    streams.cli("enqueue", "flow:app", "charge", "{}")
    app_of(streams).run_until_idle()
    assert "which are no messages" in streams.cli("dlq", "replay", "--all", "--to-topic", code=2).stderr
    letters = {one["task"]: one["id"] for one in streams.json("dlq", "list")["items"]}
    done = streams.cli("dlq", "retry", *letters.values(), "--to-topic", code=2)
    assert f"--to-topic is for messages, and {letters['flow.charge']} is a job of flow.charge" in done.stderr
    assert len(streams.json("dlq", "list")["items"]) == 2, "none of them went"
    streams.cli("dlq", "retry", letters["bill"], "--to-topic")
    (job,) = [one for one in streams.json("jobs", "list")["items"] if one["id"] == letters["bill"]]
    assert (job["state"], job["payload"]["to"]) == ("queued", "topic")


def test_what_nobody_would_hear_of_and_what_says_which_message_it_is_are_refused(streams: Shop) -> None:
    refuse(streams)
    (letter,) = streams.json("dlq", "list")["items"]
    for words, line in (
        (["--canary", "1", "--to-topic"], "canary=1: goes with replays to a message's own group alone"),
        (["--edit", '{"timestamp": 5}'], "the timestamp of a message cannot be edited"),
        (["--edit", '{"origin": null}'], "origin"),
        (["--edit", '{"value": "[redacted]"}'], "--edit: a value in it reads [redacted]"),
    ):
        done = streams.cli("dlq", "replay", "--all", *words, code=2)
        assert line in done.stderr
        assert len(done.stderr.splitlines()) == 1
    payload = {**letter["payload"], "timestamp": 5}
    done = streams.cli("dlq", "retry", letter["id"], "--payload", json.dumps(payload), code=2)
    assert "the timestamp of a message cannot be edited" in done.stderr
    assert streams.json("dlq", "list")["items"][0]["state"] == "dead_letter"


def test_what_is_hidden_stays_what_it_was_when_something_else_is_edited(streams: Shop) -> None:
    refuse(streams, value=b'{"is_bad":true,"password":"canary-53"}')
    (letter,) = streams.json("dlq", "list")["items"]
    payload = letter["payload"]
    assert payload["value"]["password"] == "[redacted]"
    bad = payload | {"value": {"other": "[redacted]"}}
    done = streams.cli("dlq", "retry", letter["id"], "--payload", json.dumps(bad), code=2)
    assert "--payload: the value at /value/other has [redacted] in it" in done.stderr
    payload["value"]["is_bad"] = False
    streams.cli("dlq", "retry", letter["id"], "--payload", json.dumps(payload))
    app = app_of(streams)
    app.run_until_idle()
    assert b'"password":"canary-53"' in app.jobs.get(letter["id"]).record.payload
    assert app.jobs.get(letter["id"]).state == "completed"


def test_the_key_of_a_message_hides_nothing_of_its_value(streams: Shop) -> None:
    refuse(streams, key=b"password")
    (letter,) = streams.json("dlq", "list")["items"]
    assert letter["payload"]["value"] == {"is_bad": True}
