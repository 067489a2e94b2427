"""Several statements in one round trip: the server has all of them, or none."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.clock import SystemClock
from holdfast.stores.postgres.connection import Line, address_of, connect
from tests.unit.stores.postgres.conftest import Plain

LOCK = b"SELECT pg_advisory_xact_lock(7)"
IS_FREE = b"SELECT pg_try_advisory_xact_lock(7)"


@pytest.fixture
def line(postgres_url: str) -> Iterator[Line]:
    line = connect(address_of(postgres_url, "", 5.0), is_hot=True)
    yield line
    line.close()


def is_free(plain: Plain) -> bool:
    return plain.execute(IS_FREE).fetchall() == [(True,)]


def test_nothing_is_sent_before_the_block_ends(line: Line, plain: Plain) -> None:
    with line.pipeline():
        cursor = line.execute(LOCK)
        SystemClock().sleep(0.2)
        assert is_free(plain), "a process that is frozen now would leave the server with half of it"
        other = line.execute(b"SELECT 2")
    assert (len(cursor.fetchall()), other.fetchall()) == (1, [(2,)])
    assert is_free(plain), "it was committed"


def test_nothing_of_a_block_that_fails_is_done(line: Line, plain: Plain) -> None:
    plain.execute(b"CREATE TABLE noted (n int)")
    with pytest.raises(ValueError, match="amid"), line.pipeline():
        line.execute(b"INSERT INTO noted VALUES (1)")
        raise ValueError("amid it")
    assert plain.execute(b"SELECT * FROM noted").fetchall() == []
    assert line.closed


def test_a_block_that_fails_before_its_first_statement_leaves_the_connection_as_it_was(line: Line) -> None:
    with pytest.raises(psycopg.ProgrammingError), line.pipeline():
        line.execute(b"SELECT %s", ())
    assert line.execute(b"SELECT 1").fetchall() == [(1,)]


def test_a_statement_that_the_server_refuses_undoes_the_whole_block(line: Line, plain: Plain) -> None:
    plain.execute(b"CREATE TABLE noted (n int)")
    with pytest.raises(psycopg.errors.DivisionByZero), line.pipeline():
        line.execute(b"INSERT INTO noted VALUES (1)")
        line.execute(b"SELECT 1 / 0")
        line.execute(b"INSERT INTO noted VALUES (2)")
    assert plain.execute(b"SELECT * FROM noted").fetchall() == []
    assert line.execute(b"SELECT 1").fetchall() == [(1,)]


def test_what_cannot_have_come_yet_is_refused_at_once(line: Line) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="nothing to fetch"), line.pipeline():
        line.execute("SELECT 1").fetchall()


def test_a_pipeline_inside_of_another_is_refused(line: Line) -> None:
    with pytest.raises(psycopg.ProgrammingError, match="inside of another"), line.pipeline(), line.pipeline():
        raise AssertionError("it has begun")
    with line.pipeline():
        cursor = line.execute("SELECT 1")
    assert cursor.fetchall() == [(1,)]


def test_a_closed_connection_says_so(line: Line) -> None:
    line.close()
    with pytest.raises(psycopg.OperationalError), line.pipeline():
        line.execute(b"SELECT 1")
