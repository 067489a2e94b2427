"""Crawls as the server tells of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from holdfast.ops.api.schemas import Answer
from holdfast.runtime.crawls import CrawlState


class CrawlProcessAnswer(Answer):
    """A crawl in one process, as of its last heartbeat; counts are those of this process."""

    worker: str
    host: str
    pid: int
    seen_at: float
    in_flight: int
    fetched: int = Field(description="Pages that were done.")
    failed: int = Field(description="Attempts that failed.")
    skipped: int = Field(description="Pages that robots.txt, or a handler, has left out.")
    items: int
    found: int = Field(description="URLs that were new.")
    bytes: int
    rate_per_s: float = Field(description="Pages that were done lately, a second.")
    held: int = Field(description="Domains that are held now.")
    output: str = Field(description="Where it writes items to; empty where nowhere.")
    output_error: str = Field(description="Why nothing can be written there now; empty while it can.")


class CrawlAnswer(Answer):
    """One crawl over all of its processes, as lists show it; counts of pages are those of the store."""

    name: str
    state: CrawlState = Field(description="stopped: there is work left and no process is on it.")
    task: str = Field(description="The task of its pages, and their queue: what its dead letters are filtered by.")
    started_at: float | None
    finished_at: float | None = Field(description="When nothing was left to do, the last time; null while there is.")
    done: int = Field(description="Pages that were fetched and parsed.")
    pending: int = Field(description="Pages that wait for their turn, those in flight among them.")
    waiting: int = Field(description="Of these, pages that wait for a time: a retry, a held domain or a breaker.")
    dead: int = Field(description="Pages that were given up; they are in the inbox.")
    skipped: int = Field(description="Pages that robots.txt, a handler or a person has left out.")
    in_flight: int
    rate_per_s: float = Field(description="Pages that were done lately, a second, by all processes.")
    eta_s: float | None = Field(description="Seconds until what is known now is done; null where nobody can say.")
    processes: list[CrawlProcessAnswer]


class CrawlList(Answer):
    """Every crawl, by name."""

    items: list[CrawlAnswer]


class DomainAnswer(Answer):
    """A domain of a crawl, as the process that has it sees it."""

    domain: str
    worker: str
    in_flight: int
    fetched: int = Field(description="Answers that were good.")
    failed: int = Field(description="Answers that were not, and requests without one.")
    refused: int = Field(description="Answers that asked to slow down.")
    latency_s: float | None = Field(description="How long an answer takes, lately; null before the first.")
    interval_s: float = Field(description="What lies between two requests, by the slowest of its clocks.")
    held_until_at: float | None = Field(description="Nothing is asked of it before; null while it is not held.")
    why: str = Field(description="Why it is held; empty while it is not.")
    breaker: str = Field(description="The key of its breaker.")
    breaker_state: Literal["closed", "open", "half_open", "forced_open", "disabled"]


class CrawlDetail(CrawlAnswer):
    """One crawl, with where it began and its domains."""

    seeds: list[str] = Field(description="Where it began; at most the first few.")
    domains: list[DomainAnswer] = Field(
        description="Of each process those that are held, then the busiest; a few dozen at most. The held ones first."
    )
