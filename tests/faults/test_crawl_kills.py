"""A crawl that is killed again and again: every page is handled, few are fetched twice, no item is written twice."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from holdfast.crawl import CrawlSummary
from holdfast.testing.site import Site, SiteProcess, most_in_flight, requests_by_path
from tests.faults.conftest import on, small_on, waits
from tests.faults.crawl_program import Settings
from tests.faults.engines import Engine
from tests.faults.load import Dice
from tests.faults.report import Figures, Report
from tests.faults.workers import CLOCK, Fleet, poll

pytestmark = waits
MODULE = "tests.faults.crawl_program"
CONCURRENCY = 32


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet("", tmp_path / "effects", tmp_path) as fleet:
        yield fleet


def start(fleet: Fleet, settings: Settings) -> int:
    return fleet.run(MODULE, msgspec.json.encode(settings).decode())


def come_to(site: SiteProcess, requests: int) -> None:
    poll(lambda: len(site.log()) >= requests, 20, f"the site was asked {requests} times")


def urls_in(path: Path) -> Counter[str]:
    return Counter(json.loads(line)["url"] for line in path.read_text().splitlines())


@on("sqlite")
def test_a_crawl_that_is_killed_at_random_moments_loses_nothing_and_writes_nothing_twice(
    engine: Engine, fleet: Fleet, tmp_path: Path, is_full: bool, report: Report
) -> None:
    dice = Dice()
    pages, kills = (5_000, 10) if is_full else (1_200, 4)
    settings = Settings(
        store=engine.url,
        seeds=("",),
        out=str(tmp_path / "pages.jsonl"),
        concurrency=CONCURRENCY,
        summary=str(tmp_path / "summary"),
    )
    with SiteProcess(Site(pages=pages), log=tmp_path / "log") as site:
        settings = msgspec.structs.replace(settings, seeds=(site.url,))
        went_on_s, starts = [], []
        for kill in range(kills):
            before = len(site.log())
            starts.append(before)
            began_s = CLOCK.monotonic()
            pid = start(fleet, settings)
            come_to(site, before + 1)
            went_on_s.append(CLOCK.monotonic() - began_s)
            # A moment by pages, so that each of the runs has some and the last one is not over before its kill.
            target = before + 1 + dice.below(max(1, (pages - before) // (kills - kill + 1)))
            come_to(site, target)
            fleet.kill(pid)
        starts.append(len(site.log()))
        assert fleet.wait(start(fleet, settings)) == 0
        summary = msgspec.json.decode(Path(settings.summary).read_bytes(), type=CrawlSummary)
        log = site.log()
        asked = requests_by_path(log)
    again = [
        len({one.path for one in log[:begin]} & {one.path for one in log[begin:end]})
        for begin, end in pairwise([*starts, len(log)])
    ]
    wanted = {site.url_of(n) for n in range(pages)}
    written = urls_in(tmp_path / "pages.jsonl")
    twice = sum(asked.values()) - len(asked)
    assert (summary.is_finished, summary.done, summary.pending, summary.dead) == (True, pages, 0, 0)
    assert len(asked) == pages
    assert written == Counter(dict.fromkeys(wanted, 1))
    assert max(again) <= CONCURRENCY
    assert twice == sum(again), "nothing is fetched twice within one run"
    report(
        "a crawl killed (SIGKILL) at random moments, again and again",
        injected=kills,
        figures=Figures(
            completed=summary.done,
            dead=summary.dead,
            lost=len(wanted - written.keys()),
            twice=written.total() - len(written),
            recoveries=went_on_s,
        ),
        note=f"pages fetched twice {twice}, at most {max(again)} after a kill",
        seed=dice.seed,
    )


@small_on("postgres")
def test_two_processes_share_a_crawl_and_keep_the_limits_of_each_domain_also_when_one_is_killed(
    engine: Engine, fleet: Fleet, tmp_path: Path, is_full: bool, report: Report
) -> None:
    pages = 2_000 if is_full else 400
    with SiteProcess(Site(pages=pages, hosts=8, latency_s=0.02), log=tmp_path / "log") as site:
        settings = Settings(
            store=engine.url, seeds=tuple(site.urls), per_domain=2, allow=tuple(f"{url}/**" for url in site.urls)
        )
        first, second = start(fleet, settings), start(fleet, settings)
        poll(lambda: len(site.log()) > pages // 3, 60, "both are at it")
        fleet.kill(first)
        assert fleet.wait(second, 60) == 0
        assert fleet.wait(start(fleet, msgspec.structs.replace(settings, out=str(tmp_path / "all.jsonl"))), 30) == 0
        log = site.log()
    written = urls_in(tmp_path / "all.jsonl")
    asked = Counter(request.url for request in log)
    twice = asked.total() - len(asked)
    assert written == Counter({site.url_of(n): 1 for n in range(pages)})
    assert twice <= CONCURRENCY
    assert most_in_flight(log) <= 2 + 2, "what the killed one had in flight may still be answered"
    report(
        "one of two processes on a crawl killed (SIGKILL)",
        injected=1,
        figures=Figures(completed=len(written), lost=pages - len(written), twice=written.total() - len(written)),
        note=f"pages fetched twice {twice}, at most {most_in_flight(log)} in flight of a domain",
    )


@small_on("redis")
def test_a_crawl_that_was_killed_goes_on_without_waiting_for_its_lease(
    engine: Engine, fleet: Fleet, tmp_path: Path
) -> None:
    with SiteProcess(Site(pages=100, latency_s=0.02), log=tmp_path / "log") as site:
        settings = Settings(store=engine.url, seeds=(site.url,), concurrency=4, lease_s=600.0)
        pid = start(fleet, settings)
        come_to(site, 30)
        fleet.kill(pid)
        assert fleet.wait(start(fleet, settings), 30) == 0
        asked = requests_by_path(site.log())
    assert len(asked) == 100
    assert sum(asked.values()) <= 100 + 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_crawl_that_is_told_to_stop_fetches_nothing_twice(
    fleet: Fleet, tmp_path: Path, number: signal.Signals
) -> None:
    pages = 1_200  # seconds of work, so that it is not over when it is told to stop
    with SiteProcess(Site(pages=pages, latency_s=0.01), log=tmp_path / "log") as site:
        settings = Settings(
            store=f"sqlite:///{tmp_path}/crawl.db", seeds=(site.url,), out=str(tmp_path / "out.jsonl"), concurrency=8
        )
        pid = start(fleet, settings)
        poll(lambda: len(site.log()) > 50, 20, "it is at it")
        fleet.send(pid, number)
        assert fleet.wait(pid) == 0
        assert 50 < len(site.log()) < pages
        assert fleet.wait(start(fleet, settings)) == 0
        assert set(requests_by_path(site.log()).values()) == {1}
    assert urls_in(tmp_path / "out.jsonl") == Counter({site.url_of(n): 1 for n in range(pages)})
