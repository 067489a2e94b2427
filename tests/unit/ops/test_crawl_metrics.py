"""The metrics of crawls: exact, over all of a crawl's processes, with the crawl's name as their only label."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.ops import crawl_metrics as subject
from holdfast.ops.crawl_metrics import crawl_metrics
from holdfast.ops.metrics import exposition
from holdfast.ports import Stats, Tally
from holdfast.runtime.crawls import crawl_views
from holdfast.runtime.exposition import text_of
from holdfast.types import JobState
from tests.unit.crawled import begun, crawl_report, crawling, domain, page, page_letter, process_on
from tests.unit.ops.test_metrics import of, read


async def test_a_crawl_is_in_the_metrics_of_the_fleet_over_all_of_its_processes() -> None:
    app = App("memory://")
    await app.store.enqueue([*(page(url=f"https://example.org/{n}") for n in range(3)), page_letter()])
    counted = {"fetched": 90, "failed": 2, "skipped": 1, "items": 80, "found": 120, "bytes": 1000}
    await crawling(app, crawl_report("shop", domain("hidden.example"), held=1, output_error="full", **counted), pid=1)
    await crawling(app, crawl_report("shop", fetched=10, held=2), pid=2)
    await app.breakers.aforce_open("shop/dead.example")
    await app.breakers.aforce_open("payments/eu")
    text = await exposition(app)
    found = read(text)
    for name, value in {
        "processes": 2,
        "pages_pending": 3,
        "pages_waiting": 0,
        "pages_in_flight": 0,
        "pages_done": 0,
        "pages_dead": 1,
        "domains_held": 3,
        "open_breakers": 1,
        "output_failing": 1,
        "pages_fetched_total": 100,
        "pages_failed_total": 2,
        "pages_skipped_total": 1,
        "items_total": 80,
        "urls_found_total": 120,
        "bytes_total": 1000,
    }.items():
        assert found[f"holdfast_crawl_{name}"] == {of(crawl="shop"): value}, name
    assert {dict(labels)["breaker"] for labels in found["holdfast_breaker_state"]} == {"payments/eu"}
    assert b".example" not in text, "no domain is a label"
    await app.aclose()


async def test_a_crawl_that_no_process_is_on_still_says_what_is_left() -> None:
    app = App("memory://")
    await begun(app, "shop")
    await app.store.enqueue([page()])
    found = read(await exposition(app))
    assert found["holdfast_crawl_pages_pending"] == {of(crawl="shop"): 1}
    assert found["holdfast_crawl_processes"] == {of(crawl="shop"): 0}
    await app.aclose()


async def test_without_crawls_there_are_no_metrics_of_them() -> None:
    app = App("memory://")
    assert b"holdfast_crawl" not in await exposition(app)
    await app.aclose()


def test_series_are_bounded_and_crawls_that_run_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "MOST_CRAWLS", 2)
    process = process_on(*(crawl_report(name, fetched=1) for name in ("y", "z", "x")))
    stopped = Tally("crawl:a", "crawl:a", JobState.QUEUED, 1)
    views = crawl_views(Stats(now=0.0, tallies=[stopped], workers=[process]), ())
    found = read(text_of(crawl_metrics(views)))
    assert set(found["holdfast_crawl_pages_fetched_total"]) == {of(crawl="x"), of(crawl="y")}
