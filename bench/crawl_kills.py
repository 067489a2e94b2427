"""SIGKILL half-way, the same command again: which pages and lines are lost, which come twice, when it goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crawl_subjects import (
    CONCURRENCY,
    OURS,
    Lines,
    Pages,
    Subject,
    crawling,
    ends_within,
    lines_of,
    output_of,
    pages_of,
)
from jobs_bars import Bar
from jobs_rounds import say
from jobs_timing import Failed, Worker, kill_tree

from holdfast.testing.site import Site, SiteProcess

RESTARTS = 3
LIMIT_S = 60.0
"""How long each run may take."""
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Killed:
    """What came of a crawl that was killed half-way."""

    pages: Pages
    lines: Lines
    restarts: int
    """How often it was started again: until everything was fetched, or it had ended, or it was enough."""
    on_after_s: float | None
    """Seconds from its new start to the first page that had not been asked for; None: it never came."""
    ended: str


def measure_kills(subjects: Sequence[Subject], pages: int, folder: Path) -> dict[str, Killed | str]:
    """What came of each, by name; or what went wrong before the kill."""
    found: dict[str, Killed | str] = {}
    for subject in subjects:
        say(f"kill half-way: {subject.name}")
        try:
            found[subject.name] = _killed(subject, pages, folder / f"kill-{subject.name}")
        except Failed as error:
            found[subject.name] = str(error)
    return found


def _killed(subject: Subject, pages: int, folder: Path) -> Killed:
    with SiteProcess(Site(pages=pages)) as site:
        with crawling(subject, site, folder) as process:
            _until_half(site, process, subject)
            kill_tree(process)
        known = {request.path for request in site.log()}
        on_after_s, ended, restarts = None, "", 0
        while restarts < RESTARTS:
            restarts += 1
            before, began = len(site.log()), time.monotonic()
            with crawling(subject, site, folder) as process:
                is_over = ends_within(process, LIMIT_S)
                ended = f"ended with {process.returncode}" if is_over else f"killed after {LIMIT_S:.0f} s"
            new = [request for request in site.log()[before:] if request.path not in known]
            if new and on_after_s is None:
                on_after_s = new[0].at - began
            if not pages_of(site.site, site.log()).lost and is_over:
                break
        return Killed(
            pages=pages_of(site.site, site.log()),
            lines=lines_of(site.site, output_of(folder)),
            restarts=restarts,
            on_after_s=on_after_s,
            ended=ended,
        )


def _until_half(site: SiteProcess, process: Worker, subject: Subject) -> None:
    end = time.monotonic() + LIMIT_S
    while site.stats()[0].distinct < site.site.pages // 2:
        if process.poll() is not None:
            raise Failed(f"{subject.name} ended with {process.returncode} before it was half-way")
        if time.monotonic() > end:
            raise Failed(f"{subject.name} was not half-way after {LIMIT_S:.0f} s")
        time.sleep(POLL_S)


def print_kills(found: dict[str, Killed | str], pages: int) -> None:
    print(f"SIGKILL at half of {pages:,} pages, then the same command again, at most {RESTARTS} times")
    heads = f"{'pages lost':>12}{'twice':>8}{'lines lost':>12}{'doubled':>9}{'torn':>6}{'goes on after':>15}"
    print(f"{'':18}{heads}   at last")
    for name, one in found.items():
        if isinstance(one, str):
            print(f"{name:18}   {one}")
            continue
        after = "never" if one.on_after_s is None else f"{one.on_after_s:.1f} s"
        print(
            f"{name:18}{one.pages.lost:>12,}{one.pages.again:>8,}{one.lines.lost:>12,}{one.lines.doubled:>9,}"
            f"{one.lines.torn:>6,}{after:>15}   {one.ended}, {one.restarts} restarts"
        )
    print("Of a JOBDIR, Scrapy says that it goes on from a clean stop. Its lines are written by its own feed export,")
    print("crawlee's by the handler, one at a time.\n", flush=True)


def kill_bars(found: dict[str, Killed | str]) -> list[Bar]:
    ours = found.get(OURS)
    if not isinstance(ours, Killed):
        return [Bar("killed half-way: nothing lost, nothing doubled", "not measured", is_met=False)]
    lines = ours.lines
    wrong = lines.lost + lines.doubled + lines.torn
    return [
        Bar("killed half-way: no page lost", str(ours.pages.lost), ours.pages.lost == 0),
        Bar(
            f"killed half-way: at most the {CONCURRENCY} pages in flight fetched twice",
            str(ours.pages.again),
            ours.pages.again <= CONCURRENCY,
        ),
        Bar("killed half-way: no line of the output lost, doubled or torn", str(wrong), wrong == 0),
        Bar("killed half-way: finished after one restart", str(ours.restarts), ours.restarts == 1),
    ]
