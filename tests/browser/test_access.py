"""Who may do what: tokens, roles, tenants, read-only, and a prefix in somebody else's site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

import httpx
import pytest
from playwright.sync_api import expect

from holdfast.ops.api.tokens import lines_of, make_token
from tests.browser.conftest import OpenTab
from tests.browser.looks import DESK, PHONE, look
from tests.browser.programs import PATIENCE_S, Program, Served, Shop, until
from tests.browser.tabs import Tab, confirm, row_of
from tests.servers import free_port

REFUSED = r"status of 401 .*/session"
"""A page that asks who it is before anybody signed in is told so, and browsers write that down."""
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
ACTIONS = re.compile("Retry|Cancel|Pause|Resume|Reset|Force open|Disable|Replay|Remove|Stop")


@pytest.fixture(scope="module")
def tokens(shop: Shop) -> dict[str, str]:
    """The secrets of three people by name; the file with their hashes is in the shop's folder."""
    people = {
        "vera": make_token(name="vera", role="viewer"),
        "olga": make_token(name="olga", role="operator"),
        "acme": make_token(name="acme", role="operator", tenant="acme"),
    }
    file = shop.folder / "tokens.toml"
    file.write_text("\n".join(lines_of(one.token) for one in people.values()))
    file.chmod(0o600)
    return {name: one.text for name, one in people.items()}


@pytest.fixture(scope="module")
def guarded(shop: Shop, tokens: dict[str, str]) -> Iterator[str]:
    """A server of the same shop that asks for tokens."""
    assert tokens
    with Served(shop.folder, shop.url, "--tokens", str(shop.folder / "tokens.toml")) as server:
        yield server.at


def sign_in(tab: Tab, token: str, place: str = "") -> None:
    """Open a page and sign in."""
    tab.expects(REFUSED)
    page = tab.page
    page.goto(f"{tab.at}/{place}")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    tab.settle()


def test_a_wrong_token_is_told_and_the_right_one_signs_in_and_out(
    open_tab: OpenTab, guarded: str, tokens: dict[str, str]
) -> None:
    tab = open_tab(guarded)
    tab.expects(REFUSED)
    page = tab.page
    page.goto(f"{guarded}/#/jobs?state=queued")
    page.get_by_label("Token").fill("hf_000000000000_00000000000000000000000000000000")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This token is not known.")).to_be_visible()
    wrong = []
    for theme in THEMES:
        for size in (PHONE, DESK):
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size(size)
            wrong += look(page, "sign-in")
    assert not wrong, "\n".join(wrong)
    page.get_by_label("Token").fill(tokens["olga"])
    page.get_by_label("Token").press("Enter")
    expect(page.locator(".who")).to_contain_text("olga")
    expect(page).to_have_url(re.compile(r"#/jobs\?state=queued$"))
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert tokens["olga"] not in page.evaluate("() => JSON.stringify([{...localStorage}, {...sessionStorage}])")
    page.reload()
    expect(page.locator(".who")).to_contain_text("olga")
    expect(page.get_by_role("link", name="Audit")).to_have_count(0)
    tab.go("#/audit")
    expect(page.get_by_text("Audit needs the role admin")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.context.cookies() == []


def test_a_viewer_sees_no_action_and_the_server_refuses_it(
    open_tab: OpenTab, guarded: str, shop: Shop, tokens: dict[str, str]
) -> None:
    tab = open_tab(guarded)
    sign_in(tab, tokens["vera"])
    page = tab.page
    letter = shop.get("/dead-letters", task="charge")["items"][0]
    places = ("inbox", "inbox?tab=letters", f"letter/{letter['id']}", f"inbox/{letter['fingerprint']}", "jobs")
    for place in (*places, f"jobs/{letter['id']}", "breakers", "queues", "schedules", "replays"):
        tab.go(f"#/{place}")
        expect(page.locator("main").get_by_role("button", name=ACTIONS)).to_have_count(0)
        expect(page.locator("main").get_by_role("checkbox")).to_have_count(0)
    statuses = page.evaluate(
        """async (id) => {
          const own = [`dead-letters/${id}/retry`, `jobs/${id}/cancel`];
          const paths = [...own, "queues/default/pause", "breakers/payments/reset"];
          const sent = paths.map((path) => fetch(path, { method: "POST" }));
          return (await Promise.all(sent)).map((answer) => answer.status);
        }""",
        letter["id"],
    )
    tab.expects("status of 403")
    assert statuses == [403, 403, 403, 403]
    assert shop.state_of(letter["id"]) == "dead_letter"


def test_a_tenant_sees_only_its_own_letters_and_jobs(
    open_tab: OpenTab, guarded: str, shop: Shop, tokens: dict[str, str]
) -> None:
    tab = open_tab(guarded)
    sign_in(tab, tokens["acme"])
    page = tab.page
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link")).to_have_text(["Inbox", "Jobs"])
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(row_of(page, "ValueError").locator(".group-count")).to_have_text("3")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    tab.go("#/jobs")
    expect(page.locator("tbody tr")).to_have_count(3)
    foreign = shop.get("/dead-letters", task="doomed")["items"][0]["id"]
    tab.expects(f"404 .*{foreign}")
    tab.go(f"#/jobs/{foreign}")
    expect(page.get_by_text("There is no such job")).to_be_visible()
    tab.go("#/workers")
    expect(page.get_by_text("There is no such page")).to_be_visible()


def test_a_read_only_server_shows_no_action_and_refuses_them(open_tab: OpenTab, shop: Shop) -> None:
    with Served(shop.folder, shop.url, "--read-only") as server:
        tab = open_tab(server.at)
        page = tab.go("#/queues")
        expect(page.locator(".who")).to_contain_text("read-only")
        expect(page.locator("main").get_by_role("button", name=ACTIONS)).to_have_count(0)
        tab.expects("status of 403")
        pause = "async () => (await fetch('queues/default/pause', { method: 'POST' })).status"
        assert page.evaluate(pause) == 403
        tab.leave()


def test_the_page_works_under_a_prefix_of_another_site(open_tab: OpenTab, shop: Shop) -> None:
    port = free_port()
    words = ["uvicorn", "tests.browser.mounted:site", "--port", str(port), "--log-level", "warning"]
    at = f"http://127.0.0.1:{port}"
    with Program(shop.folder, words, shop.url, is_silent=True):
        until(lambda: answers(f"{at}/"), "the site answers")
        tab = open_tab(f"{at}/ops/holdfast")
        page = tab.go("#/queues")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        row = row_of(page, "slow")
        row.get_by_role("button", name="Pause").click()
        confirm(page, "Pause")
        expect(row.locator(".badge")).to_have_text("paused")
        row.get_by_role("button", name="Resume").click()
        expect(row.locator(".badge")).to_have_text("open")
        tab.go("#/inbox")
        row_of(page, "ValueError").click()
        expect(page.get_by_role("region", name="Traceback")).to_be_visible()
        assert page.url.startswith(f"{at}/ops/holdfast/#/inbox/")
        tab.leave()


def answers(url: str) -> bool:
    """Whether somebody answers there."""
    try:
        return httpx.get(url, timeout=PATIENCE_S).is_success
    except httpx.TransportError:
        return False
