"""The pages about the whole fleet: breakers, queues, workers, schedules, alerts, audit, overview."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser import hostile
from tests.browser.programs import Shop
from tests.browser.shop import RECOVERY_S
from tests.browser.tabs import Tab, confirm, row_of


def test_an_open_breaker_counts_down_and_can_be_held_open_and_reset(tab: Tab, shop: Shop) -> None:
    page = tab.go("#/breakers")
    card = page.get_by_role("article", name="Breaker payments", exact=True)
    expect(card.locator(".badge")).to_have_text("open")
    expect(card).to_contain_text("ConnectionResetError: payments hung up")
    expect(card).to_contain_text("2 in a row")
    time = card.locator(".countdown time")
    shown = time.inner_text()
    assert re.fullmatch(r"\d min( \d+ s)?|\d+ s", shown), shown
    expect(time).not_to_have_text(shown)
    until_at = next(one for one in shop.get("/breakers")["items"] if one["key"] == "payments")["until_at"]
    assert 0 < until_at - shop.get("/overview")["now_at"] <= RECOVERY_S
    card.get_by_role("button", name="Force open").click()
    confirm(page, "Force open")
    expect(card.locator(".badge")).to_have_text("forced open")
    expect(card.locator(".countdown")).to_have_count(0)
    card.get_by_role("button", name="Reset").click()
    confirm(page, "Reset")
    expect(page.get_by_text("Breaker payments is closed")).to_be_visible()
    for _ in range(2):
        shop.enqueue("call")
    expect(card.locator(".badge")).to_have_text("open")


def test_a_queue_is_paused_and_resumed(tab: Tab, shop: Shop) -> None:
    page = tab.go("#/queues")
    row = row_of(page, "reports")
    row.get_by_role("button", name="Pause").click()
    confirm(page, "Pause")
    expect(row.locator(".badge")).to_have_text("paused")
    job = shop.enqueue("report", {"number": 1}, tenant="paused")
    assert next(one for one in shop.get("/queues")["items"] if one["name"] == "reports")["is_paused"]
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".badge")).to_have_text("open")
    shop.until_state(job, "completed")
    row.get_by_role("link", name="reports").click()
    expect(page).to_have_url(re.compile(r"#/jobs\?queue=reports$"))


def test_workers_are_shown_with_what_they_do(tab: Tab, shop: Shop) -> None:
    (worker,) = shop.get("/workers")["items"]
    page = tab.go("#/workers")
    row = row_of(page, str(worker["pid"]))
    expect(row).to_contain_text(worker["host"])
    expect(row.locator(".badge")).to_have_text("alive")
    expect(row).to_contain_text("reports")


def test_a_schedule_is_paused_and_resumed(tab: Tab, shop: Shop) -> None:
    page = tab.go("#/schedules")
    row = row_of(page, "nightly")
    expect(row).to_contain_text("0 3 * * *")
    row.get_by_role("button", name="Pause").click()
    confirm(page, "Pause")
    expect(row.locator(".badge")).to_have_text("paused")
    assert next(one for one in shop.get("/schedules")["items"] if one["name"] == "nightly")["is_paused"]
    row.get_by_role("button", name="Resume").click()
    expect(row.locator(".badge")).to_have_text("on")


def test_alerts_that_fire_come_first(tab: Tab) -> None:
    page = tab.go("#/alerts")
    row = row_of(page, hostile.ALERT)
    expect(row.locator(".badge")).to_have_text("firing")
    expect(row).to_contain_text("dead letters")
    tab.settle()
    assert page.locator("tbody tr .badge").all_inner_texts()[-1] == "ok"


def test_the_audit_log_says_who_did_what_and_can_be_searched(tab: Tab, shop: Shop) -> None:
    job = shop.enqueue("report", {"number": 1}, delay_s=86_400)
    shop.post(f"/jobs/{job}/cancel")
    page = tab.go("#/audit")
    expect(row_of(page, job)).to_contain_text("cancel")
    page.get_by_role("searchbox").fill(job)
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("searchbox").fill("nobody did this")
    expect(page.get_by_text("No entry matches")).to_be_visible()


def test_the_overview_says_how_the_shop_is(tab: Tab, shop: Shop) -> None:
    page = tab.go("#/overview")
    health = page.locator(".stat").filter(has_text="Health")
    expect(health).to_contain_text(re.compile(r"of 100, (healthy|degraded|unhealthy)"))
    told = shop.get("/overview")
    assert 0 <= told["score"] <= 1
    assert abs(int(health.locator(".stat-value").inner_text()) - 100 * told["score"]) <= 5
    store = page.locator(".panel").filter(has_text="Durability")
    expect(store.locator("dd").nth(0)).to_have_text("sqlite")
    expect(store.locator("dd").nth(1)).to_have_text(re.compile(r"shop\.db$"))
    expect(page.get_by_role("list", name="What needs attention")).to_contain_text("breaker")
    expect(page.locator(".chart canvas")).to_have_count(3)
    before = page.get_by_role("group", name="Jobs by state").locator(".stat").filter(has_text="Completed")
    completed = before.locator(".stat-value").inner_text()
    shop.until_state(shop.enqueue("charge", {"order_id": 1, "cents": 5}), "completed")
    expect(before.locator(".stat-value")).not_to_have_text(completed)
