"""Jobs: search, filters, pages, many at once, and one in full."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.programs import Shop
from tests.browser.tabs import Tab, confirm


def test_jobs_are_paged_by_cursor_and_each_is_seen_once(tab: Tab) -> None:
    page = tab.go("#/jobs?task=report&state=queued")
    seen: list[str] = []
    for rows in (50, 50, 20):
        expect(page.locator("tbody tr")).to_have_count(rows)
        seen += page.locator("tbody tr td a.mono").evaluate_all("links => links.map(link => link.title)")
        if rows == 50:
            first = page.locator("tbody tr td a.mono").first
            before = first.get_attribute("title") or ""
            page.get_by_role("button", name="Older").click()
            expect(first).not_to_have_attribute("title", before)
            tab.settle()
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    assert len(set(seen)) == 120
    page.get_by_role("button", name="Newest").click()
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator("tbody tr td a.mono").first).to_have_attribute("title", seen[0])


def test_jobs_are_searched_and_filtered_and_the_address_says_how(tab: Tab) -> None:
    page = tab.go("#/jobs")
    page.get_by_role("searchbox").fill("nothing to pay")
    expect(page).to_have_url(re.compile(r"#/jobs\?q=nothing\+to\+pay$"))
    expect(page.locator("tbody tr").filter(has_text="ValueError")).not_to_have_count(0)
    expect(page.locator("tbody tr").filter(has_text="report")).to_have_count(0)
    page.get_by_role("button", name="Clear filters").click()
    page.get_by_label("State").select_option("completed")
    page.get_by_label("Tenant").fill("globex")
    page.get_by_label("Tenant").press("Enter")
    expect(page).to_have_url(re.compile(r"state=completed&tenant=globex$"))
    page.reload()
    tab.settle()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.go_back()
    expect(page.get_by_label("Tenant")).to_have_value("")
    expect(page.get_by_label("State")).to_have_value("completed")


def test_many_jobs_are_cancelled_at_once_after_a_question(tab: Tab, shop: Shop) -> None:
    jobs = [shop.enqueue("report", {"number": n}, delay_s=86_400, tenant="crowd") for n in range(3)]
    page = tab.go("#/jobs?tenant=crowd")
    page.get_by_label("Select all on this page").check()
    page.get_by_label(f"Select {jobs[0]}").uncheck()
    bar = page.get_by_role("region", name="Selected jobs")
    expect(bar).to_contain_text("2 jobs selected")
    bar.get_by_role("button", name="Cancel jobs").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep as it is").click()
    assert {shop.state_of(job) for job in jobs} == {"queued"}
    bar.get_by_role("button", name="Cancel jobs").click()
    confirm(page, "Cancel 2 jobs")
    expect(page.get_by_text("2 jobs cancelled")).to_be_visible()
    expect(page.locator("tbody tr").filter(has_text="cancelled")).to_have_count(2)
    assert [shop.state_of(job) for job in jobs] == ["queued", "cancelled", "cancelled"]


def test_a_running_job_shows_its_progress_and_is_cancelled_from_its_page(tab: Tab, shop: Shop) -> None:
    job = shop.enqueue("slow", tenant="running")
    shop.until_state(job, "running")
    page = tab.go(f"#/jobs/{job}")
    expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("aria-valuenow", "40")
    page.get_by_role("button", name="Cancel job").click()
    confirm(page, "Cancel the job")
    expect(page.locator(".page-title .badge")).to_have_text("cancelled")
    expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
    shop.until_state(job, "cancelled")


def test_a_job_shows_all_of_its_fields_arguments_and_result(tab: Tab, shop: Shop) -> None:
    whose = {"tenant": "whole", "user": "ann", "project": "winter", "idempotency_key": "order-42", "priority": 7}
    job = shop.enqueue("charge", {"order_id": 42, "cents": 5, "password": "s3cret"}, **whose)
    shop.until_state(job, "completed")
    page = tab.go(f"#/jobs/{job}")
    for text in (job, "whole", "ann", "winter", "order-42", "default"):
        expect(page.locator("main")).to_contain_text(text)
    page.get_by_role("tab", name="Arguments").click()
    expect(page.locator("pre[aria-label=Arguments]")).to_contain_text('"order_id": 42')
    expect(page.locator("pre[aria-label=Arguments]")).to_contain_text("[redacted]")
    page.get_by_role("tab", name="Result").click()
    expect(page.locator("pre[aria-label=Result]")).to_contain_text("charged 5 EUR")
    expect(page).to_have_url(re.compile("tab=result$"))
    assert "s3cret" not in page.content()
