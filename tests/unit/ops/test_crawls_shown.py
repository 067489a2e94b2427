"""Crawls and their pages on the command line's other commands: said which they are, and without secrets."""

from __future__ import annotations

from tests.unit.crawled import crawl_report, crawling, domain, page_letter
from tests.unit.ops.conftest import Shop

SECRET = "https://ann:canary-53@example.org/?token=canary-53"


def test_a_page_that_was_given_up_says_which_it_is(shop: Shop) -> None:
    app = shop.app
    letter = page_letter("shop", SECRET, depth=2, referrer=SECRET)
    app.bridge.run(app.store.enqueue([letter]))
    app.close()
    text = shop.cli("dlq", "show", letter.id).stdout
    shown = "https://ann:[redacted]@example.org/?token=[redacted]"
    for line in ("shop", shown, f"2, found on {shown}"):
        assert line in text
    (found,) = shop.json("dlq", "list")["items"]
    assert (found["origin"]["kind"], found["origin"]["url"]) == ("page", shown)
    for words in (["dlq", "show", letter.id], ["dlq", "show", letter.id, "--json"], ["dlq", "list", "--json"]):
        assert "canary" not in shop.cli(*words).stdout


def test_what_a_crawls_process_says_is_shown_without_secrets(shop: Shop) -> None:
    app = shop.app
    report = crawl_report("shop", domain(SECRET, why=SECRET, held_s=1.0), output=SECRET, output_error=SECRET)
    app.bridge.run(crawling(app, report))
    app.close()
    for words in (["top", "--json"], ["doctor", "--json"]):
        text = shop.cli(*words, code=int(words[0] == "doctor")).stdout
        assert "[redacted]" in text
        assert "canary" not in text
