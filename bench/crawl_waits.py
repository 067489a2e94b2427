"""Retry-After: a tenth of the pages answers 429 at first, in seconds or with a date; who comes again too early?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crawl_subjects import OURS, Subject, crawling, ends_within, lines_of, output_of, pages_of
from jobs_bars import Bar
from jobs_rounds import say

from holdfast.testing.site import Site, SiteProcess, early

LIMIT_S = 60.0
ON_THEIR_WAY_S = 0.1
"""Requests that come this soon after a refusal had been sent before it was known."""

SUBJECTS = (
    Subject("Scrapy", "crawl_peers.on_scrapy"),
    Subject("crawlee", "crawl_peers.on_crawlee", arguments={"is_polite": True}),
    Subject("crawlee, throttling", "crawl_peers.on_crawlee", arguments={"is_polite": True, "throttles": "127.0.0.1"}),
    Subject(OURS, "crawl_peers.on_holdfast", state="crawl.db"),
    Subject("Holdfast, not adaptive", "crawl_peers.on_holdfast", arguments={"is_adaptive": False}, state="crawl.db"),
)
"""As they are out of the box; crawlee also with the manager that knows the domain, Holdfast also at a fixed pace."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of a crawl of a site that asks to be waited for."""

    refused: int
    """Pages that did."""
    early_pages: int
    """Requests for the same page before its Retry-After was over."""
    early_domain: int
    """Requests to the site before a Retry-After was over that it had given, those left out that were on their way."""
    pages_missing: int
    lines_missing: int
    seconds: float
    ended: str


def measure_waits(subjects: Sequence[Subject], pages: int, folder: Path) -> dict[str, Waited]:
    found = {}
    for subject in subjects:
        say(f"Retry-After: {subject.name}")
        found[subject.name] = _waited(subject, pages, folder / f"wait-{subject.name}")
    return found


def _waited(subject: Subject, pages: int, folder: Path) -> Waited:
    plan = Site(pages=pages, faults={"limited-seconds": 0.05, "limited-date": 0.05}, retry_after_s=(1, 2))
    with SiteProcess(plan) as site:
        began = time.monotonic()
        with crawling(subject, site, folder) as process:
            is_over = ends_within(process, LIMIT_S)
            ended = f"ended with {process.returncode}" if is_over else f"killed after {LIMIT_S:.0f} s"
        seconds = time.monotonic() - began
        log = site.log()
    return Waited(
        refused=len(plan.pages_with("limited-seconds")) + len(plan.pages_with("limited-date")),
        early_pages=len(early(log)),
        early_domain=len(early(log, by="domain", grace_s=ON_THEIR_WAY_S)),
        pages_missing=pages_of(plan, log).lost,
        lines_missing=lines_of(plan, output_of(folder)).lost,
        seconds=seconds,
        ended=ended,
    )


def print_waits(found: dict[str, Waited], pages: int) -> None:
    refused = next(iter(found.values())).refused
    print(f"Retry-After of 1–2 s from {refused} of {pages:,} pages: requests that came before it was over")
    print(f"{'':24}{'to that page':>14}{'to the site':>13}{'pages missing':>15}{'lines missing':>15}{'seconds':>9}")
    for name, one in found.items():
        print(
            f"{name:24}{one.early_pages:>14,}{one.early_domain:>13,}{one.pages_missing:>15,}{one.lines_missing:>15,}"
            f"{one.seconds:>9.1f}   {one.ended}"
        )
    print(flush=True)


def wait_bars(found: dict[str, Waited]) -> list[Bar]:
    ours = found.get(OURS)
    if ours is None:
        return [Bar("requests before Retry-After was over: none", "not measured", is_met=False)]
    text = f"{ours.early_pages} to the page, {ours.early_domain} to the site"
    return [
        Bar("requests before Retry-After was over: none", text, ours.early_pages == ours.early_domain == 0),
        Bar(
            f"with Retry-After: all pages and lines are there within {LIMIT_S:.0f} s",
            f"{ours.pages_missing} pages and {ours.lines_missing} lines missing, {ours.ended}",
            ours.pages_missing == ours.lines_missing == 0,
        ),
    ]
