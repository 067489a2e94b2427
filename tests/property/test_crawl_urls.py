"""URLs and patterns against the libraries that will read them, and against a plain matcher."""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit
from uuid import UUID

from hypothesis import assume, example, given
from hypothesis import strategies as st
from yarl import URL

from holdfast.crawl.patterns import Pattern
from holdfast.crawl.urls import LONGEST, Links, canonical, domain_of, page_id

BASE = "https://example.org/shop/list.html?page=2"
PIECES = """
    https:// http:// https: http: HTTP:// // / \\ . .. ./ ../ ? & = # % %2e %2F %41 %zz %C3 %c3%bc : :80 :443 :8080 @
    [::1] [ ] example.org EXAMPLE.org. bücher.example ß xn--bcher-kva 127.0.0.1 0x7f a b Z 7 - _ ~ ! $ ' ( ) * + , ; < >
    " ^ ` { | } utm_source=x gclid fbclid=1 page=2 ❤ \u200d \u00ad ℀ 。 javascript: \x00 \x7f \ud800
    """.split()
HREFS = st.one_of(st.lists(st.sampled_from([*PIECES, " ", "\n", "\t"]), max_size=12).map("".join), st.text(max_size=40))
SHAPE = re.compile(
    r"https?://(?:[a-z0-9_.-]+|\[[0-9a-f:]+\])(?::[1-9][0-9]*)?/[A-Za-z0-9._~!$&'()*+,;=:@/%-]*(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]+)?"
)


@given(href=HREFS, has_base=st.booleans())
@example(href="https://example.org/%%34%31", has_base=False)
@example(href="%2e%2e/%2E%2e/a", has_base=True)
@example(href="https://xn--bcher-kvajavascript/", has_base=False)
@example(href="https://xn--bcher-kvajavascript/", has_base=True)
def test_canonical_twice_is_canonical_once_and_every_library_reads_the_same(href: str, has_base: bool) -> None:
    url = canonical(href, BASE if has_base else None)
    if url is None:
        return
    assert SHAPE.fullmatch(url)
    assert len(url) <= LONGEST
    assert canonical(url) == url
    assert canonical(url, "http://other.example/x/") == url
    assert Links(BASE).canonical(url) == url
    assert urlsplit(url).geturl() == url
    sent = URL(url, encoded=True)
    assert str(sent) == url
    parts = urlsplit(url)
    assert (sent.scheme, sent.raw_path_qs) == (parts.scheme, parts.path + ("?" + parts.query if parts.query else ""))
    assert sent.host is not None
    assert sent.raw_host == parts.hostname
    assert parts.netloc == domain_of(url)
    assert (parts.username, parts.password, parts.fragment) == (None, None, "")
    assert parts.port != {"http": 80, "https": 443}[parts.scheme]
    assert not {".", ".."} & set(parts.path.split("/"))


WORDS = st.text("abcZ09-_~.+!", min_size=1, max_size=6)
PATHS = st.lists(st.one_of(WORDS, st.sampled_from([".", "..", "ü", "a b", "%2F", "%7e"])), max_size=6).map("/".join)


@given(path=PATHS, is_rooted=st.booleans(), query=st.lists(st.tuples(WORDS, WORDS), max_size=3))
@example(path="../../x", is_rooted=False, query=[])
def test_links_are_joined_as_urllib_does_and_mean_the_same_when_decoded(
    path: str, is_rooted: bool, query: list[tuple[str, str]]
) -> None:
    href = ("/" if is_rooted else "") + path
    assume(href and not href.startswith("//"))
    if query:
        href += "?" + "&".join(f"{name}={value}" for name, value in query)
    found = canonical(href, BASE)
    expected = urlsplit(urljoin(BASE, href))
    assert found is not None
    parts = urlsplit(found)
    assert unquote(parts.path) == unquote(expected.path)
    assert parse_qsl(parts.query) == parse_qsl(expected.query)
    assert found.count("%2F") == href.partition("?")[0].count("%2F") or ".." in href  # never decoded into a separator


@given(
    crawls=st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=2, max_size=2),
    ends=st.tuples(WORDS, WORDS),
)
def test_pages_of_two_crawls_or_two_urls_are_two_ids(crawls: list[str], ends: tuple[str, str]) -> None:
    pages = {(crawl, f"https://example.org/{end}") for crawl in crawls for end in ends}
    ids = {page_id(crawl, url) for crawl, url in pages}
    assert len(ids) == len(pages)
    assert {UUID(one).version for one in ids} == {8}


GLOBS = st.lists(st.sampled_from(["a", "b", "/", "/", "*", "**", "/**/", "ab", "?", "&"]), max_size=9).map("".join)
RESTS = st.text("ab/?&", max_size=14)


@given(glob=GLOBS, rest=RESTS)
@example(glob="**/a*b/**/b", rest="ab/b")
@example(glob="a**b**a*b", rest="aabbab")
@example(glob="**/**/a", rest="a")
def test_patterns_match_what_a_plain_matcher_does(glob: str, rest: str) -> None:
    path, mark, query = f"/{glob}".partition("?")
    assume("***" not in path + mark + query)
    url = f"https://example.org/{rest}"
    pattern = Pattern(path + mark + query)
    url_path, _, url_query = url.partition("?")
    url_path = url_path.removeprefix("https://example.org")
    has_same_query = not mark or ("?" in url and plainly(query, url_query, "&"))
    assert pattern.matches(url) == (plainly(path, url_path, "/") and has_same_query)


def plainly(glob: str, text: str, separator: str) -> bool:
    """Every way to share the text out among the wildcards is tried."""

    @cache
    def tried(at: int, place: int) -> bool:
        if at == len(glob):
            return place == len(text)
        if separator == "/" and glob.startswith("/**/", at - 1):
            return any(tried(at + 3, end) for end in range(place, len(text) + 1) if text[end - 1] == "/")
        if glob.startswith("**", at):
            return any(tried(at + 2, end) for end in range(place, len(text) + 1))
        if glob[at] == "*":
            return any(tried(at + 1, end) for end in range(place, len(text) + 1) if separator not in text[place:end])
        return place < len(text) and text[place] == glob[at] and tried(at + 1, place + 1)

    return tried(0, 0)
