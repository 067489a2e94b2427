from __future__ import annotations

import pytest

from holdfast.crawl.patterns import Pattern
from holdfast.crawl.scope import LONGEST_PATH, Reason, Scope
from holdfast.crawl.urls import canonical
from holdfast.errors import ConfigError

ORDINARY = """
    / /index.html /about /about/ /de/ /de/de/ /a/b/c/d/e/f/g/h /shop/women/shoes/boots/leather/black/size-42/p/10023
    /2024/01/01/happy-new-year /2024/01/01/01/ /1/1/1 /2011/11/11/11-11-11/ /archive/2023/2023-05/2023-05-05/
    /wiki/Main_Page /wiki/Talk:Talk_page /wiki/%D0%9F%D1%80%D0%B8%D0%B2%D0%B5%D1%82 /wiki/C++_(language)
    /questions/11227809/why-is-a-sorted-array-faster /users/1234567/jon?tab=profile /t/go-go-go/12/34
    /r/python/comments/abc123/a_title/def456/ /user/repo/blob/main/src/main/java/org/example/main/Main.java
    /user/repo/tree/main/packages/core/src/core/index.ts /repo/-/blob/main/app/models/app/app.rb
    /pub/linux/linux/kernel/v6.x/ /debian/pool/main/libx/libxml2/libxml2_2.9.14.orig.tar.xz
    /maven2/org/apache/maven/maven/3.9.6/maven-3.9.6.pom /javadoc/org/example/example/package-summary.html
    /docs/3/library/re.html /docs/latest/reference/api/index.html#module /en/en-us/support/en/article-12
    /products?page=2 /products?page=2&sort=price&order=asc&min=10&max=200&color=red&size=m
    /search?q=a+b+c&hl=en&start=20 /search?f[]=1&f[]=2&f[]=3&f[]=4&f[]=5 /list?id=1&id=2&id=3
    /map/12/2200/1343.png /tiles/5/5/5.png /img/a/a1/a1b2c3.jpg /static/0/0/0/file.css /cal?year=2026&month=11&day=16
    /forum/viewtopic.php?f=2&t=1234&p=5678&sid=0a1b2c3d4e5f#p5678 /index.php?title=Special:Search&search=x&fulltext=1
    /p/12 /p/12/reviews /p/12/reviews/3 /category/a/category/b /tag/red/tag/blue/tag/green /a/1/b/1/c/1
    /news/world/europe/uk/politics/2026/11/16/story-title-that-is-rather-long-and-goes-on-and-on-and-on-1.5678901
    /hotel/de/berlin.de.html?checkin=2026-11-16&checkout=2026-11-18 /de/produkte/de/ /flights/BER/LHR/2026-11-16/BER
    /music/artist/album/artist/ /api/v1/v1/users /docs//double/slash /x//y//z /~user/public/~user/ /.well-known/x
    /dir/?C=N;O=D /dir/?C=M;O=A /feed/ /feed/atom/feed.xml /a/a /a/a/a /a/b/a/b /a/b/a/b/a /a/b/a/b/a/x /a/b/c/a/b/c
    /a/b/a/c/d/e/d/f/g/h/g/i/j/k/j /foo/foo/bar/
    /w/load.php?lang=en&modules=a%7Cb%7Cc&only=styles&skin=vector /cart/add/12?qty=1&return=/p/12?x=1
    /very/long/path/with/many/different/segments/that/are/all/not/the/same/and/thus/no/trap/at/last/1/2/3/4/5/6/7/8/9/10
    """.split()

TRAPS = [
    "/a/a/a/a",
    "/x/a/y/a/z/a/w/a",
    "/a/b/a/b/a/b",
    "/start/a/b/a/b/a/b/end?x=1",
    "/a/b/c/a/b/c/a/b/c/",
    "/shop/cart/login/cart/login/cart/login",
    "/calendar/2024/calendar/2024/calendar/2024",
    "//////a",
    "/" + "/".join(map(str, range(51))),
    "/list?" + "&".join(f"f{n}={n}" for n in range(31)),
]


def test_ordinary_links_are_no_traps() -> None:
    scope = Scope(seeds="https://example.org/")
    assert len(ORDINARY) >= 60
    urls = [canonical(path, "https://example.org/") for path in ORDINARY]
    assert [url for url in urls if url is None or scope.refuses(url)] == []


@pytest.mark.parametrize("path", TRAPS)
def test_a_trap_is_told_by_its_url(path: str) -> None:
    url = canonical(f"https://example.org{path}")
    assert url is not None
    assert Scope(seeds="https://example.org/").refuses(url) == "looks like a trap"


@pytest.mark.parametrize(
    "path",
    [
        "/" + "/".join(map(str, range(50))),
        "/" + "/".join(map(str, range(50))) + "/",
        "/list?" + "&".join(f"f{n}={n}" for n in range(30)),
        "/list?next=/a/a/a/a/a/a",
        "/a&b" * 3 + "&" * 40,
    ],
)
def test_what_is_just_within_the_limits_is_no_trap(path: str) -> None:
    assert not Scope(seeds="https://example.org/").refuses(f"https://example.org{path}")


def test_the_domains_of_the_seeds_are_wanted_over_either_scheme_and_nothing_else() -> None:
    scope = Scope(seeds=["https://Example.org/a", "http://127.0.0.1:8080/"])
    assert scope.domains == {"example.org", "127.0.0.1:8080"}
    answers = {
        "https://example.org/": "",
        "http://example.org/b?c": "",
        "http://127.0.0.1:8080/x": "",
        "https://www.example.org/": "other domain",
        "https://example.org:8080/": "other domain",
        "http://127.0.0.1/x": "other domain",
        "https://other.example/https://example.org/": "other domain",
    }
    assert {url: scope.refuses(url) for url in answers} == answers


def test_a_link_may_be_so_many_links_away_from_a_seed() -> None:
    scope = Scope(seeds="https://example.org/", max_depth=2)
    assert [scope.refuses("https://example.org/a", depth) for depth in range(4)] == ["", "", "", "too deep"]
    assert Scope(seeds="https://example.org/", max_depth=0).refuses("https://example.org/a", 1) == "too deep"
    assert not Scope(seeds="https://example.org/").refuses("https://example.org/a", 10_000)


def test_path_and_query_are_bounded_and_the_host_does_not_count() -> None:
    host = "https://" + "a." * 100 + "example"
    scope = Scope(seeds=host)
    longest = "/" + "b" * (LONGEST_PATH - 1)
    assert not scope.refuses(host + longest)
    assert scope.refuses(f"{host}{longest}b") == "too long"
    assert scope.refuses(f"{host}/?{longest}") == "too long"


@pytest.mark.parametrize(
    ("allow", "deny", "answers"),
    [
        (  # a host alone adds domains
            ["*.example.org"],
            [],
            {"https://example.org/a": "", "https://www.example.org/a": "", "https://other.example/": "other domain"},
        ),
        (  # a path alone narrows the crawl's domains
            ["/shop/**"],
            [],
            {
                "https://example.org/shop/a": "",
                "https://example.org/blog/a": "denied",
                "https://other.example/shop/a": "other domain",
            },
        ),
        (  # both
            ["*.example.org", "/shop/**"],
            [],
            {
                "https://example.org/shop/a": "",
                "https://www.example.org/shop/a": "",
                "https://www.example.org/blog": "denied",
                "https://other.example/shop/a": "other domain",
            },
        ),
        (  # a whole URL stands for itself
            ["https://other.example/a/**", "/shop/**"],
            [],
            {
                "https://other.example/a/b": "",
                "https://other.example/shop/b": "other domain",
                "https://example.org/shop/b": "",
                "https://example.org/a/b": "denied",
            },
        ),
        (["**", "/shop/**"], [], {"https://other.example/blog": ""}),
        (  # what is denied is denied, whatever else says so
            ["**"],
            ["/**/login", "*.ads.example"],
            {
                "https://anything.example/": "",
                "https://example.org/a/login": "denied",
                "https://x.ads.example/": "denied",
            },
        ),
        ("/shop/**", "/shop/b", {"https://example.org/shop/a": "", "https://example.org/shop/b": "denied"}),
        ([], [Pattern("/b")], {"https://example.org/a": "", "https://example.org/b": "denied"}),
    ],
)
def test_patterns_widen_and_narrow_a_crawl(
    allow: str | list[str], deny: str | list[str], answers: dict[str, Reason]
) -> None:
    scope = Scope(seeds="https://example.org/", allow=allow, deny=deny)
    assert {url: scope.refuses(url) for url in answers} == answers


def test_a_crawl_may_be_of_all_domains() -> None:
    scope = Scope(seeds="https://example.org/", allow="*://**/shop/**")
    assert not scope.refuses("https://other.example/shop/a")
    assert scope.refuses("https://other.example/blog/a") == "other domain"


def test_the_domain_that_a_seed_redirects_to_is_wanted_too() -> None:
    scope = Scope(seeds="https://example.org/", allow="/a/**", deny="/a/b", max_depth=1)
    widened = scope.with_domain("www.example.org")
    assert scope.refuses("https://www.example.org/a/") == "other domain"
    assert widened.domains == {"example.org", "www.example.org"}
    assert not widened.refuses("https://www.example.org/a/")
    assert not widened.refuses("https://example.org/a/")
    assert widened.refuses("https://www.example.org/a/b") == "denied"
    assert widened.refuses("https://www.example.org/c") == "denied"
    assert widened.refuses("https://www.example.org/a/", 2) == "too deep"
    assert widened.with_domain("example.org") is widened
    assert Scope().with_domain("example.org:443").domains == {"example.org:443"}  # of http


@pytest.mark.parametrize(
    "domain", ["https://example.org/", "Example.org", "a/b", "user@example.org", "", "example.org:x"]
)
def test_a_text_that_is_no_domain_widens_nothing(domain: str) -> None:
    with pytest.raises(ConfigError, match="domain="):
        Scope().with_domain(domain)


def test_rules_that_cannot_work_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^seeds='example.org': must be an http or https URL"):
        Scope(seeds="example.org")
    with pytest.raises(ConfigError, match=r"^seeds=7: "):
        Scope(seeds=[7])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"^allow='/a b': "):
        Scope(allow=["/a b"])
    with pytest.raises(ConfigError, match=r"^deny='\*.pdf': "):
        Scope(deny="*.pdf")
    with pytest.raises(ConfigError, match=r"^max_depth=-1: "):
        Scope(max_depth=-1)
    with pytest.raises(ConfigError, match=r"^max_depth=True: "):
        Scope(max_depth=True)
