"""The page of crawls, and their pages in the inbox: live, and text where it is hostile."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import hostile
from tests.browser.conftest import OpenTab
from tests.browser.looks import DESK, PHONE, look
from tests.browser.programs import Served, Shop
from tests.browser.spiders import Spiders
from tests.browser.tabs import confirm
from tests.unit.crawled import crawl_report, domain

THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
NAME: Final = "<img src=x onerror=alert('crawl')>"
URL: Final = "javascript:alert('url')//<script>alert('page')</script>"
SITE: Final = "\"><svg onload=alert('domain')>"
FAST: Final = domain(in_flight=3, fetched=1200, failed=4, refused=2, latency_s=0.25, interval_s=0.5)
HELD: Final = domain("slow.example", held_s=259_200.0, why="429 with Retry-After", interval_s=2.0, refused=7)
DOWN: Final = domain("down.example", failed=9)


class Web(Shop):
    """A server on a store with crawls, and what reports them."""

    def __init__(self, folder: Path, url: str, at: str, spiders: Spiders) -> None:
        super().__init__(folder, url, at)
        self.spiders = spiders


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """Crawls of every kind: one that runs, with domains in trouble; stopped; finished; and hostile all over."""
    folder = tmp_path_factory.mktemp("web")
    url = f"sqlite:///{folder}/web.db"
    attack = domain(SITE, held_s=3000.0, why=hostile.MESSAGE)
    with Served(folder, url) as server, Spiders(url) as spiders:
        spiders.begin("shop", "https://example.org/", "https://slow.example/")
        spiders.add("shop", *(f"https://example.org/{n}" for n in range(40)))
        spiders.open_breaker("shop/down.example")
        running = {"in_flight": 3, "fetched": 1200, "items": 1100, "bytes": 48_211_000, "held": 1}
        spiders.report(crawl_report("shop", FAST, HELD, DOWN, rate_per_s=0.5, output="pages.jsonl", **running))
        spiders.begin("news", finished_at=2000.0)
        spiders.begin("blog")
        spiders.add("blog", "https://blog.example/")
        spiders.begin(NAME, URL)
        spiders.report(crawl_report(NAME, attack, output=hostile.REASON, output_error=hostile.MESSAGE), pid=8)
        web = Web(folder, url, server.at, spiders)
        yield web
        web.client.close()


def row_of(page: Page, table: str, name: str) -> Locator:
    """The row that begins so."""
    rows = page.get_by_role("table", name=table, exact=True).locator("tbody tr")
    return rows.filter(has=page.get_by_text(name, exact=True).first)


def test_crawls_are_listed_by_urgency_and_one_is_opened_by_keys(web: Web, open_tab: OpenTab) -> None:
    page = open_tab(web.at).go("#/crawls")
    names = page.get_by_role("table", name="Crawls").locator("tbody tr td:first-child")
    expect(names).to_have_text([NAME, "shop", "blog", "news"])
    for name, texts in {
        "shop": ["running", "40", "0.5/s", "1 min 20 s"],
        "blog": ["stopped"],
        "news": ["finished"],
    }.items():
        for text in texts:
            expect(row_of(page, "Crawls", name)).to_contain_text(text)
    expect(page.get_by_role("navigation").get_by_role("link", name="Crawls")).to_contain_text("1")
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile("#/crawls/shop$"))
    page.keyboard.press("u")
    expect(page).to_have_url(re.compile("#/crawls$"))


def test_one_crawl_shows_what_each_domain_is_at_and_follows_its_heartbeats(web: Web, open_tab: OpenTab) -> None:
    page = open_tab(web.at).go("#/crawls/shop")
    table = "Domains of shop"
    for text in ("held", "2 d 23 h", "429 with Retry-After", "2 s"):
        expect(row_of(page, table, "slow.example")).to_contain_text(text)
    for text in ("250 ms", "500 ms", "1,200", "busy", "closed"):
        expect(row_of(page, table, "example.org")).to_contain_text(text)
    for text in ("https://slow.example/", "pages.jsonl", "48.2 MB", "1,100 since its processes began"):
        expect(page.locator(".facts")).to_contain_text(text)
    expect(page.locator(".facts a")).to_have_count(1)  # addresses are no links
    running = {"in_flight": 9, "fetched": 1300, "output": "pages.jsonl"}
    web.spiders.report(crawl_report("shop", FAST, DOWN, rate_per_s=0.5, output_error="No space left", **running))
    expect(page.get_by_role("alert")).to_contain_text("mill 7 cannot write its items")
    expect(row_of(page, table, "slow.example")).to_have_count(0)
    web.spiders.report(crawl_report("shop", FAST, HELD, DOWN, rate_per_s=0.5, held=1, **running))
    expect(page.get_by_role("alert")).to_have_count(0)
    down = row_of(page, table, "down.example")
    expect(down).to_contain_text("parked by its breaker")
    down.get_by_role("link", name="forced open").click()
    expect(page).to_have_url(re.compile(r"#/breakers\?q=shop%2Fdown\.example$"))
    expect(page.get_by_role("article")).to_have_count(1)


def test_a_page_in_the_inbox_says_which_it_is_and_only_its_data_is_edited(web: Web, open_tab: OpenTab) -> None:
    where = "https://example.org/a?token=s3cret"
    letter = web.spiders.bury(
        "shop", where, "example.org", depth=2, referrer="https://example.org/", data={"sku": 1, "password": "s3cret"}
    )
    page = open_tab(web.at).go("#/crawls/shop")
    page.get_by_role("link", name="Dead letters").click()
    expect(page).to_have_url(re.compile(r"#/inbox\?task=crawl%3Ashop$"))
    page.goto(f"{web.at}/#/letter/{letter}")
    shown = "https://example.org/a?token=[redacted]"
    facts = {"Crawl": "shop", "URL": shown, "Domain": "example.org", "Depth": "2", "Found on": "https://example.org/"}
    for name, text in facts.items():
        fact = page.locator(".facts > div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$")))
        expect(fact.locator("dd")).to_have_text(text)
    field = page.locator(".payload").get_by_role("textbox", name=re.compile("^data"))
    field.fill("[]")
    page.get_by_role("button", name="Edit and retry").click()
    expect(page.locator(".argument.has-error")).to_contain_text("an object is expected")
    field.fill('{"sku": 2, "password": "[redacted]"}')
    page.get_by_role("button", name="Edit and retry").click()
    confirm(page, "Edit and retry")
    expect(page.get_by_text("No dead letter any more")).to_be_visible()
    sent = web.get(f"/jobs/{letter}")
    assert (sent["state"], sent["arguments"]["data"]["sku"], sent["origin"]["url"]) == ("queued", 2, shown)


def test_hostile_crawls_and_pages_are_text(web: Web, open_tab: OpenTab) -> None:
    letter = web.spiders.bury(NAME, URL, SITE, referrer=URL)
    tab = open_tab(web.at)
    page = tab.go("#/crawls")
    page.get_by_role("link", name=NAME, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME)
    for text in (SITE, hostile.REASON, hostile.MESSAGE_BEGINS, URL):
        expect(page.locator("main")).to_contain_text(text)
    for place in (f"#/letter/{letter}", f"#/jobs/{letter}"):
        tab.go(place)
        expect(page.locator(".facts").first).to_contain_text(URL)
        assert page.locator("a[href^='javascript'], a[href^='http']").count() == 0
    tab.go("#/inbox?tab=letters")
    expect(page.locator("main")).to_contain_text(URL)
    tab.expects(r"404 .*/crawls/no-such-crawl")
    tab.go("#/crawls/no-such-crawl?q=javascript:alert(1)")
    expect(page.get_by_text("There is no such crawl")).to_be_visible()


def test_crawls_and_their_letters_fit_and_can_be_read(web: Web, open_tab: OpenTab) -> None:
    letter = web.spiders.bury("shop", "https://example.org/" + "w" * 300, "example.org", data={"sku": 1})
    tab = open_tab(web.at)
    places = {
        "crawls": "#/crawls",
        "crawl": "#/crawls/shop",
        "crawl-hostile": f"#/crawls/{NAME.replace('/', '%2F')}",
        "letter-page": f"#/letter/{letter}",
    }
    wrong: list[str] = []
    for name, place in places.items():
        page = tab.go(place)
        for theme, size in itertools.product(THEMES, (DESK, PHONE)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size(size)
            wrong += look(page, name)
    assert not wrong, "\n".join(wrong)
