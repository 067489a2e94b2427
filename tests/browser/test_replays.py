"""Replays: counted first, a few letters first, followed to the end, and stopped by hand or by themselves."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.browser.programs import Shop
from tests.browser.tabs import Tab, confirm, row_of


def ask(page: Page, tenant: str, *, canary: str, rate: str = "") -> Locator:
    """Open the dialog for all letters of a tenant's, and fill it in."""
    page.get_by_role("button", name="Replay these…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"tenant {tenant}")
    expect(dialog.locator(".dry-total")).to_be_visible()
    dialog.get_by_label("Canaries").fill(canary)
    dialog.get_by_label("Letters a second").fill(rate)
    return dialog


def test_a_replay_is_counted_first_and_heals_every_letter(tab: Tab, shop: Shop) -> None:
    letters = shop.letters("ship", 5, {"depot": "healing"}, tenant="healing")
    page = tab.go("#/inbox?tenant=healing")
    row_of(page, "Permanent").click()
    page.get_by_role("button", name="Replay 5 letters…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".dry-total")).to_have_text("5 letters")
    expect(dialog).to_contain_text("Nothing has been changed yet.")
    expect(dialog.locator(".sample li")).not_to_have_count(0)
    expect(dialog.get_by_label("Canaries")).to_have_value("1")
    dialog.get_by_label("Canaries").fill("many")
    expect(dialog.get_by_role("button", name="Replay 5 letters")).to_be_disabled()
    dialog.get_by_label("Canaries").fill("2")
    dialog.get_by_label("Letters a second").fill("50")
    assert shop.state_of(letters[0]) == "dead_letter"
    shop.mend("healing")
    dialog.get_by_role("button", name="Replay 5 letters").dblclick()
    expect(dialog).to_contain_text("5 of 5 letters")
    expect(dialog.get_by_text("Done. Every letter went back to the queue.")).to_be_visible()
    expect(dialog.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "5")
    for letter in letters:
        shop.until_state(letter, "completed")
    assert [one["total"] for one in shop.get("/replays")["items"] if one["tenant"] == "healing"] == [5]


def test_a_replay_whose_canaries_fail_stops_by_itself_and_says_why(tab: Tab, shop: Shop) -> None:
    letters = shop.letters("doomed", 4, tenant="canaries")
    page = tab.go("#/inbox?tenant=canaries")
    dialog = ask(page, "canaries", canary="1")
    dialog.get_by_role("button", name="Replay 4 letters").click()
    expect(dialog.get_by_text("stopped by itself", exact=True)).to_be_visible()
    expect(dialog.get_by_role("alert")).to_contain_text("Stopped by itself, as the cause is not mended")
    expect(dialog).to_contain_text("1 of 4 letters")
    shop.until_state(letters[-1], "dead_letter")
    assert {shop.state_of(letter) for letter in letters} == {"dead_letter"}


def test_a_replay_can_be_paused_resumed_and_stopped(tab: Tab, shop: Shop) -> None:
    letters = shop.letters("ship", 6, {"depot": "stopping"}, tenant="stopping")
    shop.mend("stopping")
    page = tab.go("#/inbox?tenant=stopping")
    dialog = ask(page, "stopping", canary="0", rate="0.5")
    dialog.get_by_role("button", name="Replay 6 letters").click()
    expect(dialog).to_contain_text("at most 0.5/s")
    dialog.get_by_role("button", name="Pause").click()
    expect(dialog.locator(".badge").first).to_have_text("paused")
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog.locator(".badge").first).to_have_text("running")
    dialog.get_by_role("button", name="Close").last.click()
    tab.go("#/replays")
    card = page.locator("article.replay").filter(has_text="tenant stopping")
    expect(card.locator(".replay-line strong")).to_have_text(re.compile("of 6 letters"))
    card.get_by_role("button", name="Stop").click()
    confirm(page, "Stop the replay")
    expect(card.locator(".badge").first).to_have_text("stopped")
    expect(card).to_contain_text("in the inbox")
    assert "dead_letter" in {shop.state_of(letter) for letter in letters}


def test_an_edit_of_all_letters_is_shown_and_checked_before_it_is_sent(tab: Tab, shop: Shop) -> None:
    letters = shop.letters("charge", 2, {"cents": 0}, tenant="patched")
    page = tab.go("#/inbox?tenant=patched")
    dialog = ask(page, "patched", canary="0")
    dialog.get_by_text("Edit the arguments of all").click()
    patch = dialog.get_by_label("JSON merge patch")
    patch.fill('{"cents": ')
    expect(dialog.get_by_role("button", name="Replay 2 letters")).to_be_disabled()
    patch.fill('{"cents": "a lot"}')
    expect(dialog.get_by_text("Would not fit the task").first).to_be_visible()
    patch.fill('{"cents": 7}')
    expect(dialog.locator(".sample ins").first).to_have_text("7")
    dialog.get_by_role("button", name="Replay 2 letters").click()
    for letter in letters:
        shop.until_state(letter, "completed")
