"""The fleet's metrics: numbers that add up, in a format that Prometheus's own parser reads."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.app import App
from holdfast.errors import StoreAway, Transient
from holdfast.ops import metrics as subject
from holdfast.ops.metrics import Look, collector, exposition, metrics_of
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import Capabilities, Count, Exchange, Exchanged, Stats, Tally
from holdfast.runtime import reports
from holdfast.runtime.exposition import Metric, Sample, text_of
from holdfast.runtime.guards.breaker import CircuitBreaker
from holdfast.runtime.reports import Line
from holdfast.runtime.streams.views import line_of
from holdfast.runtime.worker import Report
from holdfast.testing import ManualClock
from holdfast.types import JobState
from tests.unit.crawled import crawl_report, crawling
from tests.unit.reported import part, reported, stream_report
from tests.unit.ringed import consumer, ring_report, turning

MEMORY = Capabilities(name="memory", location="here", is_durable=False, is_shared=False, has_transactions=False)
Labels = frozenset[tuple[str, str]]
REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)


def read(text: bytes) -> dict[str, dict[Labels, float]]:
    """Every sample by name and labels, as Prometheus reads it; none is there twice."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = frozenset(sample.labels.items())
            assert labels not in found.setdefault(sample.name, {}), f"twice: {sample}"
            found[sample.name][labels] = sample.value
    return found


def of(**labels: str) -> Labels:
    return frozenset(labels.items())


async def app_with_a_past() -> App:
    """Three mails: one completes at once, one after a retry, one never does."""
    app = App("memory://")
    seen: list[int] = []

    @app.task(name="mail", retry=RetryPolicy(max_retries=1), breaker=CircuitBreaker("smtp", failure_threshold=1))
    async def mail(n: int) -> None:
        seen.append(n)
        if n == 2 or (n == 1 and seen.count(n) == 1):
            raise Transient("busy")

    await app.aenqueue_many([mail.bind(n) for n in range(3)])
    await app.arun_until_idle()
    await mail.options(queue="later", delay=3600).aenqueue(0)
    await app.queues.apause("later")
    return app


async def test_a_look_at_the_fleet_says_what_it_has_done_and_holds() -> None:
    app = await app_with_a_past()
    found = read(await exposition(app, score=0.75))
    assert {
        state: found["holdfast_jobs"][of(task="mail", queue="default", state=state)]
        for state in ("completed", "dead_letter", "queued", "running")
    } == {"completed": 2, "dead_letter": 1, "queued": 0, "running": 0}
    assert found["holdfast_jobs"][of(task="mail", queue="later", state="queued")] == 1
    assert found["holdfast_attempts_total"] == {
        of(task="mail", outcome="completed"): 2,
        of(task="mail", outcome="retried"): 2,
        of(task="mail", outcome="failed"): 1,
        of(task="mail", outcome="parked"): found["holdfast_attempts_total"][of(task="mail", outcome="parked")],
    }
    assert found["holdfast_failures_total"] == {of(task="mail", failure_type="transient"): 3}
    assert found["holdfast_jobs_received_total"] == {of(task="mail"): 3}
    assert found["holdfast_retries_healed_total"] == {of(task="mail"): 1}
    assert found["holdfast_dead_letters_total"] == {of(task="mail"): 1}
    assert found["holdfast_dead_letters"] == {of(task="mail"): 1}
    assert found["holdfast_breaker_trips_total"][of(breaker="smtp")] >= 1
    assert sum(found["holdfast_breaker_state"].values()) == 1
    assert found["holdfast_queue_paused"] == {of(queue="default"): 0, of(queue="later"): 1}
    assert found["holdfast_queue_lag_seconds"][of(queue="later")] == 0
    for name, value in {
        "workers": 0,
        "jobs_running": 0,
        "store_durable": 0,
        "store_up": 1,
        "health_score": 0.75,
    }.items():
        assert found[f"holdfast_{name}"] == {of(): value}


async def test_histograms_are_cumulative_and_count_every_attempt() -> None:
    found = read(await exposition(await app_with_a_past()))
    for name in ("holdfast_run_seconds", "holdfast_queue_wait_seconds"):
        buckets = sorted((float(dict(labels)["le"]), n) for labels, n in found[f"{name}_bucket"].items())
        assert [n for _, n in buckets] == sorted(n for _, n in buckets)
        assert (len(buckets), buckets[-1]) == (15, (float("inf"), 5))
        assert found[f"{name}_count"] == {of(task="mail"): 5}
        assert found[f"{name}_sum"][of(task="mail")] >= 0


async def test_a_store_that_is_away_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(_: Exchange) -> Exchanged:
        raise StoreAway("nobody answers")

    app = App("memory://")
    monkeypatch.setattr(app.store, "exchange", away)
    assert read(await exposition(app)) == {"holdfast_store_up": {of(): 0}}


async def test_a_store_that_does_not_answer_in_time_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("memory://")

    async def hangs(_: Exchange) -> Exchanged:
        await app.clock.asleep(60)
        raise AssertionError

    monkeypatch.setattr(app.store, "exchange", hangs)
    monkeypatch.setattr(subject, "_ANSWER_S", 0.01)
    assert read(await exposition(app)) == {"holdfast_store_up": {of(): 0}}


def look_at(tallies: list[Tally], totals: list[Count] | None = None, **fields: Any) -> Look:
    return Look(Stats(now=100.0, tallies=tallies, totals=totals or [], **fields), [], MEMORY)


HOSTILE = [
    'a"b',
    "a\\b",
    'a"} 1\nholdfast_store_up 0',
    "{}",
    "\x00\x1b[31m\r",
    "\ud800half",
    "ünï",
    'end\\"',
    "x" * 999,
]


def test_hostile_names_break_neither_the_format_nor_another_series() -> None:
    look = look_at(
        [Tally(name, name, JobState.DEAD_LETTER, 1) for name in HOSTILE],
        [Count(0, name, "completed", 7) for name in HOSTILE],
        oldest_ready_at=dict.fromkeys(HOSTILE, 40.0),
    )
    found = read(text_of(metrics_of(look)))
    assert found["holdfast_store_up"] == {of(): 1}
    assert sum(found["holdfast_dead_letters"].values()) == len(HOSTILE)
    assert of(task='a"} 1\N{REPLACEMENT CHARACTER}holdfast_store_up 0') in found["holdfast_dead_letters"]
    assert of(task="a\\b", outcome="completed") in found["holdfast_attempts_total"]
    assert set(found["holdfast_queue_lag_seconds"].values()) == {60.0}
    assert all(len(value) <= 200 for labels in found["holdfast_dead_letters"] for _, value in labels)


def test_names_that_look_the_same_share_a_series() -> None:
    found = read(text_of(metrics_of(look_at([Tally("q", name, JobState.QUEUED, 1) for name in ("a\x00", "a\x01")]))))
    shared = of(task="a\N{REPLACEMENT CHARACTER}", queue="q", state="queued")
    assert found["holdfast_jobs"][shared] == 2


def test_beyond_a_cap_tasks_and_queues_share_a_series_and_those_of_the_app_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subject, "MOST_NAMES", 3)
    tallies = [Tally(f"q{n}", f"t{n}", JobState.DEAD_LETTER, 1) for n in range(6)]
    totals = [Count(0, f"t{n}", "completed", 1) for n in range(6)]
    found = read(text_of(metrics_of(look_at(tallies, totals), ["t5"])))
    expected = {of(task=name): n for name, n in {"t0": 1, "t1": 1, "t5": 1, "other": 3}.items()}
    assert found["holdfast_dead_letters"] == expected
    completed = {key: n for key, n in found["holdfast_attempts_total"].items() if ("outcome", "completed") in key}
    assert completed == {key | of(outcome="completed"): n for key, n in expected.items()}
    assert {dict(labels)["queue"] for labels in found["holdfast_jobs"]} == {"q0", "q1", "q2", "other"}
    assert sum(found["holdfast_jobs"].values()) == 6


def test_pairs_of_a_task_and_a_queue_are_capped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_NAMES", 3)
    tallies = [Tally(f"q{a}", f"t{b}", JobState.QUEUED, 1) for a in range(3) for b in range(3)]
    found = read(text_of(metrics_of(look_at(tallies))))
    assert len(found["holdfast_jobs"]) == (3 + 3) * len(JobState)
    assert sum(found["holdfast_jobs"].values()) == 9


def test_a_task_without_jobs_counts_from_zero() -> None:
    found = read(text_of(metrics_of(look_at([]), ["mail"])))
    assert found["holdfast_dead_letters"] == {of(task="mail"): 0}
    assert found["holdfast_attempts_total"][of(task="mail", outcome="completed")] == 0
    assert found["holdfast_run_seconds_count"] == {of(task="mail"): 0}


def test_numbers_are_written_as_prometheus_reads_them() -> None:
    values = [0, 1.5, 1e-9, 10**18, float("inf"), float("-inf")]
    text = text_of([Metric("m", "gauge", "Numbers.", [Sample({"n": str(n)}, value) for n, value in enumerate(values)])])
    assert list(read(text)["m"].values()) == values


async def test_a_registry_of_ones_own_collects_the_same() -> None:
    app = await app_with_a_past()
    registry = CollectorRegistry()
    registry.register(collector(app))
    theirs, ours = read(await asyncio.to_thread(generate_latest, registry)), read(await exposition(app))
    assert theirs.keys() == ours.keys()
    assert theirs["holdfast_attempts_total"] == ours["holdfast_attempts_total"]
    assert theirs["holdfast_run_seconds_bucket"] == ours["holdfast_run_seconds_bucket"]


# ---------------------------------------------------------------- the reference


async def test_every_metric_and_its_labels_are_in_the_reference() -> None:
    text = REFERENCE.read_text()
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in _ROW.findall(text)}
    app = await app_with_a_past()
    bill = stream_report("bill", part(0, lag=3))
    await reported(app, bill)
    await turning(app, ring_report("prices", consumer("enrich")))
    await crawling(app, crawl_report("shop"))
    look = await subject._look_or_none(app)
    report = Report(
        worker="w",
        pid=1,
        why_not_ready="",
        last_exchange_s=1.0,
        running=1,
        counts={"failed": 1, "failed:network": 1},
        streams=(line_of(bill),),
    )
    line = Line(ManualClock(), is_open=True)
    line._heard = report, ManualClock().monotonic()
    told = [*metrics_of(look, score=1.0), *reports.metrics_of([line], 1)]
    assert documented == {
        one.name: (one.kind, {label for sample in one.samples for label in sample.labels} - {"le"}) for one in told
    }
