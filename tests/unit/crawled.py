"""Crawls as their processes report them and as a store keeps them, and pages that were given up, made by hand."""

from __future__ import annotations

from typing import Any

from holdfast import App
from holdfast.clock import new_id
from holdfast.ports import CrawlReport, DomainReport, Exchange, ValueChange, WorkerRecord
from holdfast.runtime.crawl_origins import PagePayload, encode_page, queue_of
from holdfast.runtime.crawls import VALUE, CrawlRecord, encode_record
from holdfast.types import Attempt, Change, End, FailureType, NewJob, Severity


def domain(name: str = "example.org", **fields: Any) -> DomainReport:
    """A domain of a crawl."""
    return DomainReport(domain=name, **fields)


def crawl_report(name: str = "shop", *domains: DomainReport, **fields: Any) -> CrawlReport:
    """A crawl in one process."""
    return CrawlReport(name=name, domains=domains, **fields)


def process_on(*crawls: CrawlReport, **fields: Any) -> WorkerRecord:
    """A process that tells of its crawls."""
    given: dict[str, Any] = {"id": new_id(), "lease_s": 600.0, "host": "mill", "pid": 7}
    return WorkerRecord(**given | fields, crawls=crawls)


async def crawling(app: App, *crawls: CrawlReport, **fields: Any) -> WorkerRecord:
    """A real heartbeat of a process that is on these crawls."""
    process = process_on(*crawls, **fields)
    await app.store.heartbeat(process)
    return process


async def begun(app: App, name: str = "shop", *seeds: str, **fields: Any) -> None:
    """What is stored of a crawl itself."""
    record = CrawlRecord(seeds=seeds, **{"started_at": 1000.0, **fields})
    await app.store.exchange(Exchange(changes=[ValueChange(VALUE + name, 0, encode_record(record))]))


def page(crawl: str = "shop", url: str = "https://example.org/", site: str = "example.org", **fields: Any) -> NewJob:
    """A page that waits for its turn."""
    payload = encode_page(PagePayload(url=url, **fields))
    queue = queue_of(crawl)
    return NewJob(id=new_id(), task=queue, queue=queue, gates=("crawl",), project=site, payload=payload)


def page_letter(
    crawl: str = "shop", url: str = "https://example.org/a", site: str = "example.org", **fields: Any
) -> NewJob:
    """A page that was given up, as it is handed to a store."""
    attempt = Attempt(
        number=1,
        started_at=0.0,
        ended_at=1.0,
        outcome=Change.BURY,
        failure_type=FailureType.STRUCTURAL,
        severity=Severity.MEDIUM,
        error_name="holdfast.errors.PageChanged",
        message=f"{site}: no .price",
        fingerprint=f"1:{crawl}/{site}",
    )
    end = End(change=Change.BURY, attempts=(attempt,), reason="not retriable")
    new = page(crawl, url, site, **fields)
    return NewJob(
        id=new.id,
        task=new.task,
        queue=new.queue,
        gates=new.gates,
        project=new.project,
        payload=new.payload,
        end=end,
    )
