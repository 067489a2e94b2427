"""What the page says while the server or the store is away, and that it goes on by itself afterwards."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import OpenTab
from tests.browser.programs import Served
from tests.servers import RedisServer, free_port

AWAY = (r"failed: net::ERR_", r"console: Failed to load resource", r"console: .*net::ERR_")


def test_a_server_that_stops_is_reconnected_to_without_a_reload(open_tab: OpenTab, tmp_path: Path) -> None:
    server = Served(tmp_path, f"sqlite:///{tmp_path}/shop.db", port=free_port())
    with server:
        tab = open_tab(server.at)
        tab.expects(*AWAY)
        page = tab.go("#/inbox")
        expect(page.get_by_text("Nothing was given up", exact=True)).to_be_visible()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        page.evaluate("() => { window.notReloaded = true }")
        server.stop()
        expect(page.get_by_text("Reconnecting", exact=True)).to_be_visible()
        server.start()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        assert page.evaluate("() => window.notReloaded") is True


def test_a_store_that_is_away_is_told_and_its_return_too(open_tab: OpenTab, tmp_path: Path) -> None:
    with RedisServer({"appendonly": "yes"}) as redis, Served(tmp_path, redis.url()) as server:
        tab = open_tab(server.at)
        tab.expects(*AWAY)
        page = tab.go("#/queues")
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        redis.kill()
        expect(page.get_by_text("Store away", exact=True)).to_be_visible()
        expect(page.get_by_role("alert").filter(has_text="The store cannot be reached.")).to_be_visible()
        redis.start()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        expect(page.get_by_text("The store cannot be reached.")).to_have_count(0)
