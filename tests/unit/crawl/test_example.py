"""The example that crawls a shop, as its users run it: killed, started again, mended."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App
from holdfast.crawl.letters import CrawlLetters
from holdfast.crawl.urls import page_id
from holdfast.runtime.crawl_origins import queue_of
from holdfast.testing.site import Site, SiteProcess, requests_by_path

EXAMPLE = Path(__file__).parents[3] / "examples" / "crawl_shop.py"
PAGES = 150
AT_ONCE = 32
"""Pages that a crawler has begun and the store does not know to be over, unless its concurrency is set."""


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    """Programs that a test has started, and that must not outlive it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.kill()
        one.communicate()


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(EXAMPLE), *options]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(folder: Path, *options: str) -> str:
    with start(folder, *options) as one:
        out, err = one.communicate(timeout=60)
    assert one.returncode == 0, err
    return out


def wait_for_pages(one: subprocess.Popen[str]) -> None:
    """Until it says that some are done."""
    assert one.stdout is not None
    for line in one.stdout:
        if (found := re.match(r"(\d+) done", line)) and int(found[1]):
            return
    pytest.fail(f"it has ended before any page was done: {one.communicate()[1]}")


def over(folder: Path) -> set[str]:
    """The ids of the pages that the store knows to be done or given up."""
    app = App(f"sqlite:///{folder}/shop.db")
    found = app.jobs.list(queue=queue_of("shop"), states=["completed", "dead_letter"], limit=PAGES)
    app.close()
    return {record.id for record in found.items}


def items(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "products.jsonl").read_text().splitlines()]


def test_every_product_is_written_once_through_a_kill_and_mending(
    tmp_path: Path, running: list[subprocess.Popen[str]]
) -> None:
    plan = Site(pages=PAGES, latency_s=0.1, faults={"changed": 0.05})  # the kill comes long before its end
    changed = plan.pages_with("changed")
    with SiteProcess(plan) as site:
        options = (site.url, "--allow-private")
        running.append(killed := start(tmp_path, *options))
        wait_for_pages(killed)
        killed.send_signal(signal.SIGKILL)
        killed.communicate()
        assert 0 < len(site.log()) < PAGES
        known = over(tmp_path)
        assert known

        assert f"finished; {PAGES - len(changed)} pages done, {len(changed)} given up" in run(tmp_path, *options)
        asked = requests_by_path(site.log())
        assert set(asked) == {"/robots.txt", *map(plan.path, range(PAGES))}
        again = {page_id("shop", site.url_of(n)) for n in range(PAGES) if asked[plan.path(n)] > 1}
        assert not again & known, "nothing that the store knew to be over is asked for again"
        assert len(again) <= AT_ONCE

        app = App(f"sqlite:///{tmp_path}/shop.db")
        letters = CrawlLetters(app, "shop")
        assert [group.count for group in letters.groups()] == [len(changed)]
        assert letters.retry() == len(changed)
        app.close()
        assert f"finished; {PAGES} pages done, 0 given up" in run(tmp_path, *options, "--mended")

        written = items(tmp_path)
        assert sorted(item["url"] for item in written) == sorted(map(site.url_of, range(PAGES)))
        assert {item["name"]: item["price"] for item in written} == {
            item["name"]: item["price"] for item in map(plan.item, range(PAGES))
        }


def test_what_is_no_url_is_one_line(tmp_path: Path, running: list[subprocess.Popen[str]]) -> None:
    running.append(one := start(tmp_path, "example.org"))
    out, err = one.communicate(timeout=60)
    assert (one.returncode, out) == (1, "")
    assert err == "'example.org': must be an http or https URL, such as https://example.org/\n"
