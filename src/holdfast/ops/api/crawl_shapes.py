"""Crawls as answers: what is user-made goes out without secrets, URLs above all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.ops.api.crawl_schemas import CrawlAnswer, CrawlDetail, CrawlList, CrawlProcessAnswer, DomainAnswer
from holdfast.ops.api.shapes import cut
from holdfast.ops.redact import redacted_text
from holdfast.ports import DomainReport, Value
from holdfast.runtime.crawl_origins import queue_of
from holdfast.runtime.crawls import CrawlProcess, CrawlView
from holdfast.runtime.page_gates import breaker_name
from holdfast.runtime.shared.by_hand import breaker_views
from holdfast.runtime.shared.names import breaker_gate
from holdfast.types import BreakerMode


def crawls_of(views: Iterable[CrawlView]) -> CrawlList:
    """Every crawl."""
    return CrawlList.model_construct(items=[CrawlAnswer.model_construct(**_fields(view)) for view in views])


def crawl_of(view: CrawlView, values: Mapping[str, Value], now: float) -> CrawlDetail:
    """One crawl with its domains; their breakers are among the values."""
    pairs = [(one, process) for process in view.processes for one in process.domains]
    keys = {breaker_gate(breaker_name(view.name, one.domain)) for one, _ in pairs}
    modes = {one.key: one.mode for one in breaker_views([values[key] for key in keys & values.keys()], now)}
    pairs.sort(key=lambda pair: (-pair[0].held_s, -pair[0].in_flight, pair[0].domain, pair[1].worker))
    return CrawlDetail.model_construct(
        **_fields(view),
        seeds=[cut(redacted_text(url)) for url in view.seeds],
        domains=[_domain(view.name, one, process, modes) for one, process in pairs],
    )


def _fields(view: CrawlView) -> dict[str, Any]:
    return {
        "name": view.name,
        "state": view.state,
        "task": queue_of(view.name),
        "started_at": view.started_at or None,
        "finished_at": view.finished_at,
        "done": view.done,
        "pending": view.pending,
        "waiting": view.waiting,
        "dead": view.dead,
        "skipped": view.skipped,
        "in_flight": view.in_flight,
        "rate_per_s": round(view.rate_per_s, 3),
        "eta_s": None if view.eta_s is None else round(view.eta_s, 1),
        "processes": [_process(one) for one in view.processes],
    }


def _process(one: CrawlProcess) -> CrawlProcessAnswer:
    return CrawlProcessAnswer.model_construct(
        worker=one.worker,
        host=one.host,
        pid=one.pid,
        seen_at=one.seen_at,
        in_flight=one.in_flight,
        fetched=one.fetched,
        failed=one.failed,
        skipped=one.skipped,
        items=one.items,
        found=one.found,
        bytes=one.bytes,
        rate_per_s=round(one.rate_per_s, 3),
        held=one.held,
        output=cut(redacted_text(one.output)),
        output_error=cut(redacted_text(one.output_error)),
    )


def _domain(crawl: str, one: DomainReport, process: CrawlProcess, modes: Mapping[str, BreakerMode]) -> DomainAnswer:
    key = breaker_name(crawl, one.domain)
    return DomainAnswer.model_construct(
        domain=cut(redacted_text(one.domain)),
        worker=process.worker,
        in_flight=one.in_flight,
        fetched=one.fetched,
        failed=one.failed,
        refused=one.refused,
        latency_s=None if one.latency_s is None else round(one.latency_s, 4),
        interval_s=round(one.interval_s, 4),
        held_until_at=process.seen_at + one.held_s if one.held_s > 0.0 else None,
        why=cut(redacted_text(one.why)),
        breaker=cut(redacted_text(key)),
        breaker_state=modes.get(key, BreakerMode.CLOSED).value,
    )
