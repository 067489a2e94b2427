from __future__ import annotations

import sys

import pytest

from holdfast import App
from holdfast.crawl import Crawler
from holdfast.crawl.robots import (
    ALLOW_ALL,
    FRESH_S,
    LONGEST,
    LONGEST_DELAY_S,
    UNKNOWN_S,
    Robots,
    meaning_of,
    product_token,
)
from holdfast.errors import ConfigError
from tests.unit.crawl.raw_site import RawSite, answer

AGENT = "Holdfast/0.1 (+https://example.org/bot)"
PAGE = "https://example.org/private/page"


def allowed(text: str, path: str = "/private/page") -> bool:
    return Robots.parse(text, AGENT).allows(f"https://example.org{path}")


@pytest.mark.parametrize(
    "text",
    [
        "User-agent: *\nDisallow: /private/",
        "user-agent: *\r\ndisallow: /private/\r\n",
        "\ufeffUser-agent: *\nDisallow: /private/",
        "User-agent: * # all\nDisallow: /private/ # not for you",
        "User-agent: Holdfast\nDisallow: /",
        "User-agent: HOLDFAST\nDisallow: /",
        "User-agent: Holdfast/2.0\nDisallow: /",
        "User-agent: Holdfast/0.1 (+https://example.org/bot)\nDisallow: /",
        "User-agent: Other\nUser-agent: Holdfast\nDisallow: /",
        "User-agent: *\nAllow: /\n\nUser-agent: Holdfast\nDisallow: /private",
        "User-agent: Holdfast\nAllow: /a\n\nUser-agent: Other\nAllow: /\n\nUser-agent: Holdfast\nDisallow: /private",
        "User-agent: *\nDisallow: /*/page$",
        "User-agent: *\nAllow: /pri\nDisallow: /private",
        "User-agent: *\nDisallow: /%70rivate",
    ],
)
def test_what_is_disallowed_for_us_is_not_fetched(text: str) -> None:
    assert not allowed(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "User-agent: *\nDisallow:",
        "User-agent: *\nDisallow: /other",
        "User-agent: Other\nDisallow: /",
        "User-agent: Hold\nDisallow: /",
        "User-agent: H\nDisallow: /",
        "User-agent: Holdfaster\nDisallow: /",
        "User-agent: Fast\nDisallow: /",
        "User-agent: ours\nUser-agent: theirs\nDisallow: /",
        "User-agent: *\nDisallow: /\n\nUser-agent: Holdfast\nAllow: /",
        "User-agent: *\nDisallow: /\n\nUser-agent: Holdfast\nDisallow:",
        "User-agent: *\nDisallow: /private\nAllow: /private/page",
        "Disallow: /",
        "<html><body>User-agent: * Disallow: / is what a page about robots.txt says</body></html>",
    ],
)
def test_what_is_not_disallowed_for_us_may_be_fetched(text: str) -> None:
    assert allowed(text)


def test_rules_are_read_with_the_query() -> None:
    text = "User-agent: *\nDisallow: /*?sort="
    assert allowed(text, "/list")
    assert not allowed(text, "/list?sort=up")


@pytest.mark.parametrize(
    ("agent", "token"),
    [
        (AGENT, "Holdfast"),
        ("Holdfast", "Holdfast"),
        (" my-shop_bot/2.0", "my-shop_bot"),
        ("Mozilla/5.0 (compatible; Shopbot/2.0; +https://example.org)", "Shopbot"),
        ("Mozilla/5.0 (X11; Linux x86_64; compatible; Shopbot/2.0)", "Shopbot"),
        ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla"),
        ("", ""),
        ("(?)", ""),
    ],
)
def test_groups_know_an_agent_by_its_product_token(agent: str, token: str) -> None:
    assert product_token(agent) == token


@pytest.mark.parametrize("agent", ["", "(?)", "*"])
def test_an_agent_without_a_name_obeys_the_group_of_all(agent: str) -> None:
    assert not Robots.parse("User-agent: *\nDisallow: /", agent).allows(PAGE)
    assert Robots.parse("User-agent: ()\nDisallow: /", agent).allows(PAGE)


@pytest.mark.parametrize(
    ("lines", "delay_s"),
    [
        ("Crawl-delay: 2.5", 2.5),
        ("Crawl-delay: 0", 0.0),
        ("Crawl-delay: 86400", LONGEST_DELAY_S),
        ("Crawl-delay: 1e308", LONGEST_DELAY_S),
        ("Crawl-delay: -1", None),
        ("Crawl-delay: nan", None),
        ("Crawl-delay: inf", None),
        ("Crawl-delay: soon", None),
        ("Request-rate: 1/10", 10.0),
        ("Request-rate: 4/1m", 15.0),
        ("Request-rate: 1/1d", LONGEST_DELAY_S),
        ("Request-rate: 2/9 0900-1700", 4.5),
        ("Request-rate: 0/1", None),
        (f"Request-rate: 1/{'9' * 4_000}", LONGEST_DELAY_S),
        (f"Request-rate: {'9' * 4_000}/1", 0.0),
        (f"Request-rate: {'9' * 4_000}/{'9' * 4_000}", 1.0),
        (f"Request-rate: 1/{'9' * 5_000}", None),
        ("Crawl-delay: 1\nRequest-rate: 1/10", 10.0),
        ("Crawl-delay: 20\nRequest-rate: 1/10", 20.0),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_the_delay_is_what_the_site_asks_for_within_reason(lines: str, delay_s: float | None) -> None:
    assert Robots.parse(f"User-agent: *\n{lines}", AGENT).crawl_delay_s == delay_s


def test_the_delay_of_others_is_not_ours() -> None:
    text = "User-agent: Other\nCrawl-delay: 9\n\nUser-agent: *\nCrawl-delay: 5\n\nUser-agent: holdfast\nCrawl-delay: 1"
    assert Robots.parse(text, AGENT).crawl_delay_s == 1.0
    assert Robots.parse(text, "Nobody/1").crawl_delay_s == 5.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 451, 301, 304])
def test_where_there_is_no_such_file_everything_is_allowed(status: int) -> None:
    robots = meaning_of(status, b"User-agent: *\nDisallow: /", AGENT)
    assert robots is ALLOW_ALL
    assert robots.allows(PAGE)
    assert (robots.is_unknown, robots.again_s, robots.crawl_delay_s) == (False, FRESH_S, None)


@pytest.mark.parametrize("status", [None, 429, 500, 503, 599, 100, 0])
def test_a_site_that_cannot_say_what_it_allows_is_left_alone_for_now(status: int | None) -> None:
    robots = meaning_of(status, b"User-agent: *\nAllow: /", AGENT)
    assert robots.is_unknown
    assert not robots.allows(PAGE)
    assert robots.again_s == UNKNOWN_S


@pytest.mark.parametrize("status", [200, 203, 206])
def test_an_answer_is_read(status: int) -> None:
    robots = meaning_of(status, b"User-agent: *\nDisallow: /private", AGENT)
    assert not robots.allows(PAGE)
    assert robots.allows("https://example.org/")
    assert not robots.is_unknown


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_the_first_part_of_a_huge_file_is_read_and_no_half_rule(end: str) -> None:
    start = f"User-agent: *{end}Disallow: /a{end}"
    rule = "Disallow: /private"
    filling = "#é" + "#" * (LONGEST - len(start) - 3 - len(end) - len("Disallow: /")) + end
    cut = (start + filling + rule + end + f"Disallow: /b{end}" * 100_000).encode()
    assert cut[:LONGEST].endswith(f"{end}Disallow: /".encode())
    robots = meaning_of(200, cut, AGENT)
    assert not robots.allows("https://example.org/a")
    assert robots.allows("https://example.org/b")
    assert robots.allows(PAGE)
    assert not meaning_of(200, (start + rule + end + filling).encode(), AGENT).allows(PAGE)


async def test_a_file_that_is_larger_than_a_page_may_be_is_obeyed_as_far_as_it_is_read() -> None:
    huge = b"User-agent: *\nDisallow: /private\n" + b"# and so on\n" * 200_000
    async with RawSite({"/robots.txt": answer(huge), "/": answer(b"x")}) as site:
        app = App("memory://")
        crawler = Crawler(app, allow_private=["127.0.0.1/32"], max_bytes=1_000)
        summary = await crawler.arun(site.url("/private"), site.url("/"))
        await app.aclose()
    assert (summary.done, summary.skipped) == (1, 1)
    assert site.paths == ["/robots.txt", "/"]


@pytest.mark.parametrize(
    "text",
    [
        "\x00" * 10_000,
        "User-agent",
        "User-agent:",
        "User-agent: \ud800\nDisallow: \ud800",
        "User-agent: *\nDisallow: %\nDisallow: %zz%ff%00\nAllow: \ud800$$$***",
        "User-agent: *\nDisallow: http://[::1\nSitemap: http://[::1\nSitemap: \ud800",
        "User-agent: *\n" + "Disallow: /" + "*a" * 100_000,
        "User-agent: *\n" + "Disallow: /*a*b*c$\n" * 5_000,
        "User-agent: *\n" * 20_000 + "Disallow: /x",
        "User-agent: *\nRequest-rate: /\nRequest-rate: 1/\nVisit-time: x\nCrawl-delay:\n:\n::\n : ",
        ":" * 100_000,
        " " * 400_000,
        "user agent" + " " * 400_000,
        "\u2028User-agent: *\u2028Disallow: /y\x0bDisallow: /z\x85",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_hostile_text_is_read_without_an_error(text: str) -> None:
    robots = Robots.parse(text, AGENT)
    assert robots.allows(PAGE)
    assert robots.allows("http://[::1]:8080/%FF?%00=" + "a" * 1_400)


def test_without_protego_one_line_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protego", None)
    with pytest.raises(
        ConfigError, match=r"^a crawl needs the package protego: pip install 'holdfast\[crawl\]', or in a checkout"
    ):
        Robots.parse("", AGENT)
