"""The payload of a letter: a form that is checked before a retry, and an edit that heals."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.programs import Shop
from tests.browser.tabs import Tab, confirm


def test_a_wrong_edit_is_told_beside_its_field_and_a_right_one_heals_the_letter(tab: Tab, shop: Shop) -> None:
    (letter,) = shop.letters("charge", 1, {"cents": 0, "password": "s3cret"}, tenant="editing")
    page = tab.go(f"#/letter/{letter}")
    retry = page.get_by_role("button", name="Edit and retry")
    expect(retry).to_be_disabled()
    expect(page.get_by_label("password")).to_have_value("[redacted]")
    cents = page.get_by_label("cents", exact=False).first
    cents.fill("a lot")
    retry.click()
    expect(page.locator(".argument.has-error")).to_contain_text("cents")
    expect(cents).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert shop.state_of(letter) == "dead_letter"
    cents.fill("1999")
    retry.click()
    question = page.get_by_role("dialog")
    expect(question.locator("del")).to_have_text("0")
    expect(question.locator("ins")).to_have_text("1999")
    confirm(page, "Edit and retry")
    shop.until_state(letter, "completed")
    expect(page.get_by_text("No dead letter any more")).to_be_visible()
    expect(page.get_by_text("Edited since it was enqueued")).to_be_visible()
    healed = shop.get(f"/jobs/{letter}")
    assert healed["result"] == "charged 1999 EUR"
    assert healed["original_arguments"]["cents"] == 0


def test_what_the_form_cannot_know_is_refused_by_the_server_before_a_retry(tab: Tab, shop: Shop) -> None:
    (letter,) = shop.letters("charge", 1, {"cents": 0}, tenant="editing")
    page = tab.go(f"#/letter/{letter}")
    page.get_by_role("tab", name="JSON").click()
    raw = page.get_by_label("Arguments as JSON")
    raw.fill('{"order_id": 1, "cents": ')
    expect(page.locator(".payload .error-text")).to_be_visible()
    raw.fill('{"order_id": 1, "cents": 5, "currency": "XXX"}')
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".payload .error-text")).to_contain_text(re.compile("currency"))
    raw.fill('{"order_id": 1, "cents": 5, "currency": "USD"}')
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_text("The arguments fit the task")).to_be_visible()
    assert shop.state_of(letter) == "dead_letter"


def test_a_letter_is_retried_as_it_is_with_the_key_r_and_removed_after_a_question(tab: Tab, shop: Shop) -> None:
    (letter,) = shop.letters("ship", 1, {"depot": "keys"}, tenant="keys")
    shop.mend("keys")
    page = tab.go(f"#/letter/{letter}")
    page.keyboard.press("r")
    shop.until_state(letter, "completed")
    (other,) = shop.letters("charge", 1, {"cents": 0}, tenant="keys")
    tab.go(f"#/letter/{other}")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Remove")).click()
    expect(page).to_have_url(re.compile("#/inbox/"))
    assert shop.client.get(f"/jobs/{other}").status_code == 404
