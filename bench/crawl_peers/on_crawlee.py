"""Crawlee's plainest and quickest crawler, in memory or with its files; sessions off where nobody refuses."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from crawlee import ConcurrencySettings, service_locator
from crawlee.configuration import Configuration
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.request_loaders import ThrottlingRequestManager
from crawlee.storage_clients import FileSystemStorageClient, MemoryStorageClient
from crawlee.storages import RequestQueue

from crawl_peers.reading import line, read


def crawl(
    url: str, out: str, concurrency: int, state: str = "", *, is_polite: bool = False, throttles: str = ""
) -> None:
    """is_polite: as it is out of the box. throttles: the host that its ThrottlingRequestManager is told of."""
    asyncio.run(_crawl(url, Path(out), concurrency, state, is_polite, throttles))


async def _crawl(url: str, out: Path, concurrency: int, state: str, is_polite: bool, throttles: str) -> None:
    configuration = Configuration(purge_on_start=False, log_level="ERROR")
    if state:
        configuration.storage_dir = state
    service_locator.set_configuration(configuration)
    service_locator.set_storage_client(FileSystemStorageClient() if state else MemoryStorageClient())
    manager = None
    if throttles:
        manager = ThrottlingRequestManager(
            await RequestQueue.open(), domains=[throttles], request_manager_opener=RequestQueue.open
        )
    crawler = HttpCrawler(
        concurrency_settings=ConcurrencySettings(
            min_concurrency=concurrency, max_concurrency=concurrency, desired_concurrency=concurrency
        ),
        request_manager=manager,
        use_session_pool=is_polite,
        retry_on_blocked=is_polite,
        configure_logging=False,
        status_message_logging_interval=timedelta(hours=1),
    )
    with out.open("a", encoding="utf-8", buffering=1) as file:  # a line each: a kill must not cost it our own buffer

        @crawler.router.default_handler
        async def handle(context: HttpCrawlingContext) -> None:
            item, links = read(await context.http_response.read(), context.request.url)
            file.write(line(item))
            await context.add_requests(links)

        await crawler.run([url])
