"""The page of streams, and messages in the inbox: live, folded where it is long, and text where it is hostile."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Locator, Page, expect

from holdfast.clock import SystemClock
from tests.browser import hostile
from tests.browser.conftest import OpenTab
from tests.browser.looks import DESK, PHONE, look
from tests.browser.programs import Mill, Served, Shop
from tests.browser.rivers import Rivers, part, stream
from tests.browser.tabs import confirm

STUCK: Final = part(
    7,
    topic="clicks",
    lag=48_211,
    in_flight=100,
    buffered=900,
    paused="10000 messages behind one that is not finished",
    stuck_id="clicks/7/1007",
    stuck_key="customer-4711",
    stuck_s=312.0,
)
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
TOPIC: Final = "<img src=x onerror=alert('topic')>"
GROUP: Final = "\"><svg onload=alert('group')>"
MESSAGE_KEY: Final = "<img src=x onerror=alert('message key')>"
VALUE: Final = "</textarea><script>alert('value')</script>"


class River(Shop):
    """A server on a store with streams, and what reports them."""

    def __init__(self, folder: Path, url: str, at: str, rivers: Rivers) -> None:
        super().__init__(folder, url, at)
        self.rivers = rivers


@pytest.fixture(scope="module")
def river(tmp_path_factory: pytest.TempPathFactory) -> Iterator[River]:
    """Streams of every kind: stuck with 200 partitions, working, away, and hostile all over."""
    folder = tmp_path_factory.mktemp("river")
    url = f"sqlite:///{folder}/shop.db"
    now = SystemClock().now()
    many = [STUCK if number == 7 else part(number, topic="clicks", lag=number % 3) for number in range(200)]
    attack = part(
        0,
        topic=TOPIC,
        lag=1,
        in_flight=1,
        paused=hostile.REASON,
        stuck_id=f"{TOPIC}/0/1",
        stuck_key=MESSAGE_KEY,
        stuck_s=61.0,
    )
    with Served(folder, url) as server, Rivers(url) as rivers:
        rivers.report(
            stream("count", *many, topic="clicks", in_flight=100, last_error="ledger hung up", last_error_at=now - 190),
            stream("bill", part(0), part(1, lag=12), part(0, topic="orders.billing.retry.1", paused="not due yet")),
            stream("ship", topic="parcels", away="refused: localhost:9092"),
            stream(
                hostile.TASK, attack, topic=TOPIC, group=GROUP, last_error=hostile.MESSAGE, last_error_at=now,
                away=hostile.RIGHT_TO_LEFT, location="javascript:alert('location')",
            ),
        )  # fmt: skip
        river = River(folder, url, server.at, rivers)
        yield river
        river.client.close()


def card_of(page: Page, name: str) -> Locator:
    """The card of a stream."""
    return page.get_by_role("article", name=f"Stream {name}", exact=True)


def stat_of(card: Locator, name: str) -> Locator:
    """One of its numbers."""
    return card.locator(".stat").filter(has_text=name).locator(".stat-value")


def part_of(page: Page, name: str) -> Locator:
    """Where a part of a message is typed in."""
    return page.locator(".payload").get_by_role("textbox", name=re.compile(f"^{name}"))


def test_a_new_stream_shows_by_itself_and_its_numbers_and_lines_follow(river: River, open_tab: OpenTab) -> None:
    page = open_tab(river.at).go("#/streams")
    card = card_of(page, "sort")
    expect(card).to_have_count(0)
    river.rivers.report(stream("sort", part(0, lag=40), part(1, lag=2), topic="letters", in_flight=3))
    expect(stat_of(card, "Lag")).to_have_text("42")
    expect(stat_of(card, "In flight")).to_have_text("3")
    expect(card.locator("canvas")).to_have_count(2)
    expect(card.locator("header .badge")).to_have_text("working")
    river.rivers.report(stream("sort", part(0), part(1), topic="letters"))
    expect(stat_of(card, "Lag")).to_have_text("0")
    expect(card.locator("header .badge")).to_have_text("up to date")
    expect(card.get_by_role("img", name=re.compile("not finished. Latest: lag 0"))).to_be_visible()


def test_a_real_stream_buries_a_message_and_a_replay_heals_it(open_tab: OpenTab, tmp_path: Path) -> None:
    with Mill(tmp_path) as mill:
        shop = Shop(tmp_path, "", mill.at)
        tab = open_tab(mill.at)
        page = tab.go("#/streams")
        card = card_of(page, "grind")
        expect(stat_of(card, "Dead letters")).to_have_text("0")
        shop.enqueue("deliver", {"number": 1})
        expect(stat_of(card, "Dead letters")).to_have_text("1")
        (letter,) = shop.get("/dead-letters", task="grind")["items"]
        tab.go(f"#/letter/{letter['id']}")
        expect(part_of(page, "key")).to_have_value("farm-7")
        expect(part_of(page, "value")).to_have_value('{\n  "number": 1\n}')
        shop.mend("mill")
        page.keyboard.press("r")
        confirm(page, "Send back")
        expect(page.get_by_role("status").filter(has_text="No dead letter any more")).to_contain_text("completed")
        shop.client.close()
        tab.leave()


def test_of_200_partitions_the_stuck_one_is_named_and_the_healthy_ones_are_folded(
    river: River, open_tab: OpenTab
) -> None:
    page = open_tab(river.at).go("#/streams")
    card = card_of(page, "count")
    expect(card.locator("tbody tr")).to_have_count(8)
    first = card.locator("tbody tr").first
    expect(first).to_contain_text("stuck for 5 min 12 s on clicks/7/1007, key customer-4711")
    expect(first).to_contain_text("paused 10000 messages behind one")
    expect(card.locator("header .badge")).to_have_text("stuck")
    card.get_by_role("link", name=re.compile("192 more partitions")).click()
    expect(page).to_have_url(re.compile("#/streams/count$"))
    expect(page.locator("tbody tr")).to_have_count(200)
    page.get_by_role("combobox", name="Order").select_option("By number")
    expect(page).to_have_url(re.compile("sort=number"))
    expect(page.locator("tbody tr").first.locator("td").first).to_have_text("0")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("tbody tr").nth(1)).to_have_class(re.compile("cursor"))
    page.go_back()
    expect(page.locator("tbody tr").first).to_contain_text("48,211")


def test_a_server_that_is_away_is_told_and_streams_are_found_by_name_and_trouble(
    river: River, open_tab: OpenTab
) -> None:
    page = open_tab(river.at).go("#/streams")
    expect(card_of(page, "ship").get_by_role("alert")).to_contain_text("cannot be reached")
    expect(card_of(page, "ship").get_by_role("alert")).to_contain_text("refused: localhost:9092")
    expect(card_of(page, "count")).to_contain_text("Last error 3 min ago")
    expect(page.get_by_role("navigation").get_by_role("link", name="Streams")).to_contain_text("3")
    page.get_by_role("combobox", name="Which streams").select_option("Those to look at")
    expect(page.get_by_role("article")).to_have_count(3)
    expect(card_of(page, "bill")).to_have_count(0)
    page.get_by_role("button", name="Clear").click()
    page.get_by_role("searchbox").fill("ORDERS")
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page).to_have_url(re.compile("q=ORDERS"))
    page.get_by_role("searchbox").press("Enter")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/streams/bill$"))


def test_a_message_shows_where_it_came_from_and_is_sent_back_edited_where_one_says(
    river: River, open_tab: OpenTab
) -> None:
    value = {"id": 7, "cents": "a lot", "password": "s3cret"}
    letter = river.rivers.bury("bill", value, key="customer-7")
    tab = open_tab(river.at)
    page = tab.go("#/streams")
    card_of(page, "bill").get_by_role("link", name=re.compile("Dead letters")).click()
    expect(page).to_have_url(re.compile(r"#/inbox\?task=bill$"))
    tab.go(f"#/letter/{letter}")
    for name, text in {"Topic": "orders", "Partition": "3", "Offset": "1001", "Group": "billing"}.items():
        fact = page.locator(".facts > div").filter(has=page.locator("dt", has_text=re.compile(f"^{name}$")))
        expect(fact.locator("dd")).to_have_text(text)
    key = part_of(page, "key")
    expect(key).to_have_value("customer-7")
    part_of(page, "headers").fill('{"source": "till"}')
    page.get_by_role("button", name="Edit and retry").click()
    expect(page.locator(".argument.has-error")).to_contain_text("a list of pairs")
    page.get_by_role("button", name="Undo edits").click()
    key.fill("customer-8")
    page.get_by_role("button", name="Edit and retry").click()
    question = page.get_by_role("dialog")
    expect(question.locator("ins")).to_have_text('"customer-8"')
    expect(question.get_by_label("To the group’s retry topic orders.billing.retry.0")).to_be_checked()
    confirm(page, "Edit and retry")
    expect(page.get_by_text("No dead letter any more")).to_be_visible()
    sent = river.get(f"/jobs/{letter}")
    assert (sent["state"], sent["arguments"]["key"], sent["arguments"]["to"]) == ("queued", "customer-8", "retry")
    assert sent["original_arguments"]["key"] == "customer-7"
    river.rivers.carry("bill", letter, "orders.billing.retry.0")
    expect(page.get_by_role("status").filter(has_text="Sent back")).to_contain_text("sent to orders.billing.retry.0")


def test_a_message_goes_to_its_original_topic_only_when_asked(river: River, open_tab: OpenTab) -> None:
    letter = river.rivers.bury("count", {"id": 8})
    page = open_tab(river.at).go(f"#/letter/{letter}")
    page.keyboard.press("r")
    question = page.get_by_role("dialog")
    expect(question).to_contain_text("Every group that reads the topic sees it")
    question.get_by_label("To the original topic orders").check()
    confirm(page, "Send back")
    expect(page.get_by_text("On its way to orders", exact=True)).to_be_visible()
    assert river.get(f"/jobs/{letter}")["arguments"]["to"] == "topic"


def asked_of(page: Page) -> Any:
    """What the page asks the server to replay."""
    with page.expect_request(lambda request: request.url.endswith("/replays") and request.method == "POST") as asked:
        page.get_by_role("dialog").get_by_role("button", name=re.compile("^Replay")).click()
    return asked.value.post_data_json


def test_a_replay_of_messages_says_where_they_go_and_never_sends_jobs_there(river: River, open_tab: OpenTab) -> None:
    for number in range(2):
        river.rivers.bury("pack", {"id": number})
    tab = open_tab(river.at)
    page = tab.go("#/inbox/1%3Apack")
    page.get_by_role("button", name="Replay 2 letters…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("To the group’s retry topic orders.billing.retry.0")).to_be_checked()
    expect(dialog.locator(".sample-arguments").first).to_have_text(re.compile(r'^\{"key":"","value":\{"id":1\}'))
    dialog.get_by_label("To the original topic orders").check()
    expect(dialog.get_by_label("To the original topic orders")).to_be_checked()
    tab.settle()
    asked = asked_of(page)
    assert asked["edit"] == {"to": "topic"}
    assert asked["filter"]["task"] == "pack"
    expect(dialog.get_by_role("progressbar")).to_be_visible()


def test_hostile_streams_and_messages_are_text(river: River, open_tab: OpenTab) -> None:
    letter = river.rivers.bury(
        hostile.TASK, {hostile.ARGUMENT_KEY: VALUE}, key=MESSAGE_KEY, topic=TOPIC, error=hostile.MESSAGE
    )
    tab = open_tab(river.at)
    page = tab.go("#/streams")
    card = card_of(page, hostile.TASK)
    for text in (TOPIC, GROUP, MESSAGE_KEY, hostile.REASON, hostile.MESSAGE_BEGINS, "javascript:alert('location')"):
        expect(card).to_contain_text(text)
    card.get_by_role("link", name=hostile.TASK, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(hostile.TASK)
    tab.go(f"#/letter/{letter}")
    for text in (hostile.TASK, TOPIC, hostile.MESSAGE_BEGINS):
        expect(page.locator("main")).to_contain_text(text)
    expect(part_of(page, "key")).to_have_value(MESSAGE_KEY)
    expect(part_of(page, "value")).to_have_value(re.compile(re.escape(VALUE)))
    page.get_by_role("button", name="Retry", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(TOPIC)
    tab.go("#/streams/no-such-stream?sort=javascript:alert(1)")
    expect(page.get_by_text("There is no such stream")).to_be_visible()


def looked_at(page: Page, name: str) -> list[str]:
    """What is wrong with it in both themes, on a desk and on a phone."""
    wrong = []
    for theme, size in itertools.product(THEMES, (DESK, PHONE)):
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size(size)
        wrong += look(page, name)
    return wrong


def test_streams_and_messages_fit_and_can_be_read(river: River, open_tab: OpenTab) -> None:
    letter = river.rivers.bury("bill", {"id": 9, "cents": "a lot"}, key="customer-9")
    tab = open_tab(river.at)
    page = tab.go("#/streams")
    expect(page.locator(".stream canvas")).to_have_count(2 * page.get_by_role("article").count())
    wrong = looked_at(page, "streams")
    tab.go("#/streams/bill")
    wrong += looked_at(page, "stream")
    tab.go(f"#/letter/{letter}")
    wrong += looked_at(page, "letter-message")
    page.get_by_role("button", name="Retry", exact=True).click()
    wrong += looked_at(page, "dialog-message")
    assert not wrong, "\n".join(wrong)
