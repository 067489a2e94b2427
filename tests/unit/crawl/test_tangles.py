from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from msgspec import json

from holdfast.crawl import tangles
from holdfast.crawl.tangles import MOST_TAGS, eased, tangle_of
from holdfast.crawl.trees import parse

DEEP = "nested too deeply"
OPEN = "too many formatting elements that are not closed"
WIDE = "too many attributes in one tag"


def each(template: str, count: int) -> str:
    return "".join(template.replace("#", str(n)) for n in range(count))


TANGLED: dict[str, tuple[Callable[[], str], str]] = {
    "divs": (lambda: "<div>" * 100_000, DEEP),
    "divs with their end tags": (lambda: "<div>" * 50_000 + "</div>" * 50_000, DEEP),
    "end tags of others": (lambda: "<div></span>" * 40_000, DEEP),
    "end tags out of reach": (lambda: "<div><table><tr><td></div>" * 20_000, DEEP),
    "end tags in comments": (lambda: "<div><!--</div>-->" * 20_000, DEEP),
    "end tags in quotes": (lambda: "<div><br a='></div>'>" * 20_000, DEEP),
    "end tags in texts": (lambda: "<div><textarea></div></textarea>" * 20_000, DEEP),
    "end tags in scripts in comments": (lambda: "<div><script><!--<script></script></div>--></script>" * 12_000, DEEP),
    "end tags in data": (lambda: "<div><svg><![CDATA[></div>]]></svg>" * 20_000, DEEP),
    "end tags in tables": (lambda: "<div><table></div></table>" * 20_000, DEEP),
    "end tags of forms": (lambda: "<form><div></form>" * 20_000, DEEP),
    "end tags in descriptions": (lambda: "<svg><desc><x-y></svg>" * 20_000, DEEP),
    "end tags in drawings": (lambda: "<div><svg></div></svg>" * 20_000, DEEP),
    "end tags through others": (lambda: "<span><div></span></div>" * 20_000, DEEP),
    "starts in quotes that are none": (lambda: '<x a==">' + "<div>" * 40_000, DEEP),
    "capitals": (lambda: "<DIV></Span>" * 40_000, DEEP),
    "names of its own": (lambda: each("<x-#>", 40_000), DEEP),
    "lists": (lambda: "<ul><li>" * 40_000, DEEP),
    "templates": (lambda: "<template>" * 40_000, DEEP),
    "drawings": (lambda: "<svg><g>" * 40_000, DEEP),
    "drawings without a drawing": (lambda: "<path/><g/>" * 40_000, DEEP),
    "a script that is none": (lambda: "<!--<script>--></script>" + "<div>" * 40_000, DEEP),
    "copies of fonts": (lambda: "<p>" + each("<font size=#>", 3_000) + "</p>" + "<p>x" * 3_000, OPEN),
    "copies, closed at the end": (
        lambda: "<p>" + each("<b id=#>", 3_000) + "</p>" + "<p>x" * 3_000 + "</b>" * 3_000,
        OPEN,
    ),
    "copies behind objects": (lambda: each("<b id=#><object></b></object>", 3_000) + "<p>x" * 3_000, OPEN),
    "copies behind cells": (lambda: each("<td><b id=#></td>", 3_000) + "<p>x" * 3_000, OPEN),
    "copies in capitals": (lambda: "<P>" + each("<STRONG id=#>", 3_000) + "</P>" + "<p>x" * 3_000, OPEN),
    "copies with an end tag in a comment": (lambda: each("<i id=#><!--</i>-->", 3_000) + "<p>x" * 3_000, OPEN),
    "copies with an end tag in a choice": (lambda: each("<i id=#><select></i></select>", 3_000) + "<p>x" * 3_000, OPEN),
    "copies in quotes that are none": (lambda: '<x a==">' + each("<i id=#>", 3_000) + '"' + "<p>x" * 3_000, OPEN),
    "copies with an end tag in quotes": (lambda: each('<i a="></i>" b=#>', 3_000) + "<p>x" * 3_000, OPEN),
    "attributes": (lambda: f"<div {each('a# ', 50_000)}>", WIDE),
    "attributes with values": (lambda: f"<div {each('a#=1 ', 50_000)}>", WIDE),
    "attributes with quoted ends": (lambda: "<div " + each('a#=">" ', 50_000), WIDE),
    "attributes that look like tags": (
        lambda: "<div " + each("a#='<p>'", 900) + each("a#", 60_000).replace("a", " a"),
        WIDE,
    ),
    "attributes behind slashes": (lambda: f"<div {each('a#/', 50_000)}>", WIDE),
    "attributes that are quotes": (lambda: f"<div {each(chr(34) + 'a#' + chr(34) + ' ', 50_000)}>", WIDE),
}

DEFUSED = {"copies in quotes that are none", "end tags in scripts in comments", "starts in quotes that are none"}


@pytest.mark.parametrize("name", TANGLED)
def test_what_would_take_for_ever_is_told_quickly(name: str) -> None:
    make, what = TANGLED[name]
    html = make()
    assert tangle_of(html) == what
    if tangle_of(eased(html)) != what:
        assert name in DEFUSED
        parse(html, url="https://example.org/", domain="example.org")  # for minutes, were it not eased


def article(n: int) -> str:
    return (
        f'<article class="card" data-x="a > b"><h2><a href="/p/{n}">Product <b>no. {n}</b></a></h2><p>Some <i>text</i>,'
        f' <strong>and <a href="/q/{n}">more</a></strong><br>of it<img src="/i/{n}.png" alt="x"><ul><li>one<li>two</ul>'
        f"<p>unclosed<table><tr><td>a<td><b>b</b></table></article>"
    )


def test_a_long_page_as_people_write_it_is_parsed() -> None:
    html = f"<html><body><main>{''.join(map(article, range(2_000)))}</main></body></html>"
    assert html.count("<") > 30_000
    assert tangle_of(html) == ""
    assert len(parse(html, url="https://example.org/", domain="example.org").css("article")) == 2_000


def test_icons_and_texts_in_scripts_are_no_tangle() -> None:
    icon = '<a href="/x"><svg viewBox="0 0 1 1"><title>x</title><path d="M0 0"/><use href="#a" /></svg></a>'
    strings = "<b>x<\\/b><span>y<\\/span>"
    chart = f"<svg id=chart>{'<circle r=1 />' * 2_000}</svg>"
    html = (
        f'<div id=icons>{icon * 4_000}</div>{chart}<script id=data>["{strings * 3_000}"]</script><div id=last>end</div>'
    )
    assert tangle_of(html) != ""
    tree = parse(html, url="https://example.org/", domain="example.org")
    assert len(tree.css("#icons svg > path + use")) == 4_000
    assert len(tree.css("#chart > circle")) == 2_000
    assert tree.css_first("body > #last") is not None


def test_what_is_eased_reads_the_same() -> None:
    html = '<script type="application/ld+json">{"a": "<b>x</b>"}</script><SCRIPT>a<b</SCRIPT><svg><path d="M/0"/></svg>'
    tree = parse(eased(html), url="https://example.org/", domain="example.org")
    script = tree.css_first("script")
    assert script is not None
    assert json.decode(script.text()) == {"a": "<b>x</b>"}
    assert [node.attributes for node in tree.css("svg > path")] == [{"d": "M/0"}]


@pytest.mark.parametrize(
    "start", ["<script ", "<path ", '<path "', '<b "', "<b x=", "<a b='<a ", "<x \"'", "<script></scrip", '<a b="']
)
def test_telling_and_easing_take_time_in_proportion(start: str) -> None:
    html = start * 60_000  # seconds, were it not so
    tangle_of(html)
    eased(html)


def test_too_many_tags_are_told_whatever_they_are() -> None:
    assert tangle_of("<p>" * (MOST_TAGS + 1)) == "too many tags"


def test_a_large_page_that_is_tangled_is_told_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    tokens = tangles._tokens

    class Counted:
        def finditer(self, html: str) -> Iterator[re.Match[str]]:
            for token in tokens.finditer(html):
                looked_at.append(token.start())
                yield token

    monkeypatch.setattr(tangles, "_tokens", Counted())
    assert tangle_of("<nobr><div>" * 50_000) == OPEN
    assert len(looked_at) < 100


def test_a_small_page_is_not_looked_at() -> None:
    assert tangle_of("<div>" * 1_000) == ""
    assert tangle_of(f"<div {each('a# ', 3_000)}>") == ""
