"""The page of rings, and their letters in the inbox: live, and text where it is hostile."""

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
from tests.browser.programs import Program, Served, Shop
from tests.browser.tabs import confirm
from tests.browser.wheels import Wheels
from tests.unit.ringed import consumer, ring_report

THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
NAME: Final = "<img src=x onerror=alert('ring')>"
CONSUMER: Final = "\"><svg onload=alert('consumer')>"
PARSE: Final = consumer(
    "parse", lag=40, rate_per_s=1200.0, batches=9, batch_s=0.00225, slowest_s=0.5, running_s=2.0, batch=10, offset=4100
)
STUCK: Final = consumer(
    "enrich",
    after=("parse",),
    lag=900,
    batches=2,
    batch_s=3.0,
    slowest_s=2.0,
    running_s=61.0,
    batch=12,
    errors=7,
    retries=5,
    given_up=3,
    dead_letters=2,
    is_stuck=True,
    doing="waiting for the inbox to take dead letters",
    checkpoint_error="No space left on device",
)


class Press(Shop):
    """A server on a store with rings, and what reports them."""

    def __init__(self, folder: Path, url: str, at: str, wheels: Wheels) -> None:
        super().__init__(folder, url, at)
        self.wheels = wheels


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Press]:
    """Rings of every kind: stuck, well in two processes, and hostile all over."""
    folder = tmp_path_factory.mktemp("press")
    url = f"sqlite:///{folder}/press.db"
    attack = consumer(CONSUMER, after=(NAME,), doing=hostile.REASON, running_s=5.0, checkpoint_error=hostile.MESSAGE)
    with Served(folder, url) as server, Wheels(url) as wheels:
        full = ring_report(
            "prices", PARSE, STUCK, used=960, produced=48_211, rate_per_s=12.5, blocked=2, memory_bytes=48_211_000
        )
        wheels.report(full, ring_report("orders", consumer("write")), pid=7)
        wheels.report(ring_report("orders", consumer("write", lag=3), used=3), ring_report(NAME, attack), pid=8)
        press = Press(folder, url, server.at, wheels)
        yield press
        press.client.close()


def card_of(page: Page, name: str, where: str = "mill 7") -> Locator:
    """The card of a ring in one process."""
    return page.get_by_role("article", name=f"Ring {name} in {where}", exact=True)


def row_of(card: Locator, name: str) -> Locator:
    """The row of a consumer."""
    return card.locator("tbody tr").filter(has=card.page.get_by_text(name, exact=True).first)


def test_a_stuck_consumer_is_named_and_its_letters_are_one_click_away(rings: Press, open_tab: OpenTab) -> None:
    page = open_tab(rings.at).go("#/rings")
    card = card_of(page, "prices")
    expect(card.locator("header .badge")).to_have_text("stuck")
    expect(card.get_by_role("meter")).to_have_attribute("aria-valuenow", "94")
    expect(card.locator(".fill")).to_contain_text("960 of 1,024 elements, 93.8 %")
    for text in ("13/s", "48.2K in all", "48.2 MB"):
        expect(card.locator(".stats")).to_contain_text(text)
    parse, enrich = card.locator("tbody tr").all()
    for text in ("40", "1,200/s", "250 µs", "500 ms", "running for 2 s", "saved up to offset 4100"):
        expect(parse).to_contain_text(text)
    for text in ("900", "1.5 s", "stuck for 1 min 1 s at batch 12", "waiting for the inbox", "No space left on device"):
        expect(enrich).to_contain_text(text)
    expect(page.get_by_role("navigation").get_by_role("link", name="Rings")).to_contain_text("2")
    rings.wheels.bury("prices", "enrich", {"sku": 7, "cents": "a lot"}, {"sku": 8}, offset=4100)
    link = enrich.get_by_role("link")
    expect(link).to_have_text("1")
    link.click()
    expect(page).to_have_url(re.compile(r"#/inbox\?task=prices%2Fenrich$"))


def test_a_ring_in_two_processes_has_two_cards_and_follows_its_heartbeats(rings: Press, open_tab: OpenTab) -> None:
    tab = open_tab(rings.at)
    page = tab.go("#/rings?q=ORDERS")
    expect(page.get_by_role("article")).to_have_count(2)
    expect(card_of(page, "orders", "mill 8").locator("header .badge")).to_have_text("working")
    rings.wheels.report(ring_report("orders", consumer("write", lag=41), used=41, blocked=1), pid=9)
    third = card_of(page, "orders", "mill 9")
    expect(third.locator("header .badge")).to_have_text("producers wait")
    rings.wheels.report(ring_report("orders", consumer("write")), pid=9)
    expect(third.locator("header .badge")).to_have_text("up to date")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/rings/orders$"))
    expect(page.get_by_role("article")).to_have_count(3)
    page.keyboard.press("u")
    page.get_by_role("combobox", name="Which rings").select_option("Those to look at")
    expect(page.get_by_role("article")).to_have_count(2)


def test_elements_show_where_they_were_given_up_and_are_edited_and_sent_back(rings: Press, open_tab: OpenTab) -> None:
    letter = rings.wheels.bury("prices", "parse", {"sku": 7, "cents": "a lot"}, {"password": "s3cret"}, offset=4100)
    page = open_tab(rings.at).go(f"#/letter/{letter}")
    facts = {"Ring": "prices", "Consumer": "parse", "Batch": "12", "First offset": "4100", "Elements": "2"}
    for name, text in facts.items():
        fact = page.locator(".facts > div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$")))
        expect(fact.locator("dd")).to_have_text(text)
    field = page.locator(".payload").get_by_role("textbox", name=re.compile("^elements"))
    expect(field).to_have_value(re.compile('"a lot"'))
    field.fill("[]")
    page.get_by_role("button", name="Edit and retry").click()
    expect(page.locator(".argument.has-error")).to_contain_text("at least one element")
    field.fill('[{"sku": 7, "cents": 1999}, {"password": "[redacted]"}]')
    page.get_by_role("button", name="Edit and retry").click()
    confirm(page, "Edit and retry")
    expect(page.get_by_text("No dead letter any more")).to_be_visible()
    sent = rings.get(f"/jobs/{letter}")
    assert (sent["state"], sent["arguments"]["elements"][0]["cents"]) == ("queued", 1999)
    assert sent["arguments"]["origin"] == sent["original_arguments"]["origin"]


def test_a_real_ring_shows_by_itself_and_a_replay_heals_its_letter(rings: Press, open_tab: OpenTab) -> None:
    with Program(rings.folder, ["tests.browser.cider"], rings.url):
        tab = open_tab(rings.at)
        page = tab.go("#/rings?q=cider")
        card = page.get_by_role("article", name=re.compile("^Ring cider in "))
        press = card.locator("tbody tr").first
        expect(press).to_contain_text("press")
        expect(press.get_by_role("link")).to_have_text("1")
        (letter,) = rings.get("/dead-letters", task="cider/press")["items"]
        assert letter["origin"]["count"] == 3
        rings.mend("press")
        tab.go(f"#/letter/{letter['id']}")
        page.keyboard.press("r")
        expect(page.get_by_role("status").filter(has_text="No dead letter any more")).to_contain_text("completed")


def test_hostile_rings_and_elements_are_text(rings: Press, open_tab: OpenTab) -> None:
    letter = rings.wheels.bury(NAME, CONSUMER, hostile.MESSAGE)
    tab = open_tab(rings.at)
    page = tab.go("#/rings")
    card = card_of(page, NAME, "mill 8")
    for text in (NAME, CONSUMER, hostile.REASON, hostile.MESSAGE_BEGINS):
        expect(card).to_contain_text(text)
    card.get_by_role("link", name=NAME, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(NAME)
    tab.go(f"#/letter/{letter}")
    for text in (NAME, CONSUMER):
        expect(page.locator(".facts")).to_contain_text(text)
    tab.go("#/rings/no-such-ring?only=javascript:alert(1)")
    expect(page.get_by_text("There is no such ring")).to_be_visible()


def test_rings_and_their_letters_fit_and_can_be_read(rings: Press, open_tab: OpenTab) -> None:
    letter = rings.wheels.bury("prices", "enrich", {"sku": 9, "cents": "a lot"}, offset=4100)
    tab = open_tab(rings.at)
    wrong: list[str] = []
    for name, place in {"rings": "#/rings", "letter-ring": f"#/letter/{letter}"}.items():
        page = tab.go(place)
        for theme, size in itertools.product(THEMES, (DESK, PHONE)):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size(size)
            wrong += look(page, name)
    assert not wrong, "\n".join(wrong)
