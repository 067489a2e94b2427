from __future__ import annotations

import pytest

from holdfast.crawl.patterns import Pattern, any_of
from holdfast.errors import ConfigError


@pytest.mark.parametrize(
    ("pattern", "wanted", "unwanted"),
    [
        (
            "https://example.org/**",
            ["https://example.org/", "https://example.org/a/b?c=d"],
            ["http://example.org/", "https://example.org:8443/", "https://www.example.org/", "https://example.orgs/"],
        ),
        (
            "https://example.org",
            ["https://example.org/", "https://example.org/a/b?c"],
            ["https://example.org.evil.example/"],
        ),
        ("https://example.org/", ["https://example.org/", "https://example.org/?a=1"], ["https://example.org/a"]),
        ("HTTPS://Example.org:443/**", ["https://example.org/A"], ["http://example.org:443/"]),
        ("http://example.org:80/**", ["http://example.org/A"], ["https://example.org/"]),
        (
            "example.org",
            ["https://example.org/a", "http://example.org/"],
            ["https://example.org:8080/", "https://a.example.org/"],
        ),
        ("example.org/a?u=https://b/c", ["http://example.org/a?u=https://b/c"], ["https://b/c"]),
        ("example.org/a/*", ["http://example.org/a/b"], ["http://example.org/a/b/c", "http://other.example/a/b"]),
        ("*://example.org/a", ["http://example.org/a", "https://example.org/a"], ["https://example.org/b"]),
        (
            "*.example.org",
            ["https://www.example.org/a/b"],
            [
                "https://example.org/",
                "https://a.b.example.org/",
                "https://evil.example/.example.org/",
                "https://a.example.org:81/",
            ],
        ),
        (
            "**.example.org",
            ["https://a.example.org/", "https://a.b.example.org/x"],
            ["https://example.org/", "https://evil.example/a.example.org/", "https://evilexample.org/"],
        ),
        (
            "shop-*.example.org:*",
            ["http://shop-1.example.org:81/"],
            ["http://shop-1.example.org/", "http://shop-1.x.example.org:1/"],
        ),
        ("127.0.0.1:8080", ["http://127.0.0.1:8080/a"], ["http://127.0.0.1/a", "http://127.0.0.1:80801/a"]),
        ("http://[::1]:8080/**", ["http://[::1]:8080/a"], ["http://[::2]:8080/a"]),
        ("bücher.example", ["https://xn--bcher-kva.example/"], ["https://bcher.example/"]),
        (
            "/shop/**",
            ["https://example.org/shop/", "http://a.example/shop/b/c?d"],
            ["https://example.org/shop", "https://example.org/a/shop/"],
        ),
        (
            "/p/*",
            ["https://example.org/p/12", "https://example.org/p/?a", "https://example.org/p/1?b=/c"],
            ["https://example.org/p/1/2"],
        ),
        ("/**.pdf", ["https://example.org/a.pdf", "https://example.org/a/b.pdf?c"], ["https://example.org/a?b=c.pdf"]),
        (
            "/**/login",
            ["https://example.org/login", "https://example.org/a/b/login?next=/"],
            ["https://example.org/xlogin", "https://example.org/login/a"],
        ),
        ("**/login", ["https://example.org/login", "https://example.org/a/login"], ["https://example.org/xlogin"]),
        ("/a**/b", ["https://example.org/a/b", "https://example.org/ax/y/b"], ["https://example.org/b"]),
        (
            "/list?page=*",
            ["https://example.org/list?page=2"],
            ["https://example.org/list", "https://example.org/list?page=2&x=1"],
        ),
        (
            "/**?**sort=*",
            ["https://example.org/a/b?c=1&sort=up", "https://example.org/?sort="],
            ["https://example.org/a?sort=up&b=1"],
        ),
        (
            "/größe/a b".replace(" ", "%20"),
            ["https://example.org/gr%C3%B6%C3%9Fe/a%20b"],
            ["https://example.org/gr/a%20b"],
        ),
        ("/a.b+(c)", ["https://example.org/a.b+(c)"], ["https://example.org/aXb+(c)"]),
        ("**", ["https://example.org/", "http://a.example:81/b?c"], []),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, wanted: list[str], unwanted: list[str]) -> None:
    glob = Pattern(pattern)
    assert [url for url in wanted if not glob.matches(url)] == []
    assert [url for url in unwanted if glob.matches(url)] == []


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "1 to 2000 characters"),
        (7, "1 to 2000 characters"),
        ("/" + "a" * 2000, "1 to 2000 characters"),
        ("/a b", "white space"),
        ("/a\n", "white space"),
        ("\\a", "backslashes"),
        ("/a#b", "#"),
        ("/a***b", "no ***"),
        ("*", "write **"),
        ("*.pdf", "/**.pdf"),
        ("*.JPG", "/**.jpg"),
        ("ftp://example.org/**", "http"),
        ("://example.org", "http"),
        ("user@example.org", "no host"),
        ("exa%20mple.org", "no host"),
        ("example.org?page=1", "no host"),
        ("https:///a", "no host"),
        ("a..example.org", "no host"),
        (".example.org", "no host"),
        ("bü*.example", "host label"),
        ("/a/../b", "segments"),
        ("/a/%2e/b", "segments"),
        ("/\ud800", "surrogates"),
    ],
)
def test_a_pattern_that_cannot_match_is_refused_in_one_line(pattern: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Pattern(pattern, field="deny")
    line = str(caught.value)
    assert line.startswith("deny=")
    assert why in line
    assert "\n" not in line


def test_a_hostile_url_does_not_make_a_pattern_slow() -> None:
    # Each of these would take years if every choice were tried; the time limit of the tests is what fails.
    url = "https://example.org/" + "a" * 1_400
    for text in ("/" + "**a" * 60 + "**z", "/" + "*a" * 60 + "z", "/**" + "a*" * 60 + "/z", "/" + "**/*a" * 60 + "z"):
        assert not Pattern(text).matches(url)
    assert not Pattern("/" + "**/*a" * 60 + "/z").matches("https://example.org/" + "aa/" * 400)


def test_several_patterns_are_one_question() -> None:
    matches = any_of([Pattern("/a"), Pattern("/b/**")])
    assert matches is not None
    assert [bool(matches(f"https://example.org/{path}")) for path in ("a", "b/c", "c", "ab")] == [
        True,
        True,
        False,
        False,
    ]
    assert any_of([]) is None


def test_patterns_of_one_text_are_equal() -> None:
    assert {Pattern("/a"), Pattern("/a"), Pattern("/b")} == {Pattern("/b"), Pattern("/a")}
    assert Pattern("/a") != "/a"
    assert repr(Pattern("/a")) == "Pattern('/a')"
