"""Crawls: pages as jobs, fetched politely, each handled once, and gone on with after a kill."""

from __future__ import annotations

from holdfast.crawl.extras import wanted

with wanted():
    from holdfast.crawl.crawler import Crawler
    from holdfast.crawl.page import Item, Link, Page
    from holdfast.crawl.progress import CrawlSummary, Progress

__all__ = ["CrawlSummary", "Crawler", "Item", "Link", "Page", "Progress"]
