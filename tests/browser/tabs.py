"""Tabs of a real browser that write down everything a page must not do."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Locator,
    Page,
    Playwright,
    Request,
    expect,
    sync_playwright,
)

T = TypeVar("T")
PATIENCE_MS: Final = 20_000
GROWN: Final = "img, iframe, object, embed, base, form[action], script:not([src]), [onerror], [onload], [srcdoc]"
"""What only a text that was taken for HTML would make of the page."""
_TELLS: Final = """
addEventListener("securitypolicyviolation", (event) =>
  console.error(`CSP: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))
"""
_FOREIGN: Final = """links => links.map(link => link.getAttribute("href")).filter(href => !href?.startsWith("#"))"""


class Chromium:
    """The browser, on a thread of its own: Playwright keeps an event loop running there, and other tests need none."""

    def __init__(self, program: str) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="browser")
        self._program = program
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None

    def run(self, do: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Do something on the browser's thread."""
        return self._thread.submit(do, *arguments, **named).result()

    def start(self) -> None:
        """Start the system's browser; none is ever downloaded."""
        expect.set_options(timeout=PATIENCE_MS)
        self._playwright = sync_playwright().start()
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        self._browser = self._playwright.chromium.launch(executable_path=self._program, args=arguments)

    def stop(self) -> None:
        """End it."""
        if self._browser is not None:
            self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()

    def context(self, **options: Any) -> BrowserContext:
        """A browser that nobody has used before."""
        assert self._browser is not None, "the browser is not running"
        return self._browser.new_context(**{"color_scheme": "light", "reduced_motion": "reduce", **options})


class Tab:
    """One tab; `complaints` must be empty at the end of a test."""

    def __init__(self, context: BrowserContext, at: str) -> None:
        self.at = at
        self.complaints: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        context.add_init_script(_TELLS)
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", self._on_error)
        self.page.on("dialog", self._on_dialog)
        self.page.on("requestfailed", self._on_failed)

    def expects(self, *patterns: str) -> None:
        """Complaints that a test provokes on purpose."""
        self._expected += [re.compile(pattern) for pattern in patterns]

    def go(self, place: str = "") -> Page:
        """Open a place of the page by its address, `#/jobs`, and wait until it is there."""
        self.page.goto(f"{self.at}/{place}")
        return self.settle()

    def settle(self) -> Page:
        """Wait until what was asked for is there."""
        expect(self.page.locator("main").locator("h1, h3").first).to_be_visible()
        expect(self.page.locator(".skeleton, [aria-busy=true]")).to_have_count(0)
        return self.page

    def leave(self) -> None:
        """Check the page and leave it, before its server goes away."""
        self.complaints = self.check()
        self.page.goto("about:blank")

    def check(self) -> list[str]:
        """Everything that this tab has done and must not."""
        grown = self.page.locator(GROWN).evaluate_all("all => all.map(one => one.outerHTML.slice(0, 200))")
        links = self.page.locator("a").evaluate_all(_FOREIGN)
        found = [*self.complaints, *(f"grown: {one}" for one in grown), *(f"link: {one}" for one in links)]
        return [one for one in found if not any(pattern.search(one) for pattern in self._expected)]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"console: {message.text} {message.location.get('url', '')}")

    def _on_error(self, error: Error) -> None:
        self.complaints.append(f"error: {error}")

    def _on_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _on_failed(self, request: Request) -> None:
        # The page gives up what nobody waits for any more; everything else is a failure.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.failure} {request.url}")


def confirm(page: Page, action: str) -> None:
    """Press the button of the question that is asked."""
    page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()


def row_of(page: Page, text: str) -> Locator:
    """The rows of a table that have this text."""
    return page.locator("tbody tr").filter(has_text=text)
