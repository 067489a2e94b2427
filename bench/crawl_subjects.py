"""Whom bench-crawl measures, and how one crawl is run: in a fresh process, an empty folder, on a site with a log."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from jobs_timing import LOG_SHOWN, PYTHON, Failed, Worker, kill_tree, started

from holdfast.testing.site import Request, Site, SiteProcess, requests_by_path

CONCURRENCY = 32
NAME = re.compile(r'"name": ?"Product (\d+)"')


@dataclass(frozen=True, slots=True)
class Subject:
    """One line of a table."""

    name: str
    module: str
    function: str = "crawl"
    arguments: Mapping[str, object] = field(default_factory=dict)
    state: str = ""
    """What it keeps in its folder to go on from; "" for nothing."""
    rounds: int = 3


BARE = "aiohttp loop, parsing"
OURS = "Holdfast, SQLite"
SCRAPY = "Scrapy, JOBDIR"
CRAWLEE = "crawlee, files"

DURABLE = (
    Subject(SCRAPY, "crawl_peers.on_scrapy", state="jobdir"),
    Subject(CRAWLEE, "crawl_peers.on_crawlee", state="storage"),
    Subject(OURS, "crawl_peers.on_holdfast", state="crawl.db"),
)
"""Those that say that they can go on after an end."""


def all_subjects(pages: int) -> tuple[Subject, ...]:
    """Everybody, for the rates."""
    return (
        Subject("aiohttp loop, no parsing", "crawl_peers.on_aiohttp", "fetch", {"pages": pages}),
        Subject(BARE, "crawl_peers.on_aiohttp"),
        Subject("Scrapy, memory", "crawl_peers.on_scrapy"),
        Subject("crawlee, memory", "crawl_peers.on_crawlee"),
        Subject("Holdfast, memory", "crawl_peers.on_holdfast"),
        *DURABLE,
    )


@contextmanager
def crawling(subject: Subject, site: SiteProcess, folder: Path) -> Iterator[Worker]:
    """The subject at work in that folder, on a site's first page; killed in the end, if it has not ended by itself."""
    folder.mkdir(exist_ok=True)
    arguments: dict[str, object] = {
        "url": f"{site.url}/",
        "out": str(output_of(folder)),
        "concurrency": CONCURRENCY,
        **subject.arguments,
    }
    if subject.state:
        arguments["state"] = str(folder / subject.state)
    command = [str(PYTHON), "-m", "jobs_call", subject.module, subject.function, json.dumps(arguments)]
    with started(command, {}, folder / "log.txt", is_killed=True) as process:
        yield process


def output_of(folder: Path) -> Path:
    """Where a subject writes its items."""
    return folder / "out.jsonl"


def ends_within(process: Worker, seconds: float) -> bool:
    """Whether it has ended by itself by then; if not, it is killed."""
    end = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() > end:
            kill_tree(process)
            return False
        time.sleep(0.002)
    return True


def must_end_well(subject: Subject, process: Worker, folder: Path, seconds: float) -> None:
    """Raise Failed where it does not end by itself with 0."""
    is_over = ends_within(process, seconds)
    if not is_over or process.returncode:
        why = f"ended with {process.returncode}" if is_over else f"had not finished after {seconds:.0f} s"
        said = (folder / "log.txt").read_text(errors="replace")[-LOG_SHOWN:]
        raise Failed(f"{subject.name} {why}: {said}")


# ---- what came of it


@dataclass(frozen=True, slots=True)
class Pages:
    """The site's side: which pages were answered with 200, and how often."""

    lost: int
    """Pages that can be had and were never fetched."""
    again: int
    """Requests for pages that had been fetched already."""


def pages_of(site: Site, log: list[Request]) -> Pages:
    counts = requests_by_path(request for request in log if request.status == 200)
    return Pages(
        lost=sum(not counts[site.path(page)] for page in range(site.pages)),
        again=sum(count - 1 for count in counts.values()),
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """The file's side: which items are in it, and how often."""

    lost: int
    doubled: int
    torn: int
    """Lines that are no JSON."""


def lines_of(site: Site, file: Path) -> Lines:
    torn, names = 0, Counter[int]()
    for line in file.read_text("utf-8", errors="replace").splitlines() if file.exists() else ():
        found = NAME.search(line)
        try:
            json.loads(line)
        except ValueError:
            found = None
        if found is None:
            torn += 1
        else:
            names[int(found[1])] += 1
    return Lines(
        lost=sum(not names[page] for page in range(site.pages)),
        doubled=sum(count - 1 for count in names.values()),
        torn=torn,
    )
