"""The metrics of rings: exact, of a fleet or of one process, with labels from closed sets."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from holdfast import App
from holdfast.errors import ConfigError
from holdfast.ops import ring_metrics as subject
from holdfast.ops.metrics import exposition
from holdfast.ops.ring_metrics import ring_collector, ring_exposition, ring_metrics
from holdfast.ports import RingReport
from holdfast.runtime.exposition import text_of
from tests.unit.ops.test_metrics import of, read
from tests.unit.ringed import consumer, ring_report, turning

ENRICH = consumer(
    "enrich",
    processed=990,
    lag=10,
    batches=7,
    batch_s=2.5,
    batch_le=(1, 2, 0, 0, 3, 0, 0, 1),
    errors=5,
    retries=4,
    given_up=3,
    dead_letters=2,
)
PRICES = ring_report("prices", ENRICH, used=512, produced=1000, blocked=2, memory_bytes=10**8)
PAIR = of(ring="prices", consumer="enrich")


class Turning:
    """A ring that says what it is told to say."""

    def __init__(self, report: RingReport) -> None:
        self.report = report

    def stats(self) -> RingReport:
        return self.report


def read_all(*reports: RingReport) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
    found: Any = read(text_of(ring_metrics(reports)))
    return dict(found)


async def test_a_ring_that_a_process_reports_is_in_the_metrics_of_the_fleet() -> None:
    app = App("memory://")
    await turning(app, PRICES)
    found = read(await exposition(app))
    ring = of(ring="prices")
    for name, value in {
        "processes": 1,
        "size": 1024,
        "used": 512,
        "utilisation": 0.5,
        "produced_total": 1000,
        "blocked_producers": 2,
        "process_memory_bytes": 10**8,
    }.items():
        assert found[f"holdfast_ring_{name}"] == {ring: value}, name
    for name, value in {
        "lag": 10,
        "stuck": 0,
        "checkpoint_failing": 0,
        "processed_total": 990,
        "batches_total": 7,
        "errors_total": 5,
        "retries_total": 4,
        "given_up_total": 3,
        "dead_letters_total": 2,
        "batch_seconds_sum": 2.5,
        "batch_seconds_count": 7,
    }.items():
        assert found[f"holdfast_ring_{name}"] == {PAIR: value}, name


def test_the_buckets_of_batch_times_are_the_reports_own_and_add_up() -> None:
    found = read_all(PRICES)["holdfast_ring_batch_seconds_bucket"]
    below = {dict(labels)["le"]: n for labels, n in found.items()}
    assert below == {"0.0001": 1, "0.001": 3, "0.01": 3, "0.1": 3, "1.0": 6, "10.0": 6, "60.0": 6, "+Inf": 7}


def test_rings_of_one_name_are_taken_together() -> None:
    ill = consumer("enrich", lag=5, is_stuck=True, checkpoint_error="disk full", batch_le=(1, 1), batches=2)
    found = read_all(PRICES, ring_report("prices", ill, used=1024, size=1024))
    assert found["holdfast_ring_processes"] == {of(ring="prices"): 2}
    assert found["holdfast_ring_used"] == {of(ring="prices"): 1536}
    assert found["holdfast_ring_utilisation"] == {of(ring="prices"): 1.0}
    assert found["holdfast_ring_lag"] == {PAIR: 15}
    assert found["holdfast_ring_stuck"] == {PAIR: 1}
    assert found["holdfast_ring_checkpoint_failing"] == {PAIR: 1}
    assert found["holdfast_ring_batch_seconds_count"] == {PAIR: 7}, "buckets with other bounds are not mixed in"


async def test_an_app_without_rings_has_none_of_these() -> None:
    assert not [name for name in read(await exposition(App("memory://"))) if "ring_" in name]


def test_of_very_many_consumers_those_furthest_behind_have_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_CONSUMERS", 2)
    monkeypatch.setattr(subject, "MOST_RINGS", 2)
    found = read_all(*(ring_report(f"r{n}", consumer("c", lag=n), consumer("d", lag=9 - n)) for n in range(4)))
    assert set(found["holdfast_ring_size"]) == {of(ring="r0"), of(ring="r1")}
    assert sorted(found["holdfast_ring_lag"].values()) == [8, 9]


def test_a_ring_without_an_app_tells_a_registry_of_its_users_own() -> None:
    turning_ring = Turning(PRICES)
    registry = CollectorRegistry()
    registry.register(ring_collector(turning_ring, Turning(ring_report("orders", consumer("write", lag=1)))))
    assert registry.get_sample_value("holdfast_ring_produced_total", {"ring": "prices"}) == 1000
    turning_ring.report = ring_report("prices", produced=1001)
    assert registry.get_sample_value("holdfast_ring_produced_total", {"ring": "prices"}) == 1001
    assert registry.get_sample_value("holdfast_ring_lag", {"ring": "orders", "consumer": "write"}) == 1
    assert generate_latest(registry).count(b"# TYPE holdfast_ring_size gauge") == 1


def test_a_ring_without_an_app_has_its_metrics_as_text() -> None:
    assert b'holdfast_ring_processed_total{ring="prices",consumer="enrich"} 990\n' in ring_exposition(Turning(PRICES))


def test_what_is_no_ring_is_refused_in_one_line() -> None:
    for make in (ring_collector, ring_exposition):
        with pytest.raises(ConfigError, match="must be one ring or more"):
            make()
        with pytest.raises(ConfigError, match="must be one ring or more"):
            make(PRICES)  # type: ignore[arg-type]


def test_without_prometheus_client_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(
        ConfigError,
        match=r"ring_collector\(…\) needs prometheus-client: pip install 'holdfast\[web\]', or in a checkout",
    ):
        ring_collector(Turning(PRICES))
    assert ring_exposition(Turning(PRICES))
