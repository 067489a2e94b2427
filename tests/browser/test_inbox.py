"""The inbox: causes, their tracebacks, letters, filters in the address, and news without a reload."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.programs import Shop
from tests.browser.tabs import Tab, confirm, row_of


def test_the_inbox_shows_causes_with_count_sparkline_tasks_and_tenants(tab: Tab) -> None:
    page = tab.go()
    expect(page).to_have_title("Inbox · Holdfast")
    row = row_of(page, "ValueError")
    expect(row.locator(".group-count")).to_have_text(re.compile(r"^\d+$"))
    expect(row).to_contain_text("validation")
    expect(row.locator(".names").first).to_have_text("charge")
    expect(row).to_contain_text("acme")
    spark = row.get_by_role("img")
    expect(spark).to_have_attribute(
        "aria-label", re.compile(r"^\d+ letters? in the last 24 hours, \d+ in the last one$")
    )
    assert spark.locator("rect").count() == 24
    expect(row.locator("time").first).to_have_attribute("title", re.compile(r"\d{4}"))


def test_a_cause_shows_where_it_fails_with_user_code_marked_and_library_code_folded(tab: Tab) -> None:
    page = tab.go("#/inbox?task=flaky")
    row_of(page, "Transient").click()
    expect(page.locator("h1")).to_have_text("holdfast.errors.Transient")
    trace = page.get_by_role("region", name="Traceback")
    mine = trace.locator(".frame.is-user")
    expect(mine.first).to_contain_text("your code")
    expect(mine.filter(has_text="json.loads(text)").first).to_be_visible()
    expect(trace).not_to_contain_text("raw_decode")
    page.get_by_role("button", name="Show all frames").click()
    expect(trace.locator(".is-library").filter(has_text="raw_decode").first).to_be_visible()
    expect(page.locator(".culprit strong")).to_have_text("json_of")


def test_a_letter_shows_its_attempts_on_a_time_line_and_each_traceback(tab: Tab, shop: Shop) -> None:
    letter = shop.get("/dead-letters", task="flaky")["items"][0]
    page = tab.go(f"#/letter/{letter['id']}")
    assert page.locator(".attempt-bar").count() == 3
    attempts = page.get_by_role("table", name="Attempts").locator("tbody tr")
    expect(attempts).to_have_count(3)
    expect(attempts.first).to_contain_text("failed, tried again")
    expect(attempts.last).to_contain_text("given up")
    page.get_by_role("button", name="Show attempt 1").click()
    expect(page.get_by_role("heading", name="Traceback of attempt 1")).to_be_visible()
    expect(page.locator(".why")).to_contain_text("Every attempt that its policy allows has failed.")


def test_filters_live_in_the_address_and_survive_reload_and_back(tab: Tab) -> None:
    page = tab.go("#/inbox")
    page.get_by_label("Task", exact=True).select_option("charge")
    expect(page).to_have_url(re.compile(r"#/inbox\?task=charge$"))
    tab.settle()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Failure type").select_option("validation")
    page.get_by_label("Order").select_option("last")
    expect(page).to_have_url(re.compile(r"task=charge&type=validation&sort=last$"))
    page.reload()
    tab.settle()
    expect(page.get_by_label("Task", exact=True)).to_have_value("charge")
    expect(page.get_by_label("Failure type")).to_have_value("validation")
    expect(page.locator("tbody tr")).to_have_count(1)
    row_of(page, "ValueError").click()
    expect(page).to_have_url(re.compile(r"#/inbox/1%3A.*task=charge"))
    page.go_back()
    expect(page.get_by_label("Order")).to_have_value("last")
    page.go_back()
    page.go_back()
    page.go_back()
    expect(page.get_by_label("Task", exact=True)).to_have_value("")
    tab.settle()
    assert page.locator("tbody tr").count() > 3


def test_search_finds_letters_by_their_message_and_says_when_none_match(tab: Tab) -> None:
    page = tab.go("#/inbox")
    page.get_by_role("searchbox").fill("was refused for good")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("searchbox").fill("no letter has this")
    expect(page.get_by_text("No letters match")).to_be_visible()
    page.get_by_role("link", name="Show all letters").click()
    tab.settle()
    assert page.locator("tbody tr").count() > 3


def test_a_new_dead_letter_appears_without_a_reload(tab: Tab, shop: Shop) -> None:
    page = tab.go("#/inbox?tab=letters&tenant=live")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_text("No letters match")).to_be_visible()
    page.evaluate("() => { window.notReloaded = true }")
    shop.letters("charge", 1, {"cents": -7}, tenant="live")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("navigation", name="Pages").locator(".pill").first).to_be_visible()
    assert page.evaluate("() => window.notReloaded") is True


def test_selected_letters_are_retried_or_removed_after_a_question(tab: Tab, shop: Shop) -> None:
    first, second = shop.letters("ship", 2, {"depot": "bulk"}, tenant="bulk")
    shop.mend("bulk")
    page = tab.go("#/inbox?tab=letters&tenant=bulk")
    page.get_by_label(f"Select {first}").check()
    bar = page.get_by_role("region", name="What is selected")
    expect(bar).to_contain_text("1 letter selected")
    bar.get_by_role("button", name="Remove").click()
    confirm(page, "Remove 1 letter")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert shop.client.get(f"/jobs/{first}").status_code == 404
    page.get_by_label(f"Select {second}").check()
    bar.get_by_role("button", name="Retry").click()
    expect(page.get_by_text("1 letter sent back")).to_be_visible()
    shop.until_state(second, "completed")
    expect(page.get_by_text("No letters match")).to_be_visible()
