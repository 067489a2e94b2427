"""A million URLs into the frontier on SQLite: how quickly, whether it gets slower, and how much memory it takes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from crawl_subjects import CONCURRENCY
from jobs_bars import Bar, at_least, at_most
from jobs_rounds import say
from jobs_timing import peak_mb, run

LINKS = 16
"""So many URLs come with a page."""
DOMAINS = 1_000
LEAST_OF_FIRST = 0.5
MOST_MB = 400.0


@dataclass(frozen=True, slots=True)
class Filled:
    """What came of it."""

    urls: int
    first: float
    """URLs a second of the first tenth."""
    last: float
    """And of the last one."""
    known: float
    """The first tenth once more, when all of it is known."""
    new_again: int
    """How many of those the store took for new ones."""
    base_mb: float
    """What the process had before the first URL."""
    most_mb: float
    file_mb: float


def measure_frontier(urls: int, folder: Path) -> Filled:
    say(f"frontier: {urls:,} URLs")
    return Filled(**run("crawl_frontier", "fill", {}, state=str(folder / "frontier.db"), urls=urls))


def fill(state: str, urls: int) -> dict[str, float]:
    """In a process of its own."""
    return asyncio.run(_fill(state, urls))


async def _fill(state: str, urls: int) -> dict[str, float]:
    from holdfast import App
    from holdfast.crawl.frontier import Frontier

    app = App(f"sqlite:///{state}")
    frontier = Frontier(app.store, "million", app.clock)
    base_mb, part = peak_mb(os.getpid()), urls // 10
    rates = []
    for tenth in range(10):
        rates.append((await _add(frontier, tenth * part, part))[0])
    known, new_again = await _add(Frontier(app.store, "million", app.clock), 0, part)
    return {
        "urls": part * 10,
        "first": rates[0],
        "last": rates[-1],
        "known": known,
        "new_again": new_again,
        "base_mb": base_mb,
        "most_mb": peak_mb(os.getpid()),
        "file_mb": sum(file.stat().st_size for file in Path(state).parent.glob(f"{Path(state).name}*")) / 1e6,
    }


async def _add(frontier: object, first: int, count: int) -> tuple[float, int]:
    """URLs a second, and how many were new; as many pages at a time hand in their links as are fetched at once."""
    from holdfast.crawl.frontier import Found, Frontier

    assert isinstance(frontier, Frontier)
    left: Iterator[int] = iter(range(first, first + count))

    async def work() -> int:
        new = 0
        while links := [
            Found(f"https://site-{n % DOMAINS}.example/catalogue/{n}", depth=2) for n in islice(left, LINKS)
        ]:
            new += await frontier.add(links)
        return new

    began = time.perf_counter()
    new = sum(await asyncio.gather(*(work() for _ in range(CONCURRENCY))))
    return count / (time.perf_counter() - began), new


def print_frontier(found: Filled) -> None:
    print(f"The frontier with {found.urls:,} URLs of {DOMAINS:,} domains, {LINKS} a page, on SQLite")
    print(f"new URLs     {found.first:,.0f} a second in the first tenth, {found.last:,.0f} in the last")
    print(f"known URLs   {found.known:,.0f} a second")
    print(f"memory       {found.most_mb:,.0f} MB at most, {found.base_mb:,.0f} MB before the first")
    print(f"file         {found.file_mb:,.0f} MB")
    print(flush=True)


def frontier_bars(found: Filled) -> list[Bar]:
    name = f"frontier of {found.urls:,}"
    return [
        at_least(f"{name}: the last tenth ≥ {LEAST_OF_FIRST} × the first", found.last, found.first, LEAST_OF_FIRST),
        at_most(f"{name}: memory at most {MOST_MB:.0f} MB", found.most_mb, MOST_MB, "{:.0f} MB".format),
        Bar(f"{name}: what is known is not taken again", str(found.new_again), found.new_again == 0),
    ]
