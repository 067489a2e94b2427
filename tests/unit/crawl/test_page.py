from __future__ import annotations

import pytest

from holdfast.crawl.page import Item, Link
from holdfast.crawl.urls import item_id
from holdfast.errors import ConfigError, Invalid, PageChanged, PageRefused
from tests.unit.crawl.pages import URL, page


def urls(found: object) -> list[str]:
    return [link.url for link in found]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- what came


def test_a_page_says_what_was_asked_for_and_what_came() -> None:
    one = page(
        b"<p>x", data={"rank": 3}, depth=2, final_url="https://example.org/end", status=203, headers={"etag": "1"}
    )
    assert (one.url, one.final_url, one.domain) == (URL, "https://example.org/end", "example.org")
    assert (one.status, one.content_type, one.body, one.headers["etag"]) == (203, "text/html", b"<p>x", "1")
    assert (one.depth, one.referrer, one.data, one.attempt) == (2, "https://example.org/", {"rank": 3}, 1)
    assert repr(one) == f"Page({URL!r}, status=203)"


def test_the_body_is_decoded_as_the_headers_say() -> None:
    assert page("Straße".encode("latin-1"), content_type="text/html; charset=ISO-8859-1").html == "Straße"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'{"a": ["\xc3\xa9"]}', "application/json"),
        (b'\xef\xbb\xbf{"a": ["\xc3\xa9"]}', "application/json"),
        ('{"a": ["é"]}'.encode("utf-16"), "application/json"),
        ('{"a": ["é"]}'.encode("latin-1"), "application/json; charset=latin1"),
    ],
)
def test_json_is_read_in_any_encoding(body: bytes, content_type: str) -> None:
    assert page(body, content_type=content_type).json() == {"a": ["é"]}


@pytest.mark.parametrize("body", [b"<html>", b"", b"{", b"[" * 100_000, b"\xff\xff\xff"])
def test_what_is_no_json_is_a_changed_page(body: bytes) -> None:
    with pytest.raises(PageChanged) as changed:
        page(body, content_type="application/json").json()
    assert changed.value.cause == "example.org: no JSON"


# ---------------------------------------------------------------- elements

MUG = (
    "<h1>\n Blue  <b>mug</b>\t</h1><p class=price data-cents=1200 hidden>12.00</p><p class=note></p><i>a</i><i> b </i>"
)


def test_texts_are_stripped_and_have_single_spaces() -> None:
    assert page(MUG).text("h1") == "Blue mug"
    assert page(MUG).texts("i") == ["a", "b"]
    assert page(MUG).texts(".none") == []


def test_an_element_that_is_empty_is_there() -> None:
    assert page(MUG).text(".note") == ""
    assert page(MUG).attr(".price", "hidden") == ""


def test_what_is_missing_is_a_changed_page_named_by_its_selector() -> None:
    with pytest.raises(PageChanged) as changed:
        page(MUG).text(".stock")
    assert (changed.value.cause, changed.value.selector) == ("example.org: no .stock", ".stock")
    with pytest.raises(PageChanged) as changed:
        page(MUG).attr(".stock", "id")
    assert changed.value.cause == "example.org: no .stock"
    with pytest.raises(PageChanged) as changed:
        page(MUG).attr(".price", "id")
    assert changed.value.cause == "example.org: no id of .price"


def test_a_default_stands_for_what_is_missing_even_none() -> None:
    assert page(MUG).text(".stock", default=None) is None
    assert page(MUG).text(".stock", default="0") == "0"
    assert page(MUG).attr(".stock", "id", default=None) is None
    assert page(MUG).attr(".price", "id", default="x") == "x"
    assert page(MUG).text("h1", default="x") == "Blue mug"


def test_attributes_and_elements_can_be_had() -> None:
    one = page(MUG)
    assert one.attr(".price", "data-cents") == "1200"
    assert [node.tag for node in one.select("i")] == ["i", "i"]
    assert one.first("h1 b") is not None
    assert one.first("h2") is None


def test_what_is_no_selector_is_refused() -> None:
    for call in (page(MUG).text, page(MUG).texts, page(MUG).select, page(MUG).first, page(MUG).links):
        with pytest.raises(ConfigError, match="is no CSS selector"):
            call("a[")


def test_a_handler_may_say_itself_that_a_page_has_changed() -> None:
    error = page(MUG).changed("the price is no number: 'ask us'", "price is no number", selector=".price")
    assert (str(error), error.cause) == (f"{URL}: the price is no number: 'ask us'", "example.org: price is no number")


# ---------------------------------------------------------------- links


def test_links_are_absolute_canonical_and_once_each() -> None:
    body = """<a href="2">a</a> <a href="/shop/2#top">again</a> <a href="HTTPS://Example.ORG:443/x?utm_source=y">b</a>
    <area href="//example.net/y"><link rel=next href="?page=2">
    <link rel=canonical href="/c"><link rel=stylesheet href=s>"""
    assert urls(page(body).links()) == [
        "https://example.org/shop/2",
        "https://example.org/x",
        "https://example.net/y",
        "https://example.org/shop/1?page=2",
    ]


def test_what_is_no_http_url_is_left_out() -> None:
    body = """<a href="mailto:a@b"><a href="javascript:x()"><a href="tel:1"><a href="data:,x"><a href=""><a href="#a">
    <a><a href><a href="http://"><a href="https://u:p@example.org/"><a href="/ok">"""
    assert urls(page(body).links()) == ["https://example.org/ok"]


def test_a_selector_picks_elements_or_what_is_within_them() -> None:
    body = """<nav><a href="/nav">n</a><div><a href="/deep">d</a></div></nav><a class=next href="/2">next</a>
    <link rel=next href="/l">"""
    assert urls(page(body).links("nav")) == ["https://example.org/nav", "https://example.org/deep"]
    assert urls(page(body).links(".next")) == ["https://example.org/2"]
    assert urls(page(body).links("link[rel=next]")) == ["https://example.org/l"]
    assert urls(page(body).links("a.last")) == []


def test_links_carry_what_they_are_given() -> None:
    (link,) = page("<a href=/2>").links("a", priority=5, data={"rank": 1})
    assert link == Link("https://example.org/2", 5, {"rank": 1})
    assert page().follow("3", priority=-1, data={"x": 2}) == Link("https://example.org/shop/3", -1, {"x": 2})


@pytest.mark.parametrize(
    "head", ['<base href="/other/">', '<base target=_top><base href="/other/"><base href="/third/">']
)
def test_a_base_is_honoured(head: str) -> None:
    one = page(f"{head}<a href=2>", final_url="https://example.org/moved/here")
    assert urls(one.links()) == ["https://example.org/other/2"]
    assert one.follow("3").url == "https://example.org/other/3"


@pytest.mark.parametrize("head", ["", "<base>", '<base href="javascript:x">', '<base href="http://">'])
def test_without_a_usable_base_links_are_relative_to_where_the_page_was_found(head: str) -> None:
    one = page(f"{head}<a href=2>", final_url="https://example.org/moved/here")
    assert urls(one.links()) == ["https://example.org/moved/2"]


def test_links_that_are_not_to_be_followed_are_left_out() -> None:
    body = '<a rel="external NoFollow" href=/a>a</a><a rel=noopener href=/b>b</a>'
    assert urls(page(body).links()) == ["https://example.org/b"]
    assert urls(page(body).links("a")) == ["https://example.org/b"]
    assert page(body).follow("/a").url == "https://example.org/a"


@pytest.mark.parametrize(
    "rules", ["nofollow", "NOINDEX, NoFollow", "none", "noindex,nofollow,noarchive", "noindex nofollow"]
)
def test_a_page_that_asks_not_to_be_followed_has_no_links(rules: str) -> None:
    assert urls(page(f'<meta name=Robots content="{rules}"><a href=/a>').links()) == []
    assert urls(page("<a href=/a>", headers={"x-robots-tag": rules}).links()) == []


@pytest.mark.parametrize(
    "rules", ["noindex", "all", "", "index, follow", "otherbot: nofollow", "max-snippet:-1, noindex"]
)
def test_other_rules_for_robots_leave_the_links(rules: str) -> None:
    assert urls(page("<a href=/a>", headers={"x-robots-tag": rules}).links()) == ["https://example.org/a"]
    assert urls(page(f'<meta name=robots content="{rules}"><a href=/a>').links()) == ["https://example.org/a"]


@pytest.mark.parametrize("content_type", ["image/png", "application/pdf", "application/json", "text/plain"])
def test_what_is_no_html_has_no_links(content_type: str) -> None:
    one = page('<base href="/x/"><a href="/a">', content_type=content_type)
    assert urls(one.links()) == []
    assert one.follow("2").url == "https://example.org/shop/2"


@pytest.mark.parametrize("url", ["mailto:a@b", "javascript:x()", "http://", "https://u:p@example.org/", "x" * 9_000])
def test_following_what_is_no_http_url_is_invalid(url: str) -> None:
    with pytest.raises(Invalid, match="is no http URL") as refused:
        page().follow(url)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("options", [{"priority": True}, {"priority": 1.5}, {"data": [1]}])
def test_options_of_links_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="must be a"):
        page("<a href=/a>").links(**options)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="must be a"):
        page().follow("/a", **options)  # type: ignore[arg-type]


def test_items_have_ids_that_stay() -> None:
    item = Item(item_id("0000-11", 3), URL, {"name": "Blue mug"})
    assert (item.id, item.url, item.data) == ("0000-11-3", URL, {"name": "Blue mug"})


# ---------------------------------------------------------------- hostile pages


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0" * 100_000,
        bytes(range(256)) * 400,
        b"%PDF-1.7\n" + bytes(range(128, 256)) * 1_000,
        b"<" * 100_000,
        b"<!--" * 50_000,
        b"&" * 100_000,
        b"<a href='" * 5_001,
        "<a href='/\ud800'>\udfff".encode("utf-8", "surrogatepass"),
        b"<a href='/\xff\xfe'>\x00<b",
        b"<template>" * 15_000,
        b"<table><tr><td>" * 6_000,
    ],
)
def test_no_input_brings_the_process_down(body: bytes) -> None:
    one = page(body, content_type="text/html")
    list(one.links())
    one.texts("body")
    one.text(".none", default=None)
    assert isinstance(one.html, str)
    assert one.tree.html is not None


def test_a_page_that_would_be_parsed_for_ever_is_refused() -> None:
    one = page(b"<div>" * 200_000)
    for call in (one.links, lambda: one.text("h1"), lambda: one.follow("/x")):
        with pytest.raises(PageRefused) as refused:
            call()
        assert refused.value.cause == "example.org: nested too deeply"
