"""Row 49: hostile strings in every field, shown by the running server's page in a real browser, its exports and logs.

The pages are those of tests/browser, which `make test` looks at one by one; here every sink is counted.
"""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.sync_api import expect

from holdfast.ops.api.page_files import FOLDER
from tests.browser import hostile
from tests.browser.conftest import QUEUES, fill
from tests.browser.programs import Program, Served, Shop
from tests.browser.tabs import GROWN, Chromium, Tab
from tests.browser.test_hostile import LISTS
from tests.faults.conftest import busy, full_only
from tests.faults.report import Report
from tests.faults.workers import ROOT
from tests.servers import missing, program

pytestmark = busy

FORMULAS: Final = ("=cmd()|' /C calc'!A0", "+1+1", "-2+3", "@SUM(1)")
STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
OF_THE_JOB: Final = (hostile.TASK, hostile.QUEUE, hostile.TENANT, hostile.USER)
WAYS: Final = ("dlq list", "dlq groups", "jobs list")


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Shop, Chromium]]:
    """A shop that is hostile all over, as real processes, and a browser."""
    url = f"sqlite:///{folder}/shop.db"
    words = ["holdfast", "worker", "tests.browser.shop:app", "--json", "--grace", "0s", "--queues", ",".join(QUEUES)]
    chromium = Chromium(program("chromium", "chromium"))
    try:
        with Served(folder, url) as server, Program(folder, words, url):
            shop = Shop(folder, url, server.at)
            fill(shop)
            for formula in FORMULAS:
                shop.letters("charge", 1, {"cents": 0}, user=formula)
            chromium.run(chromium.start)
            yield shop, chromium
            chromium.run(chromium.stop)
            shop.client.close()
    finally:
        chromium.close()


def places_of(shop: Shop) -> Mapping[str, Sequence[str]]:
    """Where of the page each string has to be seen."""
    letter = shop.get("/dead-letters", task=hostile.TASK)["items"][0]
    errors = (hostile.ERROR_CLASS, hostile.MESSAGE_BEGINS, hostile.RIGHT_TO_LEFT, hostile.FILE, hostile.LINE)
    cause = (hostile.ERROR_CLASS, hostile.MESSAGE_BEGINS, hostile.FILE, hostile.TASK, hostile.TENANT)
    done, dropped = (shop.get("/jobs", task=task)["items"][0]["id"] for task in (hostile.LONG_NAME, "drop"))
    return {
        **LISTS,
        f"letter/{letter['id']}": (*OF_THE_JOB, hostile.PROJECT, hostile.KEY, *errors),
        f"inbox/{letter['fingerprint']}": cause,
        f"jobs/{letter['id']}?tab=arguments": (*OF_THE_JOB, hostile.ARGUMENT, hostile.ARGUMENT_KEY),
        f"jobs/{done}?tab=result": (hostile.RESULT,),
        f"jobs/{dropped}": (hostile.REASON,),
        f"inbox?q={hostile.SEARCH}": (hostile.SEARCH,),
    }


def fired(chromium: Chromium, shop: Shop, places: Mapping[str, Sequence[str]]) -> list[str]:
    """Everything that the page did, and must not, on its way through all places."""

    def look() -> list[str]:
        context = chromium.context()
        tab = Tab(context, shop.at)
        found: list[str] = []
        for place, texts in places.items():
            page = tab.go(f"#/{place}")
            for text in texts:
                expect(page.locator("main")).to_contain_text(text)
            found += tab.check()
        planted = Tab(context, shop.at)
        page = planted.go("#/inbox")
        page.evaluate("html => document.querySelector('h1').insertAdjacentHTML('beforeend', html)", hostile.TASK)
        expect(page.locator(GROWN)).to_have_count(1)
        page.wait_for_function("() => document.querySelector('h1 img').complete")
        assert planted.check(), "what is taken for HTML would not be seen: this run shows nothing"
        context.close()
        return found

    return chromium.run(look)


@full_only
def test_no_hostile_string_fires_in_any_sink(tmp_path: Path, report: Report) -> None:
    if not (FOLDER / "index.html").is_file():
        missing("THE PAGE IS NOT BUILT: make page")
    with opened(tmp_path) as (shop, chromium):
        places = places_of(shop)
        seen = fired(chromium, shop, places)
        assert seen == []
        answers = [
            shop.client.get(path) for path in ("/jobs", "/dead-letters", "/breakers", "/alerts", "/audit", "/events/x")
        ]
        assert {answer.headers["X-Content-Type-Options"] for answer in answers} == {"nosniff"}
        assert all("script-src 'self'" in answer.headers["Content-Security-Policy"] for answer in answers)
        assert {answer.headers["Content-Type"].partition(";")[0] for answer in answers} <= {
            "application/json",
            "application/problem+json",
        }
        table = shop.client.get("/dead-letters/export", params={"format": "csv"}).text
        printed = {way: _printed(way, shop.url) for way in WAYS}
        logs = {path.name: path.read_text() for path in tmp_path.glob("*.log")}
    cells = [cell for row in csv.reader(table.splitlines()) for cell in row]
    for formula in FORMULAS:
        assert [cell for cell in cells if formula in cell], f"{formula} is not in the table: this run shows nothing"
    assert [cell for cell in cells if cell.startswith(STARTS) and not _is_number(cell)] == []
    steered = [name for name, text in (printed | logs).items() if "\x1b" in text or "\u202e" in text]
    assert steered == []
    assert len(logs) == 2
    sinks = sum(map(len, places.values()))
    report(
        "hostile strings in every field that somebody can fill: names, errors, tracebacks, arguments, results, filters",
        injected=sinks + len(answers) + len(FORMULAS) + len(printed) + len(logs),
        note=f"{sinks} sinks on {len(places)} pages of a real browser, {len(answers)} answers, {len(FORMULAS)} "
        f"formulas in the CSV, {len(printed)} commands and {len(logs)} logs; fired {len(seen)}",
    )


def _printed(way: str, url: str) -> str:
    words = [sys.executable, "-m", "holdfast", *way.split(), "--url", url]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def _is_number(cell: str) -> bool:
    return cell.lstrip("-").replace(".", "", 1).isdecimal()
