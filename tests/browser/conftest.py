"""A shop that fails on purpose, its real server and worker, and a real browser; each is started once."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from playwright.sync_api import BrowserContext

from holdfast.ops.api.page_files import FOLDER
from tests.browser import hostile
from tests.browser.programs import Program, Served, Shop, until
from tests.browser.tabs import Chromium, Tab
from tests.servers import program

QUEUES = ("default", "slow", "reports", hostile.QUEUE)


class OpenTab(Protocol):
    """Opens a tab at a server's address; options are those of a browser's context."""

    def __call__(self, at: str, **options: Any) -> Tab: ...


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the tests of this folder on the browser's own thread."""
    browser = pyfuncitem.funcargs.get("browser")
    if not isinstance(browser, Chromium):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    browser.run(pyfuncitem.obj, **{name: pyfuncitem.funcargs[name] for name in names})
    return True


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    if not (FOLDER / "index.html").is_file():
        pytest.fail("the page is not built: make page")
    chromium = Chromium(program("chromium", "chromium"))
    try:
        chromium.run(chromium.start)
        yield chromium
        chromium.run(chromium.stop)
    finally:
        chromium.close()


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The store with jobs in every state, and a server that asks for no password."""
    folder = tmp_path_factory.mktemp("shop")
    url = f"sqlite:///{folder}/shop.db"
    words = ["holdfast", "worker", "tests.browser.shop:app", "--json", "--grace", "0s", "--queues", ",".join(QUEUES)]
    with Served(folder, url) as server, Program(folder, words, url):
        shop = Shop(folder, url, server.at)
        fill(shop)
        yield shop
        shop.client.close()


def fill(shop: Shop) -> None:
    """Something of every kind: letters of several causes, open breakers, a replay, jobs in all states."""
    whose = {"tenant": hostile.TENANT, "user": hostile.USER, "project": hostile.PROJECT, "idempotency_key": hostile.KEY}
    values = {"values": {hostile.ARGUMENT_KEY: hostile.ARGUMENT, "ansi": hostile.ANSI, "rtl": hostile.RIGHT_TO_LEFT}}
    made = [
        shop.enqueue(hostile.TASK, {**values, "text": hostile.LONG_WORD}, **whose),
        shop.enqueue(hostile.LONG_NAME, values, tenant=hostile.LONG_NAME),
        shop.enqueue("drop"),
        shop.enqueue("flaky", {"order_id": 1}),
        shop.enqueue("limited"),
        *(shop.enqueue("call") for _ in range(2)),
        *(shop.enqueue("charge", {"order_id": n, "cents": 0}, tenant="acme") for n in range(3)),
        *(shop.enqueue("charge", {"order_id": n, "cents": 500}, tenant="globex") for n in range(3)),
        *(shop.enqueue("doomed", {"order_id": n}, tenant="globex") for n in range(6)),
    ]
    for number in range(120):
        shop.enqueue("report", {"number": number}, delay_s=86_400)
    ended = {"completed", "cancelled", "dead_letter"}
    for job_id in made:
        until(lambda job_id=job_id: shop.state_of(job_id) in ended, f"{job_id} has ended")  # type: ignore[misc]
    replay = shop.post("/replays", {"filter": {"task": "doomed"}, "canary": 1})["id"]
    until(lambda: shop.replay(replay)["state"] == "stopped", "the replay has stopped by itself")
    shop.enqueue("slow")
    shop.enqueue("call")  # waits behind its open breaker


@pytest.fixture
def open_tab(browser: Chromium) -> Iterator[OpenTab]:
    """Tabs of a test's own; at its end none may have complained."""
    opened: list[tuple[BrowserContext, Tab]] = []

    def open_one(at: str, **options: Any) -> Tab:
        context = browser.context(**options)
        tab = Tab(context, at)
        opened.append((context, tab))
        return tab

    yield open_one
    with ExitStack() as closing:
        for context, _ in opened:
            closing.callback(browser.run, context.close)
        complaints = [one for _, tab in opened for one in browser.run(tab.check)]
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def tab(browser: Chromium, shop: Shop, open_tab: OpenTab) -> Tab:
    """A tab of the shop's page."""
    return browser.run(open_tab, shop.at)
