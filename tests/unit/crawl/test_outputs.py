"""Outputs of a crawl, files of JSON lines and databases alike: each item once, and only what is durable counts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from holdfast.crawl import output_buffer
from holdfast.crawl.json_lines_output import JsonLinesFile
from holdfast.crawl.outputs import Done, Output, open_output
from holdfast.crawl.sqlite_output import SqliteItems
from holdfast.errors import ConfigError, StoreError
from tests.unit.crawl.completed import CRAWL, items, page, pages, url_of


@pytest.fixture(params=["pages.jsonl", "pages.db"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


@pytest.fixture
def output(path: Path) -> Iterator[Output]:
    with closing(open_output(path, CRAWL)) as output:
        yield output


def test_items_are_written_as_they_were_yielded_one_after_the_other(path: Path, output: Output) -> None:
    odd = {"z": "größe\n\u2028\x00", "a": [1, 2.5, None, {"b": True}]}
    assert output.add([page(1, odd, "plain"), page(2)]) == 2
    output.sync()
    assert items(path) == [odd, "plain", {"n": 2}]
    assert list(items(path)[0]) == ["z", "a"]
    assert output.path == str(path)


def test_a_page_is_written_once_however_often_it_is_added(path: Path, output: Output) -> None:
    assert output.add([*pages(1, 2), page(1)]) == 2
    assert output.add(pages(2, 3)) == 1
    output.sync()
    assert output.add(pages(1, 2, 3)) == 0
    output.sync()
    assert items(path) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_restart_goes_on_and_knows_what_is_written(path: Path) -> None:
    with closing(open_output(path, CRAWL)) as first:
        first.add(pages(1, 2))
    with closing(open_output(path, CRAWL)) as second:
        assert second.count == 2
        assert second.has([one.id for one in pages(1, 2, 3)]) == {one.id for one in pages(1, 2)}
        assert second.add(pages(2, 3)) == 1
    assert items(path) == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_page_without_items_counts_and_is_known(path: Path, output: Output) -> None:
    empty = Done(page(1).id, url_of(1), [])
    assert output.add([empty]) == 1
    output.sync()
    assert (output.count, output.has([empty.id]), items(path)) == (1, {empty.id}, [])
    assert output.add([empty]) == 0


def test_what_was_added_is_known_at_once_and_counts_when_it_is_synced(path: Path, output: Output) -> None:
    output.add(pages(1))
    assert output.has([page(1).id, page(2).id]) == {page(1).id}
    assert (output.count, items(path)) == (0, [])
    output.sync()
    assert (output.count, items(path)) == (1, [{"n": 1}])


def test_many_pages_and_large_ones_are_written_without_being_asked(
    path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_buffer, "MOST_PAGES", 10)
    output.add(pages(*range(25)))
    assert output.count == 20
    output.sync()
    monkeypatch.setattr(output_buffer, "MOST_BYTES", 1_000)
    output.add([page(100 + n, "x" * 600) for n in range(5)])
    assert output.count == 25 + 4
    output.sync()
    assert len(items(path)) == 30


def test_a_raw_item_is_written_as_it_is_and_always_on_one_line(path: Path, output: Output) -> None:
    output.add([page(1, Raw(b'{"b":1,  "a":1e2}'), Raw(b'{"two":\n"lines"}'), Raw(b'["no",\r"end"]'))])
    output.sync()
    written = path.read_bytes()
    assert b'{"b":1,  "a":1e2}' in written
    assert b'{"two":"lines"}' in written
    assert b'["no","end"]' in written
    assert len(items(path)) == 3


def test_the_output_of_another_crawl_or_of_one_that_was_removed_is_refused(path: Path) -> None:
    with closing(open_output(path, CRAWL, crawl_id="1")) as output:
        output.add(pages(1))
    with pytest.raises(ConfigError, match=r"has the items of crawl 'shop'; give another path for 'other'"):
        open_output(path, "other")
    with pytest.raises(ConfigError, match=r"an earlier crawl 'shop', which was removed"):
        open_output(path, CRAWL, crawl_id="2")
    for crawl_id in ("", "1"):
        with closing(open_output(path, CRAWL, crawl_id=crawl_id)) as output:
            assert output.count == 1
    assert items(path) == [{"n": 1}]


def test_closed_it_takes_nothing_more(path: Path, output: Output) -> None:
    output.add(pages(1))
    output.close()
    for use in (lambda: output.add(pages(2)), output.sync, lambda: output.has([])):
        with pytest.raises(StoreError, match="is closed"):
            use()
    output.close()
    assert items(path) == [{"n": 1}]
    assert sorted(one.name for one in path.parent.iterdir()) in (["pages.db"], ["pages.jsonl", "pages.jsonl.ledger"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pages.csv", r"must end in one of \.jsonl, \.ndjson, \.db, \.sqlite, \.sqlite3, or be '-'"),
        ("pages.json", "must end in one of"),
        ("pages", "must end in one of"),
        ("folder.jsonl", "is a folder; give the path of a file"),
        ("pipe.jsonl", "is not a regular file"),
        ("missing/pages.db", "there is no folder .*/missing"),
    ],
)
def test_a_path_that_cannot_be_an_output_is_refused_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(ConfigError, match=message) as caught:
        open_output(tmp_path / name, CRAWL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b.jsonl", b"a.jsonl", 7, None])
def test_what_is_no_path_is_refused_in_one_line(path: Any) -> None:
    with pytest.raises(ConfigError, match="must be a path of a file, or '-'"):
        open_output(path, CRAWL)


@pytest.mark.parametrize("name", ["a.ndjson", "a.JSONL", "a.sqlite", "a.sqlite3"])
def test_other_endings_are_known_too(tmp_path: Path, name: str) -> None:
    with closing(open_output(tmp_path / name, CRAWL)) as output:
        output.add(pages(1))
    is_database = (tmp_path / name).read_bytes().startswith(b"SQLite format 3")
    assert is_database == ("sqlite" in name)


def test_standard_output_has_each_page_once_in_the_life_of_the_process(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    for _ in range(2):
        with closing(open_output("-", CRAWL)) as output:
            assert (output.path, output.count) == ("-", 0)
            output.add(pages(1, 2))
            output.sync()
            assert output.add(pages(2, 3)) == 1
            output.sync()
            assert output.count == 3
        found = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        assert found == [{"n": 1}, {"n": 2}, {"n": 3}]


# ---------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("A SMALL DISK CANNOT BE MOUNTED HERE")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.db"])
def test_on_a_full_disk_nothing_counts_and_with_space_it_goes_on(small_disk: Path, name: str) -> None:
    path = small_disk / name
    output = open_output(path, CRAWL)
    output.add(pages(1))
    output.sync()
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            continue
    output.add([page(n, {"n": n, "text": "x" * 500}) for n in range(2, 100)])
    for _ in range(2):
        with pytest.raises(StoreError, match=f"{name}.*disk is full, nothing was written; free some space"):
            output.sync()
        assert output.count == 1
    ballast.unlink()
    output.sync()
    assert output.count == 99
    assert [one["n"] for one in items(path)] == list(range(1, 100))
    output.close()
    with closing(open_output(path, CRAWL)) as again:
        assert again.count == 99


def test_while_it_cannot_be_written_no_more_is_gathered_than_fits(
    path: Path, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output_buffer, "MOST_PAGES", 10)
    with monkeypatch.context() as patch:
        patch.setattr(JsonLinesFile, "write", _refuse)
        patch.setattr(SqliteItems, "write", _refuse)
        for _ in range(3):
            with pytest.raises(StoreError, match="no"):
                output.add(pages(*range(30)))
        assert output.has([one.id for one in pages(*range(30))]) == {one.id for one in pages(*range(10))}
    assert output.add(pages(*range(30))) == 20
    output.sync()
    assert items(path) == [{"n": n} for n in range(30)]


def _refuse(*_: object) -> None:
    raise StoreError("no")
