"""What a worker asks of a crawl and tells it; and breakers with a scope, one for each of its values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.app import App
from holdfast.clock import new_id
from holdfast.errors import StoreAway, Transient, Unwritable
from holdfast.policy.breaker import FAILURE, BreakerConfig
from holdfast.policy.retry import RetryPolicy
from holdfast.ports import CrawlReport, Delivery, Exchange, Exchanged, Settlement, Value
from holdfast.runtime.crawl_origins import GATE
from holdfast.runtime.shared.names import breaker_gate
from holdfast.runtime.shared.registry import Registry
from holdfast.runtime.spec import TaskSpec, breaker_of
from holdfast.runtime.worker import Exit, Worker
from holdfast.testing import ManualClock
from holdfast.testing.faulty import FaultyStore
from holdfast.types import BreakerMode, Change, JobState, NewJob, Snooze

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


async def test_a_page_that_waited_is_no_success_to_its_breaker(app: App) -> None:
    ends: list[Any] = [Transient("down"), Snooze(0.0), Transient("down"), None]

    async def run() -> None:
        end = ends.pop(0)
        if isinstance(end, Transient):
            raise end
        return end  # type: ignore[no-any-return]

    await app.store.enqueue([gated("bad.org"), gated("bad.org")])
    spec = replace(scoped(app, run), in_flight=1, is_snooze_success=False)
    worker = await work(app, spec, Crawl())
    now = (await app.store.stats()).now
    assert worker.guards.state_of("shop/bad.org", now) is BreakerMode.OPEN, "two failures in a row"
    assert len(ends) == 1


async def test_a_breaker_that_was_written_and_is_closed_can_be_forgotten_and_is_as_it_was(app: App) -> None:
    config = BreakerConfig(failure_threshold=3)
    await app.store.enqueue([gated("shaky.org")])

    async def run() -> None:
        raise Transient("down")

    worker = await work(app, replace(scoped(app, run), breaker_config=config), Crawl())
    worker.guards.forget_breaker("shop/shaky.org")
    assert worker.guards.breaker_states(0.0) == {}
    worker.guards.add_breaker("shop/shaky.org", config)
    go = worker.guards.calm_go("shop/shaky.org", 0.0)
    assert go is not None
    for _ in range(2):
        worker.guards.report(go, FAILURE, 0.0)
    assert worker.guards.state_of("shop/shaky.org", 0.0) is BreakerMode.OPEN, "with the one that the store knows"


async def test_a_breaker_that_is_open_is_not_forgotten(app: App) -> None:
    await app.store.enqueue([gated("bad.org")])
    worker = await work(app, scoped(app, nothing), Crawl())
    await app.breakers.aforce_open("shop/bad.org")
    reply = await app.store.exchange(Exchange())
    worker.guards.absorb(reply)
    worker.guards.forget_breaker("shop/bad.org")
    assert worker.guards.breaker_states(reply.now) == {"shop/bad.org": BreakerMode.FORCED_OPEN}


async def test_values_of_crawls_are_not_kept_for_guards_that_may_come(app: App) -> None:
    registry = Registry()
    registry.known(Value("crawl:shop/hold/a.org", 1, b"{}"))
    assert registry.waiting == 0
    registry.known(Value(breaker_gate("shop/a.org"), 2, b"{}"))
    assert registry.waiting == 1


# ---------------------------------------------------------------- the worker's loop


async def test_while_a_domain_waits_for_its_time_the_store_is_left_alone(app: App) -> None:
    crawl = Crawl({"domain:a.org": 0})
    crawl.opens = 3600.0
    looks: list[float] = []

    def idle() -> None:
        looks.append(app.clock.monotonic())

    crawl.idle = idle  # type: ignore[method-assign]
    await app.store.enqueue([page("a.org")])
    worker = Worker(app.store, {TASK: spec_of(app, nothing)}, clock=app.clock, crawl=crawl)
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(20):
        while not looks:
            await a_turn()
        worker.wake()
        for _ in range(500):
            await a_turn()
        assert len(looks) == 2, "one more, as it was told to"
        worker.stop()
        await running


async def test_a_worker_that_is_told_to_hurry_gives_back_what_runs_at_once(app: App) -> None:
    begun = asyncio.Event()

    async def run() -> None:
        begun.set()
        await asyncio.Event().wait()

    await app.store.enqueue([page("a.org")])
    worker = Worker(app.store, {TASK: spec_of(app, run)}, clock=app.clock, crawl=Crawl())
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(20):
        await begun.wait()
        worker.stop()
        await a_turn()
        worker.stop(grace_s=0.0)
        assert await running is Exit.RELEASED
    (tally,) = (await app.store.stats()).tallies
    assert tally.state is JobState.QUEUED


async def test_settlements_that_go_one_by_one_are_told_as_well(app: App) -> None:
    store = FaultyStore(app.store)
    jobs = [page("a.org"), page("b.org")]
    await app.store.enqueue(jobs)
    send, refused = store.exchange, 2

    async def fails_on_many(exchange: Exchange) -> Exchanged:
        nonlocal refused
        if exchange.settlements and refused:
            refused -= 1
            raise Unwritable(exchange.settlements[0].id, "not like that")
        return await send(exchange)

    store.exchange = fails_on_many  # type: ignore[method-assign]
    crawl = Crawl()
    crawl.worker = worker = Worker(store, {TASK: spec_of(app, nothing)}, clock=app.clock, crawl=crawl)
    async with asyncio.timeout(20):
        await worker.run()
    assert {id for id, _ in crawl.was_settled} == {job.id for job in jobs}  # noqa: A001


async def test_a_claim_whose_answer_was_lost_is_told_once(app: App) -> None:
    store = FaultyStore(app.store)
    await app.store.enqueue([page("a.org"), page("b.org")])
    send, lost = store.exchange, 1

    async def loses_one(exchange: Exchange) -> Exchanged:
        nonlocal lost
        reply = await send(exchange)
        if reply.deliveries and lost:
            lost -= 1
            raise StoreAway("the answer is lost")
        return reply

    store.exchange = loses_one  # type: ignore[method-assign]
    crawl = Crawl()
    crawl.worker = worker = Worker(store, {TASK: spec_of(app, nothing)}, clock=app.clock, crawl=crawl)
    async with asyncio.timeout(20):
        await worker.run()
    assert sorted(domain for claim in crawl.was_claimed for domain in claim) == ["a.org", "b.org"]
    assert len(crawl.was_settled) == 2


async def test_a_process_that_was_stopped_for_longer_than_its_lease_knows_that_it_has_none(app: App) -> None:
    clock = ManualClock(auto=False)
    had: list[bool] = []

    async def run() -> None:
        had.append(worker.has_lease())
        clock.advance(60.0)
        had.append(worker.has_lease())

    await app.store.enqueue([page("a.org")])
    worker = Worker(app.store, {TASK: spec_of(app, run)}, clock=clock, crawl=Crawl())
    running = asyncio.ensure_future(worker.run())
    async with asyncio.timeout(20):
        while len(had) < 2:
            await a_turn()
        worker.stop()
        await running
    assert had == [True, False]


async def a_turn() -> None:
    await asyncio.sleep(0)  # noqa: TID251 - lets the others run
