from __future__ import annotations

from uuid import UUID

import pytest
from yarl import URL

from holdfast.crawl.urls import LONGEST, TRACKING, Links, canonical, domain_of, page_id

BASE = "https://example.org/shop/list.html?page=2"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.org", "https://example.org/"),
        ("HTTPS://EXAMPLE.ORG/Path", "https://example.org/Path"),
        ("https://example.org.", "https://example.org/"),
        ("https://example.org?x=1", "https://example.org/?x=1"),
        ("https://example.org/a#part", "https://example.org/a"),
        ("https://example.org/a?", "https://example.org/a"),
        ("https://example.org/a?#", "https://example.org/a"),
        ("https://example.org/a?b=1&a=2&b=0", "https://example.org/a?b=1&a=2&b=0"),
        ("https://example.org/a?x=1&&y=", "https://example.org/a?x=1&&y="),
        # ports
        ("http://example.org:80/", "http://example.org/"),
        ("https://example.org:443/", "https://example.org/"),
        ("https://example.org:/", "https://example.org/"),
        ("https://example.org:00443/", "https://example.org/"),
        ("http://example.org:443/", "http://example.org:443/"),
        ("https://example.org:80/", "https://example.org:80/"),
        ("http://127.0.0.1:8080/a", "http://127.0.0.1:8080/a"),
        ("http://example.org:65535/", "http://example.org:65535/"),
        # percent-encoding
        ("https://example.org/%7euser/%41%2d", "https://example.org/~user/A-"),
        ("https://example.org/%41%7E", "https://example.org/A~"),
        ("https://example.org/?%41=%2D", "https://example.org/?A=-"),
        ("https://example.org/a%2fb%2Fc", "https://example.org/a%2Fb%2Fc"),
        ("https://example.org/a%3fb", "https://example.org/a%3Fb"),
        ("https://example.org/a%2Fb", "https://example.org/a%2Fb"),
        ("https://example.org/100%", "https://example.org/100%25"),
        ("https://example.org/%zz%4", "https://example.org/%25zz%254"),
        ("https://example.org/%%34%31", "https://example.org/%2541"),
        ("https://example.org/%2541", "https://example.org/%2541"),
        ("https://example.org/a b", "https://example.org/a%20b"),
        ("https://example.org/größe?farbe=grün", "https://example.org/gr%C3%B6%C3%9Fe?farbe=gr%C3%BCn"),
        ("https://example.org/gr%c3%b6%c3%9fe", "https://example.org/gr%C3%B6%C3%9Fe"),
        ("https://example.org/?a[]=1|2", "https://example.org/?a%5B%5D=1%7C2"),
        ("https://example.org/?q=a+b%20c", "https://example.org/?q=a+b%20c"),
        ("https://example.org/?next=/a/../b?c", "https://example.org/?next=/a/../b?c"),
        ("https://example.org/\x00\x7f", "https://example.org/%00%7F"),
        # dot segments
        ("https://example.org/a/./b/../c", "https://example.org/a/c"),
        ("https://example.org/../../a", "https://example.org/a"),
        ("https://example.org/a/..", "https://example.org/"),
        ("https://example.org/a/b/.", "https://example.org/a/b/"),
        ("https://example.org/a/%2e%2E/b", "https://example.org/b"),
        ("https://example.org/.well-known/x", "https://example.org/.well-known/x"),
        ("https://example.org/a/...", "https://example.org/a/..."),
        ("https://example.org//a//b", "https://example.org//a//b"),
        ("https://example.org/a//../b", "https://example.org/a/b"),
        # as browsers read them
        ("  https://example.org/a \n", "https://example.org/a"),
        ("\x00\x1fhttps://example.org/\x0b", "https://example.org/"),
        ("ht\ttps://exam\nple.org/a\r\nb", "https://example.org/ab"),
        ("https:\\\\example.org\\a\\b?c\\d", "https://example.org/a/b?c%5Cd"),
        ("https:example.org/a", "https://example.org/a"),
        ("https:///example.org/a", "https://example.org/a"),
        # hosts
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://BÜCHER.example/", "https://xn--bcher-kva.example/"),
        ("https://b%C3%BCcher.example/", "https://xn--bcher-kva.example/"),
        ("https://straße.example/", "https://xn--strae-oqa.example/"),
        ("https://i❤.example/", "https://xn--i-7iq.example/"),
        ("https://xn--i-7iq.example/a", "https://xn--i-7iq.example/a"),
        ("https://my_shop.XN--BCHER-KVA.example/", "https://my_shop.xn--bcher-kva.example/"),
        ("https://\uff45xample\u3002org/", "https://example.org/"),
        ("https://ex%61mple.org/", "https://example.org/"),
        ("https://my_shop.example.org/", "https://my_shop.example.org/"),
        ("http://0x7f000001/", "http://0x7f000001/"),
        ("http://2130706433/", "http://2130706433/"),
        ("http://0177.0.0.1/", "http://0177.0.0.1/"),
        ("http://[::1]:8080/a", "http://[::1]:8080/a"),
        ("http://[2001:DB8:0:0:1:0:0:1]:80/", "http://[2001:db8::1:0:0:1]/"),
        ("http://[0:0:0:0:0:0:0:0]/", "http://[::]/"),
        ("http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"),
    ],
)
def test_a_url_has_one_spelling(url: str, expected: str) -> None:
    assert canonical(url) == expected
    assert canonical(expected) == expected
    assert str(URL(expected, encoded=True)) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "   ",
        "/path",
        "page.html",
        "//example.org/",
        "#top",
        "example.org/a",
        "javascript:void(0)",
        "JavaScript:alert(1)",
        "java\nscript:alert(1)",
        "mailto:a@example.org",
        "data:text/html,hello",
        "tel:+4930123",
        "file:///etc/passwd",
        "gopher://example.org/",
        "ftp://example.org/",
        "http://",
        "http:///",
        "https://user@example.org/",
        "https://user:password@example.org/",
        "https://@example.org/",
        "https://example.org%5C@other.example/",
        "https://a..example.org/",
        "https://.example.org/",
        "https://example.org../",
        "https://exa mple.org/",
        "https://exa%2Fmple.org/",
        "https://exa%00mple.org/",
        "https://ex%ffample.org/",
        "https://℀.example/",
        "https://exa<mple.org/",
        "https://*.example.org/",
        f"https://{'a' * 64}.example/",
        f"https://{'a.' * 130}example/",
        f"https://{'ü' * 300}.example/",
        f"https://{'ü' * 63}.example/",
        "https://\u00ad/",
        "https://xn--ü.example/",
        "https://xn--bcher-kvajavascript/",
        "https://www.xn--bcher-kvajavascript.example/a",
        "https://example.org:0/",
        "https://example.org:65536/",
        "https://example.org:99999/",
        "https://example.org:123456/",
        "https://example.org:-1/",
        "https://example.org:8o/",
        "https://example.org:\uff18\uff10/",
        "https://example.org:80:80/",
        "http://::1/",
        "http://[::1",
        "http://[::1]x/",
        "http://[::g]/",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[127.0.0.1]/",
        "https://example.org/\ud800",
        "https://\ud800.example/",
    ],
)
def test_what_cannot_be_fetched_is_no_url(url: str) -> None:
    assert canonical(url) is None


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("", BASE),
        ("#top", BASE),
        (" ", BASE),
        ("?", "https://example.org/shop/list.html"),
        ("?page=3", "https://example.org/shop/list.html?page=3"),
        ("/p/12", "https://example.org/p/12"),
        ("/", "https://example.org/"),
        ("/p?utm_source=x", "https://example.org/p"),
        ("/a:b@c", "https://example.org/a:b@c"),
        ("item.html", "https://example.org/shop/item.html"),
        ("item.html?a=1", "https://example.org/shop/item.html?a=1"),
        (".", "https://example.org/shop/"),
        ("./item", "https://example.org/shop/item"),
        ("..", "https://example.org/"),
        ("../item", "https://example.org/item"),
        ("../../../item", "https://example.org/item"),
        ("a/../b", "https://example.org/shop/b"),
        ("a/.", "https://example.org/shop/a/"),
        ("%2e%2e/item", "https://example.org/item"),
        ("//other.example/a", "https://other.example/a"),
        ("\\\\other.example\\a", "https://other.example/a"),
        ("/\\other.example", "https://other.example/"),
        ("///other.example/a", "https://other.example/a"),
        ("//", None),
        ("https:item", "https://example.org/shop/item"),
        ("https:/item", "https://example.org/item"),
        ("http:other.example", "http://other.example/"),
        ("http://other.example", "http://other.example/"),
        ("https://other.example:8443/x", "https://other.example:8443/x"),
        ("httpd.html", "https://example.org/shop/httpd.html"),
        ("a:b", None),
        ("a/b:c", "https://example.org/shop/a/b:c"),
        ("mailto:a@example.org", None),
        ("item\n.html", "https://example.org/shop/item.html"),
    ],
)
def test_a_link_is_read_from_its_page(href: str, expected: str | None) -> None:
    assert canonical(href, BASE) == expected
    assert Links(BASE).canonical(href) == expected


def test_a_page_without_a_usable_address_has_absolute_links_alone() -> None:
    links = Links("about:blank")
    assert links.canonical("https://example.org/a") == "https://example.org/a"
    assert links.canonical("HTTPS://example.org/a b") == "https://example.org/a%20b"
    assert [links.canonical(href) for href in ("/a", "a", "", "//example.org/")] == [None] * 4


def test_a_base_need_not_be_canonical() -> None:
    assert canonical("b", "HTTPS://Example.org:443/x/../a/ü") == "https://example.org/a/b"


def test_tracking_parameters_are_left_out_and_all_others_kept_in_their_order() -> None:
    tracked = "&".join(f"{name}=1" for name in sorted(TRACKING))
    assert canonical(f"https://example.org/?z=1&{tracked}&a=2") == "https://example.org/?z=1&a=2"
    assert canonical(f"https://example.org/?{tracked}") == "https://example.org/"
    assert canonical("https://example.org/?UTM_Source=a&utm%5Fmedium=b&utm_anything") == "https://example.org/"
    assert canonical("/?a&fbclid", "https://example.org/") == "https://example.org/?a"
    kept = "https://example.org/?my_utm_source=1&gclids=2&q=utm_source&gcli=3"
    assert canonical(kept) == kept


def test_a_url_of_more_than_the_longest_is_none() -> None:
    start = "https://example.org/"
    longest = start + "a" * (LONGEST - len(start))
    assert canonical(longest) == longest
    assert canonical(longest + "a") is None
    assert canonical(longest[len("https://example.org") :] + "a", start) is None
    assert canonical("https://example.org/" + "ü" * 400) is None
    assert canonical(f"{longest}#{'b' * 500}") == longest
    assert canonical(f"{longest}?utm_source={'b' * 500}") == longest
    assert canonical(f"https://example.org/#{'b' * 5_000}") is None  # nor is a text of more than twice as much read


def test_the_domain_has_the_port_where_it_is_not_the_schemes_own() -> None:
    assert domain_of("https://example.org/a?b=//c/") == "example.org"
    assert domain_of("http://127.0.0.1:8080/") == "127.0.0.1:8080"
    assert domain_of("http://[::1]:8080/a") == "[::1]:8080"


def test_the_id_of_a_page_is_the_same_for_ever() -> None:
    url = "https://example.org/p/12"
    assert page_id("shop", url) == "a8284c2c-295b-8436-8b7f-0ba02eeb2b02"
    assert UUID(page_id("shop", url)).version == 8
    assert UUID(page_id("laden-ü", url)).variant == "specified in RFC 4122"
    urls = (url, f"{url}/", "https://example.org/")
    assert len({page_id(crawl, one) for crawl in ("shop", "shop2", "") for one in urls}) == 9
