"""What a process remembers of its domains, how much of it, and what a claim is told."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.crawl import domains as module
from holdfast.crawl.domains import Domain, Domains, Hold
from holdfast.crawl.pace import Outcome, PaceSettings
from holdfast.crawl.robots import Robots
from holdfast.runtime.page_gates import domain_gate, share_of
from holdfast.testing import ManualClock

pytestmark = pytest.mark.anyio


class Crawl:
    """Domains of a crawl, with what the store would remember of their rests."""

    def __init__(self, **settings: object) -> None:
        self.clock = ManualClock()
        self.holds: dict[str, Hold] = {}
        self.forgotten: list[str] = []
        pace = PaceSettings(**({"per_domain": 4} | settings))  # type: ignore[arg-type]
        self.domains = Domains("shop", pace, self.clock, hold_of=self.holds.get, on_forgotten=self.forgotten.append)

    def ask(self, name: str, outcome: Outcome = Outcome.OK, retry_after_s: float | None = None) -> Domain:
        """One request, from its claim to its end."""
        domain, now_s = self.domains.get(name), self.clock.monotonic()
        domain.pace.started(now_s)
        domain.ended(now_s, began_s=now_s, outcome=outcome, took_s=0.0, retry_after_s=retry_after_s)
        return domain

    def caps(self) -> dict[str, int]:
        caps = self.domains.caps()
        return {gate.removeprefix(domain_gate("shop", "")): room for gate, room in caps.items()}


# ---------------------------------------------------------------- what a claim names


async def test_a_domain_that_was_asked_and_is_fine_is_not_named_any_more() -> None:
    crawl = Crawl()
    crawl.ask("a.org")
    assert crawl.caps() == {"a.org": 4}
    assert crawl.caps() == {}


async def test_what_is_claimed_or_in_flight_takes_room() -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    domain.claimed = 1
    domain.pace.started(0.0)
    assert crawl.caps() == {"a.org": 2}
    assert crawl.caps() == {"a.org": 2}, "and it stays named"


async def test_while_the_first_page_asks_for_robots_txt_no_other_is_claimed() -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    file = domain.robots_of("https://a.org/x")
    file.fetching = asyncio_future()
    domain.pace.started(0.0)
    assert crawl.caps() == {"a.org": 0}
    file.fetching = None
    assert crawl.caps() == {"a.org": 3}


async def test_a_domain_opens_at_its_time_and_not_before() -> None:
    crawl = Crawl()
    crawl.ask("a.org", Outcome.REFUSED, retry_after_s=20.0)
    assert crawl.caps() == {"a.org": 0}
    assert crawl.domains.opens_in_s() == 20.0
    crawl.clock.advance(19.0)
    assert crawl.caps() == {"a.org": 0}
    assert crawl.domains.opens_in_s() == pytest.approx(1.0)
    crawl.clock.advance(1.0)
    assert crawl.caps() == {"a.org": 1}, "the probe"


async def test_a_request_that_ends_opens_it_at_once() -> None:
    crawl = Crawl(per_domain=1, is_adaptive=False)
    domain = crawl.domains.get("a.org")
    domain.pace.started(0.0)
    assert crawl.caps() == {"a.org": 0}
    domain.released(0.0)
    assert crawl.caps() == {"a.org": 1}


async def test_a_shorter_crawl_delay_opens_it_at_once() -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    domain.obey(domain.robots_of("http://a.org/"), Robots(crawl_delay_s=50.0), 1e9)
    crawl.ask("a.org")
    assert crawl.caps() == {"a.org": 0}
    domain.obey(domain.robots_of("http://a.org/"), Robots(), 1e9)
    assert crawl.caps()["a.org"] > 0


async def test_of_two_robots_txt_the_longer_delay_counts() -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    domain.obey(domain.robots_of("https://a.org/"), Robots(crawl_delay_s=7.0), 1e9)
    domain.obey(domain.robots_of("http://a.org/"), Robots(crawl_delay_s=3.0), 1e9)
    assert domain.pace.interval_s == 7.0


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REFUSED, Outcome.OK])
async def test_what_a_claim_names_does_not_grow_with_the_domains_that_were_met(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    monkeypatch.setattr(module, "_MOST_NAMED", 50)
    crawl = Crawl()
    for n in range(500):
        crawl.ask(f"{n}.org", outcome)
        crawl.domains.caps()
    assert crawl.domains.named <= 51


async def test_what_is_in_flight_is_named_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NAMED", 5)
    crawl = Crawl()
    for n in range(20):
        crawl.domains.get(f"{n}.org").pace.started(0.0)
    for _ in range(2):
        assert set(crawl.caps()) == {f"{n}.org" for n in range(20)}


# ---------------------------------------------------------------- what is remembered


async def test_domains_of_which_nothing_was_learnt_are_forgotten_when_they_are_many() -> None:
    crawl = Crawl()
    for n in range(10_000):
        crawl.ask(f"{n}.org")
        crawl.domains.caps()
    assert len(crawl.domains) <= 2_001
    assert "9999.org" in crawl.domains, "those that were met lately are kept"
    assert len(crawl.forgotten) == 10_000 - len(crawl.domains)


async def test_what_was_learnt_is_forgotten_when_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_MOST_IDLE": 20, "_MOST": 100, "_MOST_NAMED": 10}.items():
        monkeypatch.setattr(module, name, value)
    crawl = Crawl()
    for n in range(1_000):
        crawl.ask(f"{n}.org", Outcome.FAILED)
        crawl.domains.caps()
    assert len(crawl.domains) <= 112


async def test_a_rest_that_nobody_else_remembers_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_MOST_IDLE": 20, "_MOST": 100, "_MOST_NAMED": 10}.items():
        monkeypatch.setattr(module, name, value)
    crawl = Crawl()
    for n in range(300):
        domain = crawl.ask(f"{n}.org", Outcome.REFUSED, retry_after_s=500.0)
        if n % 2:
            crawl.holds[f"{n}.org"] = Hold(domain.pace.held_until_s, "Retry-After", 1)
        crawl.domains.caps()
    assert all(f"{n}.org" in crawl.domains for n in range(0, 300, 2))
    assert "1.org" not in crawl.domains
    again = crawl.domains.get("1.org")
    assert (again.pace.opens_in_s(0.0), again.pace.refusals) == (500.0, 1), "it is held when it is met again"


@pytest.mark.parametrize("hold", ["claimed", "in flight", "parsed"])
async def test_a_domain_with_a_page_at_hand_is_not_forgotten(hold: str) -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    match hold:
        case "claimed":
            domain.claimed = 1
        case "in flight":
            domain.pace.started(0.0)
        case _:
            domain.pages = 1
    for n in range(5_000):
        crawl.ask(f"{n}.org")
        crawl.domains.caps()
    assert "a.org" in crawl.domains
    assert crawl.forgotten


async def test_a_rest_that_is_over_or_shorter_changes_nothing() -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    crawl.clock.advance(100.0)
    domain.hold(Hold(99.0, "Retry-After"), 100.0)
    assert domain.pace.room(100.0) == 4
    domain.hold(Hold(150.0, "Retry-After"), 100.0)
    domain.hold(Hold(120.0, "refused"), 100.0)
    assert (domain.pace.held_until_s, domain.pace.why) == (150.0, "Retry-After")


# ---------------------------------------------------------------- shares


async def test_a_share_is_busy_while_one_of_its_domains_is_asked_or_would_be_asked_too_soon() -> None:
    crawl = Crawl(min_delay_s=5.0)
    share = share_of("a.org")
    domain = crawl.domains.get("a.org")
    assert crawl.domains.busy_shares() == set()
    domain.claimed = 1
    assert crawl.domains.busy_shares() == {share}
    domain.claimed = 0
    domain.pace.started(0.0)
    assert crawl.domains.busy_shares() == {share}
    crawl.clock.advance(1.0)
    domain.released(1.0)
    assert crawl.domains.busy_shares() == {share}, "the next one would ask after one second"
    crawl.clock.advance(4.0)
    assert crawl.domains.busy_shares() == set()


async def test_a_share_is_not_kept_for_a_rest_which_the_store_remembers() -> None:
    crawl = Crawl()
    crawl.ask("a.org", Outcome.REFUSED, retry_after_s=30.0)
    assert crawl.domains.busy_shares() == set()


async def test_once_its_worker_has_ended_nothing_is_in_flight() -> None:
    crawl = Crawl()
    domain = crawl.domains.get("a.org")
    domain.claimed = 2
    domain.pace.started(0.0, 2)
    crawl.domains.forget_flights()
    assert (domain.claimed, domain.pace.in_flight, crawl.caps()) == (0, 0, {"a.org": 4})


def asyncio_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()
