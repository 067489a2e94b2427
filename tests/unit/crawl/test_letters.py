"""What people do with the pages that a crawl has given up: find, count, send back, carry elsewhere."""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import App, ConfigError
from holdfast.crawl.letters import CrawlLetters
from holdfast.crawl.urls import page_id
from holdfast.errors import FetchFailed, NotFound
from holdfast.ports import Operation
from holdfast.runtime.crawl_origins import decode_page
from holdfast.runtime.export import Imported
from holdfast.runtime.page_gates import gates_of
from holdfast.testing.store_suite import steps
from holdfast.types import Change, JobRecord, JobState
from tests.unit.crawl.given_up import bad_status, changed, give_up
from tests.unit.crawl.pages import fetched

ORG, COM = "https://example.org", "https://example.com"


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/crawl.db")
    yield app
    app.close()


@pytest.fixture
def letters(app: App) -> CrawlLetters:
    return CrawlLetters(app, "shop")


def given_up(app: App, url: str, error: Exception, **options: Any) -> str:
    return app.bridge.run(give_up(app.store, url, error, **options))


def record(app: App, id: str) -> JobRecord:  # noqa: A002
    (found,) = app.bridge.run(app.store.get([id]))
    assert found is not None
    return found


def no_line(url: str) -> FetchFailed:
    return FetchFailed(f"{url}: no connection", url=url, cause="no connection")


def a_few(app: App) -> dict[str, str]:
    """Letters of two domains and of another crawl, by a short name."""
    return {
        "missing": given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1")),
        "missing too": given_up(app, f"{ORG}/2", bad_status(f"{ORG}/2")),
        "elsewhere": given_up(app, f"{COM}/1", bad_status(f"{COM}/1")),
        "away": given_up(app, f"{COM}/2", no_line(f"{COM}/2"), attempts=3),
        "changed": given_up(app, f"{ORG}/3", changed(f"{ORG}/3")),
        "other crawl": given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1"), crawl="news"),
    }


# ---------------------------------------------------------------- looking


def test_the_letters_of_a_crawl_are_listed_by_domain_group_and_type(app: App, letters: CrawlLetters) -> None:
    ids = a_few(app)
    newest_first = [ids[name] for name in ("changed", "away", "elsewhere", "missing too", "missing")]
    assert [one.id for one in letters.list().items] == newest_first
    assert [one.id for one in letters.list(domain="EXAMPLE.com").items] == newest_first[1:3]
    assert [one.id for one in letters.list(failure_type="structural").items] == [ids["changed"]]
    cause = record(app, ids["missing"]).fingerprint
    assert {one.id for one in letters.list(group=cause).items} == {ids["missing"], ids["missing too"]}


def test_a_cursor_leads_through_the_letters_of_a_domain_one_by_one(app: App, letters: CrawlLetters) -> None:
    ids = [given_up(app, f"{host}/{n}", bad_status(f"{host}/{n}")) for n in range(4) for host in (ORG, COM)]
    found, cursor = [], ""
    while True:
        page = letters.list(limit=1, cursor=cursor, domain="example.org")
        found += [one.id for one in page.items]
        cursor = page.cursor
        if not cursor:
            break
    assert found == ids[-2::-2]


def test_a_letter_is_had_by_its_url_or_id_with_every_attempt_and_its_page(app: App, letters: CrawlLetters) -> None:
    id = given_up(app, f"{ORG}/1", changed(f"{ORG}/1"), attempts=2, kept=fetched("<h1>x</h1>"))  # noqa: A001
    for name in (id, f"{ORG}/1", "HTTPS://Example.org:443/1#top"):
        letter = letters.get(name)
        assert (letter.id, len(letter.attempts)) == (id, 2)
        assert letter.notes is not None
        assert letter.notes.checkpoint is not None


def test_what_is_no_letter_of_the_crawl_is_not_found(app: App, letters: CrawlLetters) -> None:
    ids = a_few(app)
    for name in (ids["other crawl"], f"{ORG}/none", "no such id"):
        with pytest.raises(NotFound, match="the crawl shop has no dead letter"):
            letters.get(name)
    letters.retry([ids["missing"]])
    with pytest.raises(NotFound, match="it is queued"):
        letters.get(f"{ORG}/1")


def test_retriable_are_those_that_can_heal_or_have_few_attempts_and_never_a_changed_page(
    app: App, letters: CrawlLetters
) -> None:
    ids = a_few(app)
    assert [one.id for one in letters.retriable()] == [ids["away"]]
    names = {id: name for name, id in ids.items()}  # noqa: A001
    assert [names[one.id] for one in letters.retriable(attempts_under=3)] == ["elsewhere", "missing too", "missing"]
    assert [names[one.id] for one in letters.retriable(attempts_under=4, limit=2)] == ["away", "elsewhere"]
    assert [names[one.id] for one in letters.retriable(attempts_under=4, domain="example.com", limit=9)] == [
        "away",
        "elsewhere",
    ]
    assert letters.retriable(attempts_under=1) == []
    letters.retry([ids["away"]])
    assert letters.retriable() == []


def test_stats_count_by_error_by_domain_and_know_the_oldest_and_newest(app: App, letters: CrawlLetters) -> None:
    ids = a_few(app)
    stats = letters.stats()
    assert stats.total == 5
    assert stats.by_domain == {"example.org": 3, "example.com": 2}
    assert stats.by_failure_type == {"permanent": 3, "structural": 1, "network": 1}
    assert next(iter(stats.by_error.items())) == ("BadStatus: example.org: answered 404", 2)
    assert stats.by_error["PageChanged: example.org: nothing matches .price"] == 1
    assert len(stats.by_error) == 4
    ended = [record(app, ids[name]).ended_at for name in ("missing", "changed")]
    assert [stats.oldest, stats.newest] == ended
    nothing = CrawlLetters(app, "none").stats()
    assert (nothing.total, nothing.oldest, nothing.newest) == (0, None, None)


def test_errors_of_one_cause_are_counted_as_one_whatever_their_words(app: App, letters: CrawlLetters) -> None:
    for n in range(3):
        url = f"{ORG}/{n}"
        given_up(app, url, FetchFailed(f"{url}: no answer in {n} s", url=url, cause="slow"))
    assert list(letters.stats().by_error.values()) == [3]


def test_groups_are_those_of_the_crawl_alone(app: App, letters: CrawlLetters) -> None:
    a_few(app)
    assert [group.count for group in letters.groups()] == [2, 1, 1, 1]
    assert [group.count for group in CrawlLetters(app, "news").groups()] == [1]


# ---------------------------------------------------------------- sending back


def test_letters_go_back_by_id_by_domain_by_group_or_all(app: App, letters: CrawlLetters) -> None:
    ids = a_few(app)
    assert letters.retry([ids["missing"], ids["missing"], ids["other crawl"], "none"]) == 1
    assert record(app, ids["missing"]).state is JobState.QUEUED
    assert record(app, ids["other crawl"]).state is JobState.DEAD_LETTER
    assert letters.retry([ids["missing"]]) == 0
    assert letters.retry(group=record(app, ids["missing too"]).fingerprint) == 1
    assert letters.retry(domain="example.com") == 2
    assert letters.retry() == 1
    assert letters.list().items == []
    assert len(CrawlLetters(app, "news").list().items) == 1


def test_ids_are_a_list_and_go_without_filters(letters: CrawlLetters) -> None:
    for wrong in ({"ids": "one"}, {"ids": ["one"], "domain": "example.org"}):
        with pytest.raises(ConfigError, match="ids"):
            letters.retry(**wrong)


def test_a_letter_that_went_back_is_claimed_by_no_worker_but_its_crawls(app: App, letters: CrawlLetters) -> None:
    a_few(app)
    letters.retry()
    assert app.bridge.run(steps.claim(app.store, caps={"crawl": 0})) == []
    assert len(app.bridge.run(steps.claim(app.store, queues=("crawl:shop",)))) == 5


# ---------------------------------------------------------------- carrying elsewhere


def exported(letters: CrawlLetters, **which: Any) -> list[dict[str, Any]]:
    file = io.StringIO()
    n = letters.export(file, **which)
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert len(lines) == n
    return lines


def test_an_exported_line_has_all_that_is_known_of_a_page(app: App, letters: CrawlLetters) -> None:
    given_up(
        app,
        f"{ORG}/1",
        no_line(f"{ORG}/1"),
        attempts=2,
        depth=2,
        referrer=f"{ORG}/",
        data={"shelf": [1, "ü"]},
        kept=fetched("a page"),
    )
    (line,) = exported(letters)
    letter = letters.get(f"{ORG}/1")
    assert {name: line[name] for name in ("url", "depth", "referrer", "data", "failure_type", "attempt")} == {
        "url": f"{ORG}/1",
        "depth": 2,
        "referrer": f"{ORG}/",
        "data": {"shelf": [1, "ü"]},
        "failure_type": "network",
        "attempt": 2,
    }
    assert line["error"] == f"holdfast.errors.FetchFailed: {ORG}/1: no connection"
    assert [one["number"] for one in line["attempts"]] == [1, 2]
    assert (line["first_failed_at"], line["last_failed_at"]) == (letter.first_failed_at, letter.last_failed_at)
    assert line["origin"]["crawl"] == "shop"
    assert "notes" not in line


def test_an_export_is_of_the_domain_or_group_that_is_asked_for(app: App, letters: CrawlLetters) -> None:
    ids = a_few(app)
    assert len(exported(letters)) == 5
    assert {line["url"] for line in exported(letters, domain="example.com")} == {f"{COM}/1", f"{COM}/2"}
    assert [line["id"] for line in exported(letters, group=record(app, ids["away"]).fingerprint)] == [ids["away"]]


def test_a_file_is_whole_or_not_there_and_for_its_owner_alone(
    app: App, letters: CrawlLetters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_few(app)
    path = tmp_path / "letters.jsonl"
    assert letters.export(path) == 5
    before = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        letters.export(path, domain="example.com")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".half")] == []


def test_an_import_makes_pages_of_the_crawl_that_only_a_crawl_claims(
    app: App, letters: CrawlLetters, tmp_path: Path
) -> None:
    given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1"), depth=2, referrer=f"{ORG}/", data={"n": 1}, priority=3)
    letters.export(tmp_path / "letters.jsonl")
    there = App("memory://")
    assert CrawlLetters(there, "shop").import_(tmp_path / "letters.jsonl") == Imported(1, 0)
    assert CrawlLetters(there, "shop").import_(str(tmp_path / "letters.jsonl")) == Imported(0, 1)
    job = record(there, page_id("shop", f"{ORG}/1"))
    assert (job.state, job.queue, job.project, job.priority) == (JobState.QUEUED, "crawl:shop", "example.org", 3)
    page = decode_page(job.payload)
    assert (page.url, page.depth, page.referrer, page.data, page.stored) == (f"{ORG}/1", 2, f"{ORG}/", {"n": 1}, False)
    for gate in gates_of("shop", "example.org"):
        assert there.bridge.run(steps.claim(there.store, caps={gate: 0})) == []
    assert len(there.bridge.run(steps.claim(there.store))) == 1


def test_an_import_into_another_crawl_makes_pages_of_that_one(app: App, letters: CrawlLetters) -> None:
    a_few(app)
    lines = [json.dumps(line) for line in exported(letters)]
    other = CrawlLetters(app, "again")
    assert other.import_(lines) == Imported(5, 0)
    assert record(app, page_id("again", f"{ORG}/1")).queue == "crawl:again"


def test_the_same_url_is_one_letter_however_it_is_written_and_how_often_it_comes(
    app: App, letters: CrawlLetters
) -> None:
    id = given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1"))  # noqa: A001
    lines = [f'{{"url": "{url}"}}' for url in (f"{ORG}/1", "HTTPS://EXAMPLE.org:443/1#a", f"{ORG}/2", f"{ORG}/2#b")]
    assert letters.import_([lines[0], "", *lines[1:]]) == Imported(1, 1)
    assert record(app, id).state is JobState.DEAD_LETTER, "it is known, and not fetched again by itself"
    assert [one.id for one in letters.list().items] == [id]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "is no page"),
        ("[1]", "is no page"),
        ("{}", "its URL is ''"),
        ('{"url": "ftp://example.org/"}', "its URL is 'ftp"),
        ('{"url": "https://example.org/", "depth": -1}', "is no page"),
        ('{"url": "https://example.org/", "data": [1]}', "is no page"),
        ('{"url": "https://example.org/", "holdfast": 2}', "has the format 2"),
        ('{"holdfast": 1, "task": "charge", "queue": "default", "payload": {"url": "https://a.org/"}}', "is no page"),
        ('{"url": "https://example.org/", "redacted": ["/payload/data/token"]}', "left out as a secret"),
        ('{"data": ' + '{"a":' * 100_000, "is no page"),
    ],
)
def test_with_a_line_that_is_no_page_nothing_is_imported(line: str, why: str) -> None:
    letters = CrawlLetters(App("memory://"), "shop")
    with pytest.raises(ConfigError, match=r"^line 2: ") as refused:
        letters.import_([f'{{"url": "{ORG}/1"}}', line])
    assert why in str(refused.value)
    assert letters.import_([f'{{"url": "{ORG}/1"}}']) == Imported(1, 0)


def test_the_lines_of_both_exports_can_be_imported_either_way(app: App, letters: CrawlLetters) -> None:
    given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1"), depth=4)
    plain = list(app.dead_letters.export())
    whole = [json.dumps(line) for line in exported(letters)]
    for lines in (plain, whole):
        one, other = App("memory://"), App("memory://")
        assert CrawlLetters(one, "shop").import_(lines).new == 1
        assert other.dead_letters.import_(lines).new == 1
        for there in (one, other):
            (delivery,) = there.bridge.run(steps.claim(there.store))
            assert (delivery.id, decode_page(delivery.payload).depth) == (page_id("shop", f"{ORG}/1"), 4)


# ---------------------------------------------------------------- the whole inbox's import


def test_a_page_that_the_inbox_imports_is_claimed_by_its_crawl_alone(app: App, letters: CrawlLetters) -> None:
    given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1"))
    there = App("memory://")
    there.dead_letters.import_(app.dead_letters.export())
    for gate in gates_of("shop", "example.org"):
        assert there.bridge.run(steps.claim(there.store, caps={gate: 0})) == []
    there.run_until_idle()
    assert record(there, page_id("shop", f"{ORG}/1")).state is JobState.QUEUED


@pytest.mark.parametrize(
    "wrong",
    [
        {"project": "example.com"},
        {"project": ""},
        {"project": "example.org/1"},
        {"task": "charge"},
        {"payload": {"url": "gopher://example.org/"}},
        {"payload": {"n": 1}},
        {"payload": {"url": "https"}},
    ],
)
def test_the_inbox_refuses_a_page_whose_domain_is_not_its_urls(wrong: dict[str, Any]) -> None:
    app = App("memory://")
    given_up(app, f"{ORG}/1/2", bad_status(f"{ORG}/1/2"))
    (line,) = map(json.loads, app.dead_letters.export())
    with pytest.raises(ConfigError, match=r"^line 1: is no page"):
        App("memory://").dead_letters.import_([json.dumps(line | wrong)])


def test_what_was_edited_beyond_reading_is_exported_all_the_same(app: App, letters: CrawlLetters) -> None:
    id = given_up(app, f"{ORG}/1", bad_status(f"{ORG}/1"))  # noqa: A001
    spoiled = msgspec.json.encode({"depth": "deep"})
    app.bridge.run(app.store.change(Operation(change=Change.REPLAY, ids=[id], payload=spoiled)))
    (delivery,) = app.bridge.run(steps.claim(app.store))
    app.bridge.run(steps.bury(app.store, delivery))
    assert [line["url"] for line in exported(letters)] == [f"{ORG}/1"]
