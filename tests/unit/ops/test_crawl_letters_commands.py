"""`holdfast crawl letters`, `retry` and `replay`: pages that were given up, and what becomes of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.site import Site, SiteProcess
from tests.unit.crawled import begun, page_letter
from tests.unit.ops.conftest import Shop

SECRET = "https://example.org/?token=canary-53"
CRAWLER = """
from holdfast import App
from holdfast.crawl import Crawler

app = App("sqlite:///shop.db")
crawler = Crawler(app, name="shop", robots=False, allow_private=True, depth=0)


@crawler.page("**")
def product(page):
    yield {"name": page.text("SELECTOR")}
"""


@pytest.fixture
def letters(shop: Shop) -> Shop:
    """A crawl of which three pages were given up, on two domains."""
    app = shop.app
    app.bridge.run(begun(app, "shop", "https://example.org/"))
    places = [("https://example.org/a", "example.org"), (SECRET, "example.org"), ("https://b.org/", "b.org")]
    app.bridge.run(app.store.enqueue([page_letter("shop", url, site) for url, site in places]))
    app.close()
    return shop


def test_letters_are_listed_without_secrets(letters: Shop) -> None:
    text = letters.cli("crawl", "letters", "shop").stdout
    assert "https://example.org/a" in text
    assert "PageChanged: b.org: no .price" in text
    assert "https://example.org/?token=[redacted]" in text
    listed = letters.json("crawl", "letters", "list", "shop", "--domain", "example.org")
    assert len(listed["items"]) == 2
    page = letters.json("crawl", "letters", "shop", "--limit", "1")
    rest = letters.json("crawl", "letters", "shop", "--cursor", page["cursor"])
    assert len(rest["items"]) == 2
    for words in (["shop"], ["shop", "--json"], ["stats", "shop"], ["stats", "shop", "--json"]):
        assert "canary" not in letters.cli("crawl", "letters", *words).stdout


def test_the_retriable_ones_are_listed_by_themselves(letters: Shop) -> None:
    assert letters.json("crawl", "letters", "shop", "--retriable")["items"] == []
    assert "no dead letters" in letters.cli("crawl", "letters", "shop", "--attempts-under", "5").stderr
    refused = letters.cli("crawl", "letters", "shop", "--retriable", "--cursor", "x", code=2)
    assert "give a larger --limit" in refused.stderr


def test_letters_are_counted(letters: Shop) -> None:
    counted = letters.json("crawl", "letters", "stats", "shop")
    assert (counted["total"], counted["by_domain"]) == (3, {"example.org": 2, "b.org": 1})
    assert counted["by_failure_type"] == {"structural": 3}
    assert counted["oldest"] <= counted["newest"]
    text = letters.cli("crawl", "letters", "stats", "shop").stdout
    assert text.startswith("3 dead letters\n")
    assert "2   example.org" in text


def test_an_export_is_taken_by_another_crawl_as_pages_once(letters: Shop) -> None:
    done = letters.cli("crawl", "letters", "export", "shop", "letters.jsonl").stdout
    assert done == f"3 dead letters written to {letters.folder}/letters.jsonl\n"
    urls = {json.loads(line)["url"] for line in Path("letters.jsonl").read_text().splitlines()}
    assert len(urls) == 3
    piped = letters.cli("crawl", "letters", "export", "shop", "--domain", "b.org").stdout
    assert json.loads(piped)["url"] == "https://b.org/"
    assert (
        "nothing was written"
        in letters.cli("crawl", "letters", "export", "shop", "letters.jsonl", code=1, text="n\n").stderr
    )
    other = ["crawl", "letters", "import", "other", "letters.jsonl"]
    assert letters.json(*other) == {"new": 3, "known": 0}
    assert letters.cli(*other).stdout == "0 pages to be fetched, 3 known already\n"
    assert letters.json("crawl", "show", "other")["pending"] == 3
    Path("bad.jsonl").write_text('{"url": "https://example.org/"}\n{"url": "mailto:x"}\n')
    assert "line 2" in letters.cli("crawl", "letters", "import", "third", "bad.jsonl", code=2).stderr


def test_a_retry_sends_back_what_was_meant(letters: Shop) -> None:
    done = letters.cli("crawl", "retry", "shop", "--domain", "b.org")
    assert done.stdout == "1 page to be fetched anew\n"
    assert "no process is on this crawl now" in done.stderr
    assert "there is no such dead letter" in letters.cli("crawl", "retry", "shop", "--retriable", code=1).stderr
    refused = letters.cli("crawl", "retry", "shop", "--retriable", "--type", "network", code=2)
    assert "go with --domain alone" in refused.stderr
    assert letters.json("crawl", "retry", "shop", "--group", "1:shop/example") == {"sent": 2}
    assert letters.json("crawl", "show", "shop")["dead"] == 0


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["letters"], 2, "of which crawl? Give its NAME"),
        (["letters", "shp"], 1, "there is no crawl 'shp'; did you mean shop?"),
        (["letters", "export", "shop", "--group", "1:zzz"], 1, "there is no group 1:zzz"),
        (["retry", "shp"], 1, "there is no crawl 'shp'; did you mean shop?"),
        (["replay", "1:shop"], 2, "whose handlers? Give --app module:crawler"),
        (["replay", "1:shop", "--app", "shop:app"], 2, "it is a App, not a Crawler"),
        (["--url", "sqlite:///shop.db", "replay", "1:shop", "--app", "shop:app"], 2, "has its own store"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(letters: Shop, words: list[str], code: int, line: str) -> None:
    assert line in letters.cli("crawl", *words, code=code).stderr


# ---------------------------------------------------------------- replay


@pytest.fixture
def given_up(shop: Shop) -> Iterator[tuple[Shop, SiteProcess, str]]:
    """Two pages that a handler could not do, their group, and beside it a mended handler."""
    (shop.folder / "broken.py").write_text(CRAWLER.replace("SELECTOR", ".headline"))
    (shop.folder / "mended.py").write_text(CRAWLER.replace("SELECTOR", "h1"))
    with SiteProcess(Site(pages=5, links=2)) as site:
        urls = [site.url_of(1), site.url_of(2)]
        found = shop.json("crawl", *urls, "--app", "broken:crawler", "--out", "names.jsonl", code=1)
        assert (found["done"], found["dead"]) == (0, 2)
        yield shop, site, found["given_up"][0]["group"]
    for name in ("broken", "mended"):
        if module := sys.modules.pop(name, None):
            module.app.close()


def test_a_mended_handler_completes_kept_pages_without_fetching_them(given_up: tuple[Shop, SiteProcess, str]) -> None:
    shop, site, group = given_up
    asked = len(site.log())
    mended = ["crawl", "replay", group, "--app", "mended:crawler"]
    tried = shop.cli(*mended, "--try").stdout
    assert "2 of 2 kept pages can be parsed now, with 2 items" in tried
    assert shop.json("crawl", "show", "shop")["dead"] == 2
    done = shop.json(*mended, "--out", "names.jsonl")
    assert (done["replay"]["sent"], done["run"]["done"], done["run"]["dead"]) == (2, 2, 0)
    names = sorted(json.loads(line)["name"] for line in Path("names.jsonl").read_text().splitlines())
    assert names == ["Product 1", "Product 2"]
    assert len(site.log()) == asked
    assert "there is no group" in shop.cli(*mended, code=1).stderr


def test_a_handler_that_is_still_broken_is_told_with_what_and_nothing_changes(
    given_up: tuple[Shop, SiteProcess, str],
) -> None:
    shop, _, group = given_up
    for words in ([], ["--try"]):
        text = shop.cli("crawl", "replay", group[:8], "--app", "broken:crawler", *words, code=1).stdout
        assert "0 of 2 kept pages can be parsed now, with 0 items" in text
        assert "2 × PageChanged: …: nothing matches .headline" in text
    found = shop.json("crawl", "replay", group, "--app", "broken:crawler", code=1)
    assert (found["run"], found["replay"]["passing"], len(found["replay"]["failing"])) == (None, 0, 2)
    assert shop.json("crawl", "show", "shop")["dead"] == 2
