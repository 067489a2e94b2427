"""Kept pages are parsed again by a mended handler: tried without a trace, and completed without being fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import App, ConfigError
from holdfast.crawl import Crawler, Page
from holdfast.crawl.kept import pack
from holdfast.crawl.letters import CrawlLetters
from holdfast.crawl.replaying import Tried, replay_stored, try_stored
from holdfast.ports import Operation
from holdfast.runtime.crawl_origins import decode_page
from holdfast.testing.site import Site, SiteProcess
from holdfast.types import Change, JobRecord, JobState
from tests.unit.crawl.given_up import bad_status, changed, give_up
from tests.unit.crawl.pages import fetched

ORG = "https://example.org"
GOOD, BAD = "<h1>Lamp</h1>", "<h2>Lamp</h2>"


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/crawl.db")
    yield app
    app.close()


def crawler_of(app: App, *, name: str = "shop", expect: str = "h1") -> Crawler:
    crawler = Crawler(app, name=name, allow_private=["127.0.0.1/32"], robots=False, depth=0)

    @crawler.page("**", expect=[expect])
    def product(page: Page) -> Iterator[Any]:
        yield {"name": page.text(expect), "shelf": page.data.get("shelf"), "attempt": page.attempt}

    return crawler


def given_up(app: App, url: str, html: str | None, **options: Any) -> str:
    kept = None if html is None else fetched(html, url=url)
    return app.bridge.run(give_up(app.store, url, options.pop("error", changed(url)), kept=kept, **options))


def record(app: App, id: str) -> JobRecord:  # noqa: A002
    (found,) = app.bridge.run(app.store.get([id]))
    assert found is not None
    return found


def tried(app: App, which: Any, *, crawler: Crawler | None = None, **options: Any) -> Tried:
    return app.bridge.run(try_stored(crawler or crawler_of(app), which, **options))


def replayed(app: App, which: Any, *, crawler: Crawler | None = None, **options: Any) -> Tried:
    return app.bridge.run(replay_stored(crawler or crawler_of(app), which, **options))


# ---------------------------------------------------------------- trying


def test_a_group_is_tried_and_says_which_pass_which_fail_and_which_have_no_page(app: App) -> None:
    good = [given_up(app, f"{ORG}/{n}", GOOD) for n in range(3)]
    bad = given_up(app, f"{ORG}/bad", BAD)
    missing = given_up(app, f"{ORG}/missing", None)
    other_cause = given_up(app, f"{ORG}/404", GOOD, error=bad_status(f"{ORG}/404"))
    other_crawl = given_up(app, f"{ORG}/1", GOOD, crawl="news")
    letters = [record(app, id) for id in (*good, bad, missing, other_cause, other_crawl)]  # noqa: A001
    got = tried(app, letters[0].fingerprint)
    assert set(got.passing) == set(good)
    assert (got.items, got.total, got.sent, got.has_more) == (3, 5, 0, False)
    assert [(one.id, one.url) for one in got.failing] == [(bad, f"{ORG}/bad")]
    assert got.failing[0].error.startswith("holdfast.errors.PageChanged: ")
    assert "nothing matches h1" in got.failing[0].error
    assert (got.missing, got.gone) == ((missing,), ())
    assert [record(app, one.id) for one in letters] == letters, "nothing was changed"


def test_letters_are_tried_by_id_and_others_are_gone(app: App) -> None:
    mine = given_up(app, f"{ORG}/1", GOOD)
    other = given_up(app, f"{ORG}/1", GOOD, crawl="news")
    back = given_up(app, f"{ORG}/2", GOOD)
    CrawlLetters(app, "shop").retry([back])
    got = tried(app, [mine, mine, other, back, "none"])
    assert got.passing == (mine,)
    assert got.gone == (other, back, "none")


def test_no_more_are_tried_than_the_limit_the_newest_first(app: App) -> None:
    ids = [given_up(app, f"{ORG}/{n}", GOOD) for n in range(25)]
    cause = record(app, ids[0]).fingerprint
    got = tried(app, cause, limit=22)
    assert (got.passing, got.has_more) == (tuple(ids[:2:-1]), True)
    assert (tried(app, cause, limit=25).has_more, tried(app, cause).total) == (False, 25)


def test_half_a_page_is_not_taken_for_the_page(app: App) -> None:
    url = f"{ORG}/1"
    kept = pack(fetched(GOOD, url=url), 1.0) | {"is_cut": True}
    id = app.bridge.run(give_up(app.store, url, changed(url), kept=kept))  # noqa: A001
    got = replayed(app, [id])
    assert (got.cut, got.passing, got.sent) == ((id,), (), 0)
    assert record(app, id).state is JobState.DEAD_LETTER


@pytest.mark.parametrize("kept", [{"nonsense": 1}, {"is_cut": False, "body": "***"}])
def test_a_kept_page_that_cannot_be_read_does_not_pass(app: App, kept: dict[str, Any]) -> None:
    url = f"{ORG}/1"
    id = app.bridge.run(give_up(app.store, url, changed(url), kept=kept))  # noqa: A001
    (failing,) = tried(app, [id]).failing
    assert "the kept page cannot be read" in failing.error


def test_whatever_a_handler_raises_or_yields_is_told_and_the_next_is_tried(app: App) -> None:
    ids = [given_up(app, f"{ORG}/{n}", GOOD) for n in range(3)]
    crawler = Crawler(app, name="shop")

    @crawler.page("https://example.org/0")
    def broken(page: Page) -> None:
        raise ZeroDivisionError("password=hunter2")

    @crawler.page("https://example.org/1")
    def no_json(page: Page) -> Any:
        return {"node": object()}

    @crawler.page("**")
    async def fine(page: Page) -> Any:
        return [{"n": 1}, {"n": 2}]

    got = tried(app, ids, crawler=crawler)
    assert (got.passing, got.items) == ((ids[2],), 2)
    assert [one.id for one in got.failing] == ids[:2]
    assert got.failing[0].error.startswith("ZeroDivisionError: ")
    assert "hunter2" not in got.failing[0].error


def test_an_answer_that_says_no_does_not_pass_though_it_can_be_parsed(app: App) -> None:
    url = f"{ORG}/1"
    page = fetched(GOOD, url=url, status=403)
    id = app.bridge.run(give_up(app.store, url, changed(url), kept=page))  # noqa: A001
    (failing,) = tried(app, [id]).failing
    assert "403" in failing.error


@pytest.mark.parametrize("which", ["", [], ()])
def test_it_must_be_said_which(app: App, which: Any) -> None:
    with pytest.raises(ConfigError, match="which="):
        replayed(app, which)


# ---------------------------------------------------------------- sending back


def test_those_that_pass_go_back_with_the_kept_page_and_the_others_stay(app: App) -> None:
    good = given_up(app, f"{ORG}/1", GOOD, data={"shelf": 7})
    bad = given_up(app, f"{ORG}/2", BAD)
    before = record(app, good).payload
    got = replayed(app, record(app, good).fingerprint)
    assert (got.passing, got.sent, [one.id for one in got.failing]) == ((good,), 1, [bad])
    sent = record(app, good)
    assert (sent.state, sent.original_payload) == (JobState.QUEUED, before)
    page = decode_page(sent.payload)
    assert (page.stored, page.data) == (True, {"shelf": 7})
    assert record(app, bad).state is JobState.DEAD_LETTER
    again = replayed(app, [good])
    assert (again.gone, again.sent) == ((good,), 0)


# ---------------------------------------------------------------- whole crawls


@pytest.fixture(scope="module")
def site() -> Iterator[SiteProcess]:
    with SiteProcess(Site(pages=1)) as process:
        yield process


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_next_run_completes_them_without_fetching_and_writes_their_items_once(app: App, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with SiteProcess(Site(pages=1), log=tmp_path / "log") as site:
        urls = [site.url_as("changed", str(n)) for n in range(3)]
        assert crawler_of(app, expect=".price").run(*urls, out=out).dead == 3
        fetches = len(site.log())
        (group,) = CrawlLetters(app, "shop").groups()
        assert replayed(app, group.fingerprint).sent == 3
        for _ in range(2):
            summary = crawler_of(app).run(out=out)
            assert (summary.is_finished, summary.done, summary.dead) == (True, 3, 0)
        assert len(site.log()) == fetches
    assert [item["attempt"] for item in lines(out)] == [2, 2, 2]


def test_one_that_fails_all_the_same_is_fetched_anew_by_an_ordinary_retry(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=1), log=tmp_path / "log") as site:
        url = site.url_as("changed")
        assert crawler_of(app, expect=".price").run(url).dead == 1
        (letter,) = CrawlLetters(app, "shop").list().items
        replayed(app, [letter.id])
        worse = crawler_of(app, expect=".price")
        assert worse.run().dead == 1
        assert len(site.log()) == 1, "it was parsed from the kept page"
        assert app.dead_letters.retry(letter.id).is_done
        assert worse.run().dead == 1
        assert len(site.log()) == 2, "it was fetched"
        replayed(app, [letter.id])
        assert crawler_of(app).run().done == 1
        assert len(site.log()) == 2


def test_a_letter_that_goes_back_the_ordinary_way_is_fetched(app: App, tmp_path: Path) -> None:
    with SiteProcess(Site(pages=1), log=tmp_path / "log") as site:
        url = site.url_as("changed")
        assert crawler_of(app, expect=".price").run(url).dead == 1
        assert CrawlLetters(app, "shop").retry() == 1
        assert crawler_of(app).run().done == 1
        assert len(site.log()) == 2


def test_links_of_a_kept_page_are_followed_when_it_is_completed(app: App, site: SiteProcess) -> None:
    url = site.url_as("changed")
    assert crawler_of(app, expect=".price").run(url).dead == 1
    (letter,) = CrawlLetters(app, "shop").list().items
    crawler = Crawler(app, name="shop", allow_private=["127.0.0.1/32"], robots=False)

    @crawler.page("**")
    def follow(page: Page) -> Iterator[Any]:
        yield from page.links()

    assert replayed(app, [letter.id], crawler=crawler).sent == 1
    assert crawler.run().done > 1


def test_a_letter_that_somebody_takes_while_it_is_tried_goes_once(app: App) -> None:
    id = given_up(app, f"{ORG}/1", GOOD)  # noqa: A001
    crawler = Crawler(app, name="shop")

    @crawler.page("**")
    async def taken(page: Page) -> Any:
        await app.store.change(Operation(change=Change.REPLAY, ids=[id]))
        return {"n": 1}

    got = replayed(app, [id], crawler=crawler)
    assert (got.passing, got.sent) == ((id,), 0)
    assert decode_page(record(app, id).payload).stored is False
