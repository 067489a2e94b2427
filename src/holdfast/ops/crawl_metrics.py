"""The metrics of crawls: what the store holds of them, and what their processes said with their last heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from holdfast.runtime.crawls import CrawlView
from holdfast.runtime.exposition import Kind, Metric, Sample, label

__all__ = ["crawl_metrics"]

MOST_CRAWLS: Final = 500
"""So many crawls have series of their own: those that a process is on first, then by the alphabet."""

_STORED: Final = {
    "pages_pending": ("pending", "Pages that wait for their turn, those in flight among them."),
    "pages_waiting": ("waiting", "Of the pending pages, those that wait for a time."),
    "pages_in_flight": ("in_flight", "Pages that are being fetched or parsed."),
    "pages_done": ("done", "Pages of the store that were fetched and parsed."),
    "pages_dead": ("dead", "Pages that were given up and are in the inbox."),
}
"""Gauges, by the field of a view."""
_COUNTED: Final = {
    "pages_fetched": ("fetched", "Pages that were done."),
    "pages_failed": ("failed", "Attempts at pages that failed."),
    "pages_skipped": ("skipped", "Pages that robots.txt, or a handler, has left out."),
    "items": ("items", "Items that handlers have made."),
    "urls_found": ("found", "URLs that were new."),
    "bytes": ("bytes", "Bytes of pages that were received."),
}
"""Counters, by the field of a report; those of live processes, added up."""


def crawl_metrics(views: Iterable[CrawlView], open_breakers: Iterable[str] = ()) -> Iterator[Metric]:
    """Every metric of these crawls; none at all where there are none. Domains are no labels: there is no end to them.

    open_breakers: the keys of those of domains that let nothing through.
    """
    crawls: dict[str, list[CrawlView]] = {}
    for view in sorted(views, key=lambda one: (not one.processes, one.name)):
        name = label(view.name)
        if name in crawls or len(crawls) < MOST_CRAWLS:
            crawls.setdefault(name, []).append(view)
    if not crawls:
        return
    held_back: dict[str, int] = {}
    for key in open_breakers:
        name = label(key.partition("/")[0])
        held_back[name] = held_back.get(name, 0) + 1

    def by_crawl(name: str, kind: Kind, text: str, of: Callable[[CrawlView], float]) -> Metric:
        samples = [Sample({"crawl": crawl}, sum(map(of, crawls[crawl]))) for crawl in sorted(crawls)]
        return Metric(f"holdfast_crawl_{name}", kind, text, samples)

    yield by_crawl("processes", "gauge", "Processes that are on a crawl.", lambda one: len(one.processes))
    for name, (field, text) in _STORED.items():
        yield by_crawl(name, "gauge", text, lambda one, field=field: getattr(one, field))  # type: ignore[misc]
    yield by_crawl("domains_held", "gauge", "Domains that nothing is asked of now.", lambda one: _sum(one, "held"))
    yield Metric(
        "holdfast_crawl_open_breakers",
        "gauge",
        "Domains whose breaker lets nothing through.",
        [Sample({"crawl": crawl}, held_back.get(crawl, 0)) for crawl in sorted(crawls)],
    )
    yield by_crawl(
        "output_failing",
        "gauge",
        "Processes that cannot write their items.",
        lambda one: sum(bool(process.output_error) for process in one.processes),
    )
    for name, (field, text) in _COUNTED.items():
        yield by_crawl(f"{name}_total", "counter", text, lambda one, field=field: _sum(one, field))  # type: ignore[misc]


def _sum(view: CrawlView, field: str) -> int:
    return sum(getattr(one, field) for one in view.processes)
