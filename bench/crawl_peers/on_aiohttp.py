"""A bare aiohttp loop: a set of URLs, a queue, and so many tasks. It remembers nothing and survives nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import ClientSession, DummyCookieJar, TCPConnector

from crawl_peers.reading import line, read


def crawl(url: str, out: str, concurrency: int) -> None:
    asyncio.run(_crawl(url, Path(out), concurrency))


def fetch(url: str, out: str, concurrency: int, pages: int) -> None:
    """The same without parsing: it is told all URLs, and writes nothing."""
    asyncio.run(_fetch([url, *(f"{url}p/{page}" for page in range(1, pages))], concurrency))


async def _crawl(seed: str, out: Path, concurrency: int) -> None:
    seen, waiting = {seed}, asyncio.Queue[str]()
    waiting.put_nowait(seed)
    with out.open("a", encoding="utf-8") as file:
        async with _session(concurrency) as session:

            async def work() -> None:
                while True:
                    url = await waiting.get()
                    async with session.get(url) as reply:
                        body = await reply.read()
                    item, links = read(body, url)
                    file.write(line(item))
                    for link in links:
                        if link not in seen:
                            seen.add(link)
                            waiting.put_nowait(link)
                    waiting.task_done()

            tasks = [asyncio.create_task(work()) for _ in range(concurrency)]
            await waiting.join()
            for task in tasks:
                task.cancel()


async def _fetch(urls: list[str], concurrency: int) -> None:
    left = iter(urls)
    async with _session(concurrency) as session:

        async def work() -> None:
            for url in left:
                async with session.get(url) as reply:
                    await reply.read()

        await asyncio.gather(*(work() for _ in range(concurrency)))


def _session(concurrency: int) -> ClientSession:
    return ClientSession(connector=TCPConnector(limit=concurrency), cookie_jar=DummyCookieJar())
