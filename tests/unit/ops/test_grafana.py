"""The Grafana dashboard asks for metrics, labels and states that a real worker's run has brought forth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.app import App
from holdfast.errors import Transient
from holdfast.ops.api import build_api
from holdfast.policy.retry import RetryPolicy
from tests.unit.crawled import crawl_report, crawling
from tests.unit.reported import counted, part, reported, stream_report
from tests.unit.ringed import consumer, ring_report, turning

DASHBOARD = Path(__file__).parents[3] / "grafana" / "holdfast.json"
_SELECTOR = re.compile(r"(holdfast_\w+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r'(\w+)(?:=~|!=|!~|=)"([^"]*)"')
_ADDED_UP = re.compile(r"\b(?:sum|count|avg)(?: by \([\w, ]+\))? ?\((?!max by)")
_BY = re.compile(r"by \(([\w, ]+)\) ?\(")


def expressions() -> list[tuple[str, str, str]]:
    """Title, query and legend of everything that the dashboard draws."""
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return [
        (panel["title"], target["expr"], target["legendFormat"])
        for panel in board["panels"]
        for target in panel["targets"]
    ]


async def samples() -> dict[str, list[dict[str, str]]]:
    """The labels of every sample by name, after jobs of every end, a stream, a ring and a crawl."""
    app = App("memory://")
    seen: list[int] = []

    @app.task(name="mail", retry=RetryPolicy(max_retries=1))
    async def mail(n: int) -> None:
        seen.append(n)
        if n == 2 or (n == 1 and seen.count(n) == 1):
            raise Transient("busy")

    await app.aenqueue_many([mail.bind(n) for n in range(3)])
    await app.arun_until_idle()
    await mail.aenqueue(0)
    await reported(app, stream_report("bill", part(0, lag=3, in_flight=1, stuck_id="orders/0/1", stuck_s=9.0)))
    await counted(app, "bill", processed=4, buried=1, retried=2, completed=4)
    await turning(app, ring_report("prices", consumer("enrich", batch_le=(1,) * 8, batches=8)))
    await crawling(app, crawl_report("shop"))
    found: dict[str, list[dict[str, str]]] = {}
    transport = httpx.ASGITransport(build_api(app), client=("127.0.0.1", 5000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as scraper:
        scrape = await scraper.get("/metrics")
    assert scrape.status_code == 200
    for family in text_string_to_metric_families(scrape.text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


async def test_every_query_names_metrics_labels_and_values_that_are_there() -> None:
    found = await samples()
    for title, query, legend in expressions():
        used = _SELECTOR.findall(query)
        assert used, f"{title}: no metric in {query}"
        for name, matchers in used:
            assert name in found, f"{title}: no metric {name}"
            labels = {key for one in found[name] for key in one}
            for label, pattern in _MATCHER.findall(matchers):
                assert label in labels, f"{title}: {name} has no label {label}"
                values = {one[label] for one in found[name]}
                assert pattern.startswith("$") or values & set(pattern.split("|")), f"{title}: no {label}={pattern}"
            for label in [*re.findall(r"\{\{(\w+)\}\}", legend), *", ".join(_BY.findall(query)).split(", ")]:
                assert not label or label in labels, f"{title}: {name} has no label {label}"


def test_servers_that_tell_of_one_store_are_not_added_up() -> None:
    """Each of them tells of the whole fleet, so of every series the largest counts before anything is added."""
    for title, query, _ in expressions():
        assert not _ADDED_UP.search(query), f"{title}: {query} doubles with a second server"
        assert re.search(r"\b(max|min)\b", query), f"{title}: {query} has a line for each server"


async def test_every_metric_of_the_fleet_is_drawn() -> None:
    drawn = {name for _, query, _ in expressions() for name, _ in _SELECTOR.findall(query)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in drawn}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in await samples()} == families


def test_variables_ask_for_labels_that_are_there() -> None:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    asked = [one["definition"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert asked == [
        "label_values(holdfast_jobs, task)",
        "label_values(holdfast_jobs, queue)",
        "label_values(holdfast_stream_workers, stream)",
        "label_values(holdfast_ring_size, ring)",
        "label_values(holdfast_crawl_processes, crawl)",
    ]
    used = set(re.findall(r"\$(\w+)", json.dumps([query for _, query, _ in expressions()])))
    assert used == {"task", "queue", "stream", "ring", "crawl", "__rate_interval"}


@pytest.mark.parametrize("field", ["id", "gridPos"])
def test_no_panel_lies_upon_another(field: str) -> None:
    board: dict[str, Any] = json.loads(DASHBOARD.read_text())
    places = [json.dumps(panel[field]) for panel in board["panels"]]
    assert len(places) == len(set(places))
