"""Pages a second of everybody, in turns, on one site whose pages are ready."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from crawl_subjects import (
    BARE,
    CRAWLEE,
    OURS,
    SCRAPY,
    Subject,
    crawling,
    lines_of,
    must_end_well,
    output_of,
    pages_of,
)
from jobs_bars import Bar, at_least
from jobs_rounds import say
from jobs_timing import Failed

from holdfast.testing.site import Site, SiteProcess

LIMIT_S = 120.0


@dataclass(slots=True)
class Rate:
    """What was measured of one subject, a value for each round."""

    rates: list[float] = field(default_factory=list)
    """Pages a second from the first request to the last, both as the site saw them."""
    whole_s: list[float] = field(default_factory=list)
    """Seconds from the start of the process to its end."""
    trouble: str = ""

    @property
    def rate(self) -> float | None:
        return None if self.trouble or not self.rates else median(self.rates)


def measure_rates(subjects: Sequence[Subject], pages: int, folder: Path, rounds: int | None) -> dict[str, Rate]:
    """The rates by name; `rounds` for everybody, or each has its own."""
    found = {subject.name: Rate() for subject in subjects}
    with SiteProcess(Site(pages=pages), is_buffered=True) as site:
        for page in range(pages):  # it renders a page when it is first asked for
            urllib.request.urlopen(site.url_of(page)).close()
        turns = [rounds or subject.rounds for subject in subjects]
        for turn in range(max(turns)):
            for subject, most in zip(subjects, turns, strict=True):
                if turn < most and not found[subject.name].trouble:
                    say(f"rates, round {turn + 1}: {subject.name}")
                    _run(subject, site, folder / f"{turn}-{subject.name}", found[subject.name])
    return found


def _run(subject: Subject, site: SiteProcess, folder: Path, rate: Rate) -> None:
    before = len(site.log())
    began = time.perf_counter()
    try:
        with crawling(subject, site, folder) as process:
            must_end_well(subject, process, folder, LIMIT_S)
    except Failed as error:
        say(str(error))
        rate.trouble = str(error).rstrip().rpartition("\n")[2]
        return
    rate.whole_s.append(time.perf_counter() - began)
    log = site.log()[before:]
    pages, lines = pages_of(site.site, log), lines_of(site.site, output_of(folder))
    if pages.lost or pages.again:
        rate.trouble = f"{pages.lost} pages were never fetched, {pages.again} fetched again"
    elif subject.function == "crawl" and (lines.lost or lines.doubled or lines.torn):
        rate.trouble = f"lines of the output: {lines.lost} lost, {lines.doubled} doubled, {lines.torn} torn"
    else:
        rate.rates.append((len(log) - 1) / (log[-1].at - log[0].at))


def print_rates(found: dict[str, Rate], pages: int) -> None:
    base = found[BARE].rate if BARE in found else None
    print(f"Pages a second, {pages:,} pages of 2–4 KB, 32 at once: the median of the rounds")
    print(f"{'':28}{'pages/s':>9}{'of bare':>9}{'start to end':>14}   rounds")
    for name, rate in found.items():
        if rate.rate is None:
            print(f"{name:28}{'–':>9}   {rate.trouble or 'not measured'}")
            continue
        share = f"{rate.rate / base:.2f}" if base else "–"
        all_rates = " ".join(f"{one:,.0f}" for one in rate.rates)
        print(f"{name:28}{rate.rate:>9,.0f}{share:>9}{median(rate.whole_s):>12.1f} s   {all_rates}")
    print(flush=True)


def rate_bars(found: dict[str, Rate]) -> list[Bar]:
    ours, bare, scrapy, crawlee = (
        found[name].rate if name in found else None for name in (OURS, BARE, SCRAPY, CRAWLEE)
    )
    return [
        at_least("durable crawl ≥ 0.5 × a bare aiohttp loop with parsing", ours, bare, 0.5),
        at_least("durable crawl ≥ 3 × Scrapy with a JOBDIR", ours, scrapy, 3),
        at_least("durable crawl ≥ 5 × crawlee with files", ours, crawlee, 5),
    ]
