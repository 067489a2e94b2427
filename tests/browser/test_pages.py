"""Every page, in both themes and at the widths of a desk and a phone: all of it loads, fits and can be read."""

from __future__ import annotations

import pytest
from playwright.sync_api import ViewportSize, expect

from tests.browser.conftest import OpenTab
from tests.browser.looks import DESK, PHONE, look, overflow, unreadable
from tests.browser.programs import Shop
from tests.browser.tabs import Tab

themes = pytest.mark.parametrize("theme", ["light", "dark"])
sizes = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])


def places(shop: Shop) -> dict[str, str]:
    """Every page there is, by name: those of a job, a letter and a cause with hostile values in each field as well."""
    groups = {group["error_name"]: group for group in shop.get("/dead-letters/groups")["items"]}
    attack = next(group for name, group in groups.items() if name.startswith("shop."))
    flaky = groups["holdfast.errors.Transient"]
    done = shop.get("/jobs", task="charge", state="completed")["items"][0]
    fixed = "inbox overview jobs breakers queues workers schedules alerts audit replays".split()
    return {name: f"#/{name}" for name in fixed} | {
        "no-streams": "#/streams",
        "no-rings": "#/rings",
        "no-crawls": "#/crawls",
        "inbox-letters": "#/inbox?tab=letters",
        "inbox-nothing": "#/inbox?task=no-such-task",
        "cause": f"#/inbox/{flaky['fingerprint']}",
        "cause-hostile": f"#/inbox/{attack['fingerprint']}",
        "letter": f"#/letter/{flaky['sample_id']}",
        "letter-hostile": f"#/letter/{attack['sample_id']}",
        "job": f"#/jobs/{attack['sample_id']}",
        "job-arguments": f"#/jobs/{attack['sample_id']}?tab=arguments",
        "job-result": f"#/jobs/{done['id']}?tab=result",
        "no-such-job": "#/jobs/nothing",
        "no-such-page": "#/nowhere",
    }


@themes
@sizes
def test_every_page_loads_fits_and_can_be_read(shop: Shop, open_tab: OpenTab, theme: str, size: ViewportSize) -> None:
    tab = open_tab(shop.at, color_scheme=theme, viewport=size)
    tab.expects(r"404 .*/jobs/nothing")
    wrong: list[str] = []
    for name, place in places(shop).items():
        page = tab.go(place)
        if name == "overview":
            expect(page.locator(".chart canvas")).to_have_count(3)
        if name == "no-streams":
            expect(page.get_by_label("A stream in tasks.py", exact=True)).to_contain_text("@app.stream(")
        if name == "no-rings":
            expect(page.get_by_label("A ring", exact=True)).to_contain_text("Disruptor(")
        if name == "no-crawls":
            expect(page.get_by_label("A crawl", exact=True)).to_contain_text("Crawler(")
        wrong += look(page, name)
    assert not wrong, "\n".join(wrong)


@themes
@sizes
def test_every_dialog_fits_and_can_be_read(shop: Shop, open_tab: OpenTab, theme: str, size: ViewportSize) -> None:
    tab = open_tab(shop.at, color_scheme=theme, viewport=size)
    page = tab.go("#/inbox")
    page.keyboard.press("?")
    wrong = look(page, "dialog-keys")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Replay all…").click()
    expect(page.get_by_role("dialog").locator(".sample li")).not_to_have_count(0)
    page.get_by_role("dialog").get_by_text("Edit the arguments of all").click()
    page.get_by_role("dialog").get_by_label("Canaries").fill("-")
    wrong += look(page, "dialog-replay")
    page.keyboard.press("Escape")
    if size is PHONE:
        page.get_by_role("button", name="Open the menu").click()
        wrong += look(page, "menu")
        page.get_by_role("button", name="Close the menu").click()
    tab.go("#/jobs")
    page.get_by_role("checkbox").nth(1).check()
    wrong += look(page, "jobs-selected")
    page.get_by_role("button", name="Cancel jobs").click()
    wrong += look(page, "dialog-question")
    assert not wrong, "\n".join(wrong)


def test_a_text_that_cannot_be_read_would_be_found(tab: Tab) -> None:
    page = tab.go("#/inbox")
    assert unreadable(page) == []
    page.evaluate("() => { document.querySelector('h1').style.color = '#bbb' }")
    assert any("h1" in one for one in unreadable(page))


def test_something_too_wide_would_be_found(tab: Tab) -> None:
    page = tab.go("#/inbox")
    assert overflow(page) == []
    page.evaluate("() => { document.querySelector('h1').style.minWidth = '3000px' }")
    assert overflow(page) != []
