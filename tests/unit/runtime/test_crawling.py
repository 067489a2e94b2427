"""What a worker asks of a crawl and tells it; and breakers with a scope, one for each of its values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.app import App
from holdfast.clock import new_id
from holdfast.errors import Transient
from holdfast.policy.breaker import BreakerConfig
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import CrawlReport, Delivery, Settlement, Value
from holdfast.runtime.crawl_origins import GATE
from holdfast.runtime.shared.names import breaker_gate
from holdfast.runtime.spec import TaskSpec, breaker_of
from holdfast.runtime.worker import Worker
from holdfast.types import BreakerMode, Change, JobState, NewJob

pytestmark = pytest.mark.anyio
TASK = "crawl:shop"


class Crawl:
    """A crawl that notes what it is told, and stops its worker when there is nothing left to run."""

    per_lane = 2

    def __init__(self, caps: Mapping[str, int] | None = None) -> None:
        self.gates = dict(caps or {})
        self.was_claimed: list[list[str]] = []
        self.was_settled: list[tuple[str, Change]] = []
        self.opens: float | None = None
        self.worker: Worker | None = None
        self.values: list[str] = []

    def caps(self) -> Mapping[str, int]:
        return self.gates

    def opens_in_s(self) -> float | None:
        return self.opens

    def claimed(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            self.was_claimed.append([one.project for one in deliveries])

    def settled(self, settlements: Sequence[Settlement]) -> None:
        self.was_settled += [(one.id, one.change) for one in settlements]

    def absorb(self, values: Sequence[Value]) -> None:
        self.values += [value.key for value in values]

    def idle(self) -> None:
        if self.opens is None and self.worker is not None:
            self.worker.stop()
        elif self.opens is not None:
            self.opens, self.gates = 0.01, {}

    def reports(self) -> tuple[CrawlReport, ...]:
        return (CrawlReport(name="shop"),)


def page(domain: str, *, gates: tuple[str, ...] = ()) -> NewJob:
    return NewJob(
        id=new_id(), task=TASK, queue=TASK, payload=b"{}", project=domain, gates=(GATE, f"domain:{domain}", *gates)
    )


def spec_of(app: App, run: Any, **changes: Any) -> TaskSpec:
    @app.task(name="like", retry=RetryPolicy(max_retries=0))
    async def like() -> None: ...

    return replace(like.spec, name=TASK, fn=run, breaker=None, **changes)


async def work(app: App, spec: TaskSpec, crawl: Crawl | None) -> Worker:
    worker = Worker(app.store, {spec.name: spec}, clock=app.clock, crawl=crawl)
    if crawl is not None:
        crawl.worker = worker
    async with asyncio.timeout(20):
        await worker.run()
    return worker


@pytest.fixture
def app() -> App:
    return App("memory://")


async def nothing() -> None: ...


async def test_pages_are_claimed_by_the_worker_of_a_crawl_and_what_took_effect_is_told(app: App) -> None:
    jobs = [page("a.org"), page("b.org")]
    await app.store.enqueue(jobs)
    crawl = Crawl()
    await work(app, spec_of(app, nothing), crawl)
    assert sorted(crawl.was_settled) == sorted((job.id, Change.COMPLETE) for job in jobs)
    assert sorted(domain for claim in crawl.was_claimed for domain in claim) == ["a.org", "b.org"]


async def test_no_other_worker_claims_them(app: App) -> None:
    await app.store.enqueue([page("a.org")])
    await app.arun_until_idle()
    (tally,) = (await app.store.stats()).tallies
    assert tally.state is JobState.QUEUED


async def test_a_domain_that_no_cap_names_brings_no_more_than_its_part_at_a_time(app: App) -> None:
    await app.store.enqueue([page("a.org") for _ in range(5)])
    crawl = Crawl()
    await work(app, spec_of(app, nothing), crawl)
    assert max(len(claim) for claim in crawl.was_claimed) == 2
    assert len(crawl.was_settled) == 5


async def test_a_shut_domain_is_passed_over_until_it_opens_by_time(app: App) -> None:
    await app.store.enqueue([page("a.org"), page("b.org")])
    crawl = Crawl({"domain:a.org": 0})
    crawl.opens = 3600.0

    seen: list[str] = []

    async def run() -> None:
        seen.append("ran")
        if len(seen) == 2:
            crawl.opens = None

    await work(app, spec_of(app, run), crawl)
    assert crawl.was_claimed == [["b.org"], ["a.org"]]


async def test_the_heartbeat_says_how_the_crawl_is(app: App) -> None:
    told: list[str] = []

    async def run() -> None:
        stats = await app.store.stats()
        told.extend(report.name for worker in stats.workers for report in worker.crawls)

    await app.store.enqueue([page("a.org")])
    await work(app, spec_of(app, run), Crawl())
    assert told == ["shop"]


# ---------------------------------------------------------------- breakers with a scope


def scoped(app: App, run: Any) -> TaskSpec:
    return replace(
        spec_of(app, run, breaker_scope="project"), breaker="shop", breaker_config=BreakerConfig(failure_threshold=2)
    )


def gated(domain: str) -> NewJob:
    return page(domain, gates=(breaker_gate(f"shop/{domain}"),))


async def test_each_value_of_the_scope_has_a_breaker_of_its_own(app: App) -> None:
    ran: list[str] = []

    async def run(domain: str) -> None:
        ran.append(domain)
        if domain == "bad.org":
            raise Transient("down")

    spec = scoped(app, run)

    class Given:
        def of(self, delivery: Delivery) -> tuple[tuple[Any, ...], dict[str, Any]]:
            return (delivery.project,), {}

    spec = replace(spec, given=Given())
    await app.store.enqueue([gated("bad.org") for _ in range(6)] + [gated("good.org") for _ in range(6)])
    worker = await work(app, spec, Crawl())
    assert ran.count("good.org") == 6
    assert ran.count("bad.org") == 2, "its breaker is open after two, and the others wait"
    now = (await app.store.stats()).now
    assert worker.guards.state_of("shop/bad.org", now) is BreakerMode.OPEN
    assert worker.guards.state_of("shop/good.org", now) is BreakerMode.CLOSED
    assert [view.key for view in await app.breakers.alist() if view.mode is BreakerMode.OPEN] == ["shop/bad.org"]


async def test_a_breaker_that_is_open_already_is_known_to_the_next_worker(app: App) -> None:
    ran: list[str] = []

    async def run() -> None:
        ran.append("")

    await app.store.enqueue([gated("bad.org")])
    await app.breakers.aforce_open("shop/bad.org")
    crawl = Crawl()
    await work(app, scoped(app, run), crawl)
    assert ran == []


async def test_a_breaker_of_which_the_store_knows_nothing_can_be_forgotten(app: App) -> None:
    await app.store.enqueue([gated("good.org")])
    worker = await work(app, scoped(app, nothing), Crawl())
    worker.guards.forget_breaker("shop/good.org")
    assert worker.guards.breaker_states(0.0) == {}


def test_the_key_of_a_breaker_is_the_tasks_and_with_a_scope_the_values() -> None:
    app = App("memory://")
    spec = spec_of(app, nothing)
    job = page("a.org")
    assert breaker_of(spec, job) is None
    assert breaker_of(replace(spec, breaker="shop"), job) == "shop"
    assert breaker_of(replace(spec, breaker="shop", breaker_scope="project"), job) == "shop/a.org"
