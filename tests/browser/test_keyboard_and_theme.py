"""The keyboard, the theme, the menu of a phone, and what dialogs do with the focus."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.conftest import OpenTab
from tests.browser.programs import Shop
from tests.browser.tabs import Tab


def test_the_keys_search_move_open_and_help(tab: Tab) -> None:
    page = tab.go("#/inbox")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("j?")
    expect(page.get_by_role("searchbox")).to_have_value("j?")
    expect(page.get_by_text("No letters match")).to_be_visible()  # or the rows go while they are being moved over
    page.get_by_role("searchbox").fill("")
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr").nth(1)).to_be_visible()
    for key, at in (("j", 0), ("j", 1), ("k", 0)):
        page.keyboard.press(key)
        expect(page.locator("tbody tr").nth(at)).to_have_class(re.compile("cursor"))
    page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard")
    expect(help_).to_contain_text("next row")
    page.keyboard.press("Escape")
    expect(help_).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/inbox/1%3A"))
    page.keyboard.press("g")
    page.keyboard.press("b")
    expect(page).to_have_url(re.compile("#/breakers$"))


def test_rows_are_selected_with_the_keyboard(tab: Tab) -> None:
    page = tab.go("#/jobs?task=report")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("region", name="Selected jobs")).to_contain_text("1 job selected")


def test_the_chosen_theme_outlives_a_reload(tab: Tab) -> None:
    page = tab.go("#/inbox")
    ground = "() => getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    tab.settle()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Theme: dark").click()
    expect(page.get_by_role("button", name="Theme: system")).to_be_visible()
    assert page.evaluate(ground) == light


def test_without_a_choice_the_theme_is_the_systems(open_tab: OpenTab, shop: Shop) -> None:
    scheme = "() => getComputedStyle(document.documentElement).backgroundColor"
    grounds = {open_tab(shop.at, color_scheme=one).go().evaluate(scheme) for one in ("light", "dark")}
    assert len(grounds) == 2


def test_a_dialog_keeps_the_focus_and_gives_it_back(tab: Tab) -> None:
    page = tab.go("#/queues")
    button = page.locator("tbody tr").first.get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    inside = "() => document.activeElement === document.body || document.activeElement.closest('dialog') !== null"
    for _ in range(6):
        page.keyboard.press("Tab")
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_on_a_phone_the_menu_opens_and_closes(open_tab: OpenTab, shop: Shop) -> None:
    tab = open_tab(shop.at, viewport={"width": 390, "height": 844}, has_touch=True)
    page = tab.go("#/inbox")
    menu = page.get_by_role("navigation", name="Pages")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Open the menu").tap()
    menu.get_by_role("link", name="Jobs").tap()
    expect(page).to_have_url(re.compile("#/jobs$"))
    expect(menu).to_be_hidden()
