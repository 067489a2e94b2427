"""Items in a SQLite database: readable with SQL, beside the user's own tables, once whoever writes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast import App
from holdfast.crawl.outputs import open_output
from holdfast.errors import ConfigError, StoreError
from tests.unit.crawl.completed import CRAWL, page, pages, rows, url_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pages.db"


def execute(path: Path, sql: str) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute(sql)


def test_each_item_is_a_row_with_a_stable_id_its_page_and_its_place(path: Path) -> None:
    with closing(open_output(path, CRAWL)) as output:
        output.add([page(1, {"price": 3}, {"price": 4}), page(2, {"price": 5})])
    one, two = page(1).id, page(2).id
    assert rows(path, "SELECT id, page, n, json_extract(item, '$.price') FROM items ORDER BY page, n") == [
        (f"{one}-0", url_of(1), 0, 3),
        (f"{one}-1", url_of(1), 1, 4),
        (f"{two}-0", url_of(2), 0, 5),
    ]


def test_tables_of_the_user_stay_as_they_are(path: Path) -> None:
    execute(path, "CREATE TABLE mine (x); INSERT INTO mine VALUES (7)")
    with closing(open_output(path, CRAWL)) as output:
        output.add(pages(1))
    assert rows(path, "SELECT x FROM mine") == [(7,)]
    assert len(rows(path, "SELECT 1 FROM items")) == 1


def test_a_table_of_items_that_is_not_ours_is_refused_and_left_alone(path: Path) -> None:
    execute(path, "CREATE TABLE items (name); INSERT INTO items VALUES ('mine')")
    with pytest.raises(ConfigError, match="has a table `items` that no crawl has made; give another path"):
        open_output(path, CRAWL)
    assert rows(path, "SELECT * FROM items") == [("mine",)]
    assert rows(path, "SELECT name FROM sqlite_schema") == [("items",)]


def test_a_table_of_items_that_was_changed_is_refused(path: Path) -> None:
    open_output(path, CRAWL).close()
    execute(path, "ALTER TABLE items ADD COLUMN more")
    with pytest.raises(ConfigError, match="its table `items` must have the columns id, page, n, item"):
        open_output(path, CRAWL)


def test_what_is_no_database_is_refused_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"my notes" * 200)
    with pytest.raises(ConfigError, match="is not a SQLite database; give another path"):
        open_output(path, CRAWL)
    assert path.read_bytes() == b"my notes" * 200


def test_two_who_write_one_database_write_each_page_once(path: Path) -> None:
    with closing(open_output(path, CRAWL)) as first, closing(open_output(path, CRAWL)) as second:
        assert first.add(pages(1, 2)) == 2
        assert second.add(pages(2, 3)) == 2, "neither is durable yet"
        first.sync()
        second.sync()
        assert (first.count, second.count) == (2, 3)
        assert first.has([page(3).id]) == {page(3).id}
    assert sorted(rows(path, "SELECT page FROM items")) == [(url_of(1),), (url_of(2),), (url_of(3),)]


def test_while_somebody_else_keeps_it_locked_nothing_is_written_and_then_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.crawl.sqlite_output._PATIENCE_MS", 1)
    with closing(open_output(path, CRAWL)) as output, closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        output.add(pages(1))
        with pytest.raises(StoreError, match="another process holds the database locked"):
            output.sync()
        other.execute("ROLLBACK")
        output.sync()
        assert output.count == 1
    assert len(rows(path, "SELECT 1 FROM items")) == 1


def test_a_database_that_is_moved_away_meanwhile_is_told_and_begun_anew(path: Path) -> None:
    with closing(open_output(path, CRAWL)) as output:
        output.add(pages(1))
        output.sync()
        path.rename(path.with_name("aside"))
        output.add(pages(2))
        with pytest.raises(StoreError, match="cannot be written"):
            output.sync()
        output.sync()
        assert (output.count, output.has([page(1).id])) == (1, set())
    assert rows(path, "SELECT page FROM items") == [(url_of(2),)]
    assert rows(path.with_name("aside"), "SELECT page FROM items") == [(url_of(1),)]


def test_a_store_is_no_output(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.db"
    app = App(f"sqlite:///{path}")
    app.stats()
    with pytest.raises(ConfigError, match="is a store of Holdfast's"):
        open_output(path, "shop")
    app.close()
