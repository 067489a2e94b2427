"""Scrapy with its own feed export, in memory or with a JOBDIR."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

from crawl_peers.reading import read


def crawl(url: str, out: str, concurrency: int, state: str = "") -> None:
    settings: dict[str, Any] = {
        "CONCURRENT_REQUESTS": concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": concurrency,
        "CONCURRENT_ITEMS": 1,  # no pipelines here: its default of 100 starts as many tasks for every page
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "COOKIES_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "LOG_LEVEL": "ERROR",
        "FEEDS": {out: {"format": "jsonlines", "overwrite": False}},
    }
    if state:
        settings["JOBDIR"] = state
    process = CrawlerProcess(settings)
    process.crawl(Products, start_urls=[url])
    process.start()


class Products(scrapy.Spider):
    name = "products"

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:
            yield scrapy.Request(url)  # of itself it would fetch this one twice, as it is not filtered

    def parse(self, response: Response) -> Iterator[Any]:
        item, links = read(response.body, response.url)
        yield item
        for link in links:
            yield scrapy.Request(link)
