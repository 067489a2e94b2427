"""`app.crawls`, and what an app's health makes of crawls: sites that are down are no illness, a full disk is one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast import App
from holdfast.alerts import BreakerOpen
from holdfast.errors import NotFound
from holdfast.ops.checks import store_checks, task_check
from holdfast.ports import Count, Exchange, Stats, Tally
from holdfast.runtime import machine
from holdfast.runtime.alerts import read
from holdfast.runtime.health import look_into
from holdfast.runtime.machine import Memory
from holdfast.testing import ManualClock
from holdfast.types import BreakerMode, JobState
from tests.unit.crawled import begun, crawl_report, crawling, page, process_on
from tests.unit.ops.test_doctor import WELL


@pytest.fixture(autouse=True)
def _enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "left_memory", lambda: Memory(1, 2))


@pytest.fixture
def app(clock: ManualClock) -> Iterator[App]:
    app = App("memory://", clock=clock)
    yield app
    app.close()


def test_crawls_are_listed_and_found_by_name(app: App) -> None:
    app.bridge.run(begun(app, "shop", "https://example.org/"))
    app.bridge.run(app.store.enqueue([page("shop"), page("news")]))
    app.bridge.run(crawling(app, crawl_report("news", rate_per_s=0.5)))
    assert [(view.name, view.state) for view in app.crawls.list()] == [("news", "running"), ("shop", "stopped")]
    assert app.crawls.get("news").eta_s == 2.0
    assert app.crawls.get("shop").seeds == ("https://example.org/",)
    with pytest.raises(NotFound, match="there is no crawl 'none'"):
        app.crawls.get("none")


async def test_pages_that_wait_and_domains_that_are_down_are_no_illness(app: App, clock: ManualClock) -> None:
    await app.store.enqueue([page()])
    await app.breakers.aforce_open("shop/example.org")
    clock.advance(3600.0)
    stopped = await app.ahealth()
    assert (stopped.score, stopped.reasons, stopped.workers) == (1.0, (), 0), "nobody is on it, which is no illness"
    assert stopped.open_breakers == ("shop/example.org",)
    assert "crawls" not in stopped.checks
    await crawling(app, crawl_report("shop"))
    running = await app.ahealth()
    assert (running.score, running.workers) == (1.0, 0), "its process runs pages, and no jobs"
    assert running.checks["crawls"].status == "ok"
    found = await look_into(app.store)
    assert (found.lag_s(), found.lag_s("crawl:shop")) == (None, 3600.0)


async def test_pages_that_fail_are_no_illness_and_jobs_that_fail_are_one(app: App) -> None:
    minute = int((await app.store.stats()).now // 60)
    await app.store.exchange(Exchange(counts=[Count(minute, "crawl:shop", name, 7) for name in ("failed", "dead")]))
    well = await app.ahealth()
    assert (well.score, well.success_rate) == (1.0, None)
    await app.store.exchange(Exchange(counts=[Count(minute, "shop.charge", name, 7) for name in ("failed", "dead")]))
    assert (await app.ahealth()).score < 1.0


async def test_a_rule_for_any_breaker_leaves_out_those_of_domains_and_one_for_its_key_does_not(app: App) -> None:
    await app.store.enqueue([page()])
    for key in ("shop/example.org", "payments"):
        await app.breakers.aforce_open(key)
    found = await look_into(app.store)
    assert read(BreakerOpen(), found, None, {}).keys == ["payments"]
    assert read(BreakerOpen(key="shop/example.org"), found, None, {}).keys == ["shop/example.org"]


async def test_a_job_that_is_due_is_not_taken_by_the_process_of_a_crawl(app: App) -> None:
    @app.task(name="mail")
    def mail() -> None: ...

    await mail.aenqueue()
    await crawling(app, crawl_report("shop"))
    assert (await app.ahealth()).reasons == ("jobs are due and no worker is alive",)


async def test_a_crawl_that_cannot_write_its_items_fails_its_check(app: App) -> None:
    error = "No space left on device " + "x" * 500
    await crawling(app, crawl_report("shop", output="pages.jsonl", output_error=error))
    health = await app.ahealth()
    check = health.checks["crawls"]
    assert (check.status, health.reasons) == ("failed", ("check crawls failed",))
    assert check.error is not None
    assert "crawl shop: mill 7 cannot write pages.jsonl: No space left on device" in check.error
    assert "x" * 300 not in check.error


def test_the_doctor_tells_of_crawls_and_takes_none_of_their_pages_for_stuck_or_unknown() -> None:
    pages = [Tally("crawl:shop", "crawl:shop", state, 1) for state in (JobState.QUEUED, JobState.DEAD_LETTER)]

    def told(**fields: str) -> dict[str, tuple[bool, str]]:
        process = process_on(crawl_report("shop", **fields), seen_at=1e6)
        stats = Stats(now=1e6, tallies=pages, workers=[process], oldest_ready_at={"crawl:shop": 0.0})
        found = replace(WELL, stats=stats, breakers={"shop/example.org": BreakerMode.OPEN})
        assert task_check(found, ()).is_ok
        return {one.name: (one.is_ok, one.text) for one in store_checks(found)}

    well = told()
    assert well["crawls"] == (True, "1 crawl, items can be written")
    assert [well[name][0] for name in ("stuck jobs", "breakers", "workers")] == [True, True, True]
    full = told(output="s3://ann:canary-53@bucket", output_error="full")
    assert full["crawls"] == (False, "crawl shop: mill 7 cannot write s3://ann:[redacted]@bucket: full")
