"""Lists and groups with a million jobs beside a thousand: the second part of bench-api."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

import psycopg
from api_server import serving
from jobs_bars import Bar, at_most
from jobs_rounds import say
from jobs_subject import Engine
from jobs_timing import run

MOST = 3.0
SMALL = (1_000, 1_000)
PAUSE_S = 0.55
"""Longer than the API remembers an overview, which answers /queues too: each call is to cost what it costs."""
OVERVIEW = "/overview"
TARGETS = {
    "jobs": "/jobs",
    "jobs, completed": "/jobs?state=completed",
    "jobs, dead letters": "/jobs?state=dead_letter",
    "jobs, queued (none)": "/jobs?state=queued",
    "jobs of a task": "/jobs?task=charge",
    "jobs of a tenant": "/jobs?tenant=acme",
    "jobs of a task and a tenant": "/jobs?task=mail&tenant=hooli&state=completed",
    "jobs with a text": "/jobs?text=refused",
    "jobs with a text that none has": "/jobs?text=zebra",
    "dead letters": "/dead-letters",
    "dead letters of a tenant": "/dead-letters?tenant=acme",
    "groups": "/dead-letters/groups",
    "groups of a task": "/dead-letters/groups?task=charge",
    "queues": "/queues",
    "retry stats": "/retry/stats",
    "overview": OVERVIEW,
}


@dataclass(slots=True)
class Lists:
    """Medians in milliseconds of one store: small, and large."""

    jobs: int
    letters: int
    ms: dict[str, tuple[float, float]] = field(default_factory=dict)


def measure(name: str, engine: Engine, url_of: Callable[[str, str], str], jobs: int, letters: int, calls: int) -> Lists:
    """Two stores in one place, a server on each, and one client that asks them in turns."""
    found = Lists(jobs, letters)
    with engine.place() as place:
        urls = [url_of(place.url, size) for size in ("small", "large")]
        for url, (count, dead) in zip(urls, (SMALL, (jobs, letters)), strict=True):
            say(f"lists, {name}: {count:,} jobs and {dead:,} dead letters are put in")
            run("api_fill", "fill", {}, url=url, jobs=count, letters=dead)
        analyse(place.url)
        say(f"lists, {name}: {calls} calls of {len(TARGETS)} endpoints")
        few, many = ({**place.environment, "HOLDFAST_URL": url} for url in urls)
        with serving(few, place.folder) as one, serving(many, place.folder) as other:
            small, large = run(
                "api_client",
                "call_ms",
                {},
                ports=[one.port, other.port],
                laps=[[one for one in TARGETS.values() if one != OVERVIEW], [OVERVIEW]],
                calls=calls,
                pause_s=PAUSE_S,
            )
    found.ms = {text: (median(small[target]), median(large[target])) for text, target in TARGETS.items()}
    return found


def analyse(url: str) -> None:
    """What PostgreSQL does by itself within a minute: it counts what is in its tables, and plans by that."""
    if url.startswith("postgresql:"):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ANALYZE")


def bars(name: str, found: Lists) -> list[Bar]:
    return [
        at_most(f"{name}, {text}: ≤ 3 × its time at 1,000", large / small, MOST, "{:.2f}".format)
        for text, (small, large) in found.ms.items()
    ]


def print_table(name: str, found: Lists) -> None:
    few, many = (f"{jobs:,} + {dead:,}" for jobs, dead in (SMALL, (found.jobs, found.letters)))
    print(f"\n{f'{name}: median ms of a call':40}{few:>16}{many:>22}{'×':>7}")
    for text, (small, large) in found.ms.items():
        print(f"  {text:38}{small:16.2f}{large:22.2f}{large / small:7.2f}")
