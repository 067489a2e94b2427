"""Whether a page can be read and fits, and pictures of it for people."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from playwright.sync_api import Page, ViewportSize

from tests.browser.programs import ROOT

SCREENSHOTS: Final = ROOT / "build" / "screenshots"
DESK: Final = ViewportSize(width=1280, height=900)
PHONE: Final = ViewportSize(width=390, height=844)
NARROWEST: Final = ViewportSize(width=360, height=844)
_CONTRAST: Final = (Path(__file__).parent / "contrast.js").read_text()
_OVERFLOW: Final = """() => {
  const wide = document.scrollingElement.scrollWidth, own = innerWidth;
  if (wide <= own) return [];
  const out = [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > own + 0.5);
  return [`${wide} > ${own}`, ...out.slice(0, 5).map((one) => one.outerHTML.slice(0, 120))];
}"""


def overflow(page: Page) -> list[str]:
    """What sticks out at the right, if the page can be pushed sideways."""
    return list(page.evaluate(_OVERFLOW))


def unreadable(page: Page) -> list[str]:
    """Texts whose contrast is below WCAG AA."""
    seen = page.evaluate(_CONTRAST)
    assert seen["judged"] > 3, "there is next to nothing to read"
    return list(seen["found"])


def look(page: Page, name: str) -> list[str]:
    """What is wrong with a page as it stands, at its own width and at the narrowest; a picture of it is kept."""
    size = page.viewport_size
    assert size is not None
    if size["width"] == PHONE["width"]:
        page.set_viewport_size(NARROWEST)
    wrong = [f"{name} overflows: {one}" for one in overflow(page)]
    wrong += [f"{name} cannot be read: {one}" for one in unreadable(page)]
    page.set_viewport_size(size)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    theme = "dark" if page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    is_floating = page.locator("dialog[open], .bulk").count() > 0
    page.screenshot(path=SCREENSHOTS / f"{name}-{theme}-{size['width']}.png", full_page=not is_floating)
    return wrong
