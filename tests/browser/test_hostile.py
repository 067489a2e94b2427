"""Row 49 of the fault plan: hostile strings in every field that somebody can fill are shown as text, and nothing fires.

That nothing fired is checked at the end of every test of this folder: no dialog, no complaint of the console or of the
content security policy, no element and no link that only a string taken for HTML could have made.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pytest
from playwright.sync_api import expect

from tests.browser import hostile
from tests.browser.programs import Shop
from tests.browser.tabs import GROWN, Tab, confirm, row_of


@pytest.fixture(scope="module")
def letter(shop: Shop) -> Any:
    """The letter that is hostile all over."""
    return shop.get("/dead-letters", task=hostile.TASK)["items"][0]


def test_a_letter_shows_every_hostile_field_as_text(tab: Tab, letter: dict[str, str]) -> None:
    page = tab.go(f"#/letter/{letter['id']}")
    names = (hostile.TASK, hostile.QUEUE, hostile.TENANT, hostile.USER, hostile.PROJECT, hostile.KEY)
    errors = (hostile.ERROR_CLASS, hostile.MESSAGE_BEGINS, hostile.RIGHT_TO_LEFT, hostile.LONG_WORD[:1000])
    for text in (*names, *errors, hostile.FILE, hostile.LINE):
        expect(page.locator("main")).to_contain_text(text)
    form = page.get_by_label("values", exact=False).first
    expect(form).to_have_value(re.compile(re.escape(hostile.ARGUMENT_KEY)))
    page.get_by_role("tab", name="JSON").click()
    raw = page.get_by_label("Arguments as JSON").input_value()
    assert hostile.ARGUMENT in raw
    assert hostile.ARGUMENT_KEY in raw


def test_a_cause_and_a_job_show_hostile_fields_as_text(tab: Tab, letter: dict[str, str]) -> None:
    page = tab.go(f"#/inbox/{letter['fingerprint']}")
    for text in (hostile.ERROR_CLASS, hostile.MESSAGE_BEGINS, hostile.FILE, hostile.TASK, hostile.TENANT):
        expect(page.locator("main")).to_contain_text(text)
    tab.go(f"#/jobs/{letter['id']}?tab=arguments")
    for text in (hostile.TASK, hostile.QUEUE, hostile.TENANT, hostile.USER, hostile.ARGUMENT, hostile.ARGUMENT_KEY):
        expect(page.locator("main")).to_contain_text(text)


def test_a_result_and_a_reason_are_text(tab: Tab, shop: Shop) -> None:
    done, dropped = (shop.get("/jobs", task=task)["items"][0] for task in (hostile.LONG_NAME, "drop"))
    page = tab.go(f"#/jobs/{done['id']}?tab=result")
    expect(page.get_by_label("Result").first).to_contain_text(hostile.RESULT)
    tab.go(f"#/jobs/{dropped['id']}")
    expect(page.locator("main")).to_contain_text(hostile.REASON)


LISTS: Final = {
    "inbox": (hostile.ERROR_CLASS, hostile.MESSAGE_BEGINS, hostile.TASK, hostile.TENANT),
    "inbox?tab=letters": (hostile.ERROR_CLASS, hostile.TASK, hostile.TENANT),
    "jobs?state=dead_letter": (hostile.TASK, hostile.ERROR_CLASS, hostile.QUEUE, hostile.TENANT),
    "jobs?state=completed": (hostile.LONG_NAME,),
    "breakers": (hostile.BREAKER, hostile.ERROR_CLASS, hostile.TASK),
    "queues": (hostile.QUEUE,),
    "workers": (hostile.QUEUE,),
    "schedules": (hostile.SCHEDULE,),
    "alerts": (hostile.ALERT,),
    "overview": (hostile.QUEUE, hostile.ALERT, hostile.BREAKER),
}


def test_lists_show_hostile_names_as_text(tab: Tab) -> None:
    for place, texts in LISTS.items():
        page = tab.go(f"#/{place}")
        for text in texts:
            expect(page.locator("main")).to_contain_text(text)
        assert tab.check() == []


def test_hostile_filters_and_addresses_are_text(tab: Tab) -> None:
    page = tab.go(f"#/inbox?q={hostile.SEARCH}&task={hostile.TASK}&sort=javascript:alert(1)")
    expect(page.get_by_role("searchbox")).to_have_value(hostile.SEARCH)
    expect(page.locator("main")).to_contain_text(hostile.SEARCH)
    tab.go(f"#/jobs?cursor={hostile.SEARCH}&tenant={hostile.TENANT}")
    tab.expects(r"422 .*cursor=")
    tab.go("#/__proto__/constructor?__proto__=x&constructor=y")
    expect(page.locator("main")).to_contain_text("There is no such page")


def test_hostile_keys_reach_the_right_target_and_the_audit_log(tab: Tab, shop: Shop) -> None:
    page = tab.go("#/breakers")
    card = page.get_by_role("article", name=f"Breaker {hostile.BREAKER}", exact=True)
    card.get_by_role("button", name="Disable").click()
    expect(page.get_by_role("dialog")).to_contain_text(hostile.BREAKER)
    confirm(page, "Disable")
    expect(page.get_by_role("status").filter(has_text=hostile.BREAKER)).to_be_visible()
    expect(card.locator(".badge")).to_have_text("disabled")
    card.get_by_role("button", name="Reset").click()
    confirm(page, "Reset")
    expect(card.locator(".badge")).to_have_text("closed")
    path = "/queues/<img src=x onerror=alert('path')>/pause"
    assert shop.client.post(path, headers={"Origin": "http://evil.example"}).status_code == 403
    tab.go("#/audit")
    expect(row_of(page, hostile.BREAKER).first).to_be_visible()
    tab.go("#/audit?q=refused")
    expect(row_of(page, "onerror=alert(")).to_contain_text("refused 403")


def test_names_that_could_steer_a_terminal_or_turn_the_text_around_are_refused(shop: Shop, tab: Tab) -> None:
    for field in ("tenant", "user", "project", "queue", "idempotency_key"):
        for text in (hostile.ANSI, hostile.RIGHT_TO_LEFT, "two\nlines"):
            answer = shop.client.post("/jobs", json={"task": "drop", "arguments": {}, field: text})
            assert answer.status_code == 422, field
    tab.go("#/jobs")


def test_a_string_that_was_taken_for_html_would_be_found(tab: Tab) -> None:
    page = tab.go("#/inbox")
    tab.expects("CSP", "onerror", "grown", "Refused", "violates", "404", "failed")
    page.evaluate("html => document.querySelector('h1').insertAdjacentHTML('beforeend', html)", hostile.TASK)
    expect(page.locator(GROWN)).to_have_count(1)
    page.wait_for_function("() => document.querySelector('h1 img').complete")
    assert any(one.startswith("console: ") for one in tab.complaints)
