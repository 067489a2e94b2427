"""The metrics of streams: there once, under their own names, with labels from closed sets."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.ops import stream_metrics as subject
from holdfast.ops.metrics import exposition
from holdfast.ports import Stats
from holdfast.runtime import reports
from holdfast.runtime.exposition import text_of
from holdfast.runtime.reports import Line
from holdfast.runtime.streams.views import line_of
from holdfast.runtime.worker import Report
from holdfast.testing import ManualClock
from tests.unit.ops.test_metrics import of, read
from tests.unit.reported import counted, part, reported, stream_report, stream_spec, worker_with

COUNTS = {
    "processed": 40,
    "buried": 2,
    "completed": 9,
    "retried": 3,
    "failed": 1,
    "dead": 2,
    "received": 10,
    "run_us": 2_500_000,
    "run_le:0": 12,
    "run_le:7": 1,
    "failed:network": 4,
}


async def test_what_was_counted_of_a_stream_is_in_its_own_metrics() -> None:
    app = App("memory://")
    app.stream_specs["bill"] = stream_spec()
    await counted(app, "bill", **COUNTS)
    found = read(await exposition(app))
    bill = of(stream="bill")
    assert found["holdfast_messages_processed_total"] == {bill: 40}
    assert found["holdfast_messages_failed_total"] == {bill: 4}
    assert found["holdfast_dlq_messages_total"] == {bill: 2}
    assert found["holdfast_message_processing_duration_seconds_count"] == {bill: 13}
    assert found["holdfast_message_processing_duration_seconds_sum"] == {bill: 2.5}
    assert found["holdfast_message_processing_duration_seconds_bucket"][of(stream="bill", le="0.005")] == 12


async def test_a_stream_is_in_no_metric_of_a_task() -> None:
    app = App("memory://")
    await counted(app, "bill", **COUNTS)  # which nobody here has registered
    await counted(app, "mail", completed=1)
    found = read(await exposition(app))
    tasks = {dict(labels).get("task") for name, samples in found.items() if "message" not in name for labels in samples}
    assert tasks == {None, "mail"}
    assert found["holdfast_messages_processed_total"] == {of(stream="bill"): 40}


async def test_a_stream_with_nothing_counted_begins_at_nothing() -> None:
    app = App("memory://")
    app.stream_specs["bill"] = stream_spec()
    found = read(await exposition(app))
    for name in ("messages_processed_total", "messages_failed_total", "dlq_messages_total", "stream_workers"):
        assert found[f"holdfast_{name}"] == {of(stream="bill"): 0}


async def test_partitions_are_as_their_workers_report_them() -> None:
    app = App("memory://")
    await reported(
        app,
        stream_report(
            "bill",
            part(0, lag=7, in_flight=1, stuck_id="orders/0/1", stuck_s=4.5),
            part(1, lag=None, paused="full", in_flight=1),
            in_flight=2,
            away="gone",
        ),
    )
    await reported(app, stream_report("bill", part(0, lag=9), in_flight=1))
    found = read(await exposition(app))
    first, second = (of(stream="bill", topic="orders", partition=number) for number in "01")
    assert found["holdfast_consumer_lag"] == {first: 9}, "the lag that nobody knows is not 0"
    assert found["holdfast_consumer_paused"] == {first: 0, second: 1}
    assert found["holdfast_consumer_stuck_seconds"] == {first: 4.5, second: 0}
    assert found["holdfast_messages_in_flight"] == {of(stream="bill"): 3}
    assert found["holdfast_stream_workers"] == {of(stream="bill"): 2}
    assert found["holdfast_stream_away"] == {of(stream="bill"): 1}


async def test_an_app_without_streams_has_none_of_these() -> None:
    assert not [name for name in read(await exposition(App("memory://"))) if "message" in name or "consumer" in name]


def test_of_very_many_partitions_those_furthest_behind_have_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_PARTITIONS", 3)
    worker = worker_with(stream_report("bill", *(part(n, lag=n) for n in range(10))))
    found = read(text_of(subject.stream_metrics(Stats(now=0.0, workers=[worker]), ["bill"])))
    assert sorted(found["holdfast_consumer_lag"].values()) == [7, 8, 9]


def test_topics_whose_long_names_are_cut_to_the_same_are_there_once() -> None:
    long = "t" * 245
    worker = worker_with(stream_report("bill", *(part(0, topic=f"{long}{n}", lag=n) for n in range(3))))
    found = read(text_of(subject.stream_metrics(Stats(now=0.0, workers=[worker]), ["bill"])))
    assert list(found["holdfast_consumer_lag"].values()) == [2]


def test_a_workers_own_port_tells_of_its_streams() -> None:
    report = stream_report("bill", part(0, lag=5), part(1), in_flight=3, away="gone")
    told = Report(
        worker="w",
        pid=1,
        why_not_ready="",
        last_exchange_s=1.0,
        running=0,
        counts={"processed": 8, "buried": 1},
        streams=(line_of(report),),
    )
    line = Line(ManualClock(), is_open=True)
    line._heard = told, 0.0
    found = read(text_of(reports.metrics_of([line], 0)))
    assert found["holdfast_worker_messages_processed_total"] == {of(process="0"): 8}
    assert found["holdfast_worker_dlq_messages_total"] == {of(process="0"): 1}
    assert found["holdfast_worker_messages_in_flight"] == {of(process="0", stream="bill"): 3}
    assert found["holdfast_worker_stream_away"] == {of(process="0", stream="bill"): 1}
    place = of(process="0", stream="bill", topic="orders", partition="0")
    assert found["holdfast_worker_consumer_lag"] == {place: 5}
