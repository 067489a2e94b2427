"""Opening a file: what works, and what is refused in one line that helps."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from holdfast.clock import SystemClock, new_id
from holdfast.errors import ConfigError, StoreError
from holdfast.ports import Clock, Query, WorkerRecord
from holdfast.stores.sqlite import SqliteStore, connection
from holdfast.stores.sqlite.store import Synchronous
from holdfast.testing.store_suite import enqueue, new_job
from holdfast.testing.store_suite.steps import dead_letter, job_in
from holdfast.types import JobState, NewJob, Notes
from tests.unit.stores.sqlite.conftest import CheckBooks


def make_database(path: Path, script: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(script).fetchall()
    db.close()


def refusal_of(path: Path) -> str:
    with pytest.raises(StoreError) as caught:
        _ = SqliteStore(path).capabilities
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message


def test_a_missing_file_is_made(path: Path) -> None:
    store = SqliteStore(path)
    assert store.capabilities.location == str(path)
    assert path.exists()
    asyncio.run(store.close())


async def test_a_link_leads_to_the_file_and_to_all_that_is_beside_it(path: Path) -> None:
    real = path.parent / "data" / "shop.db"
    real.parent.mkdir()
    os.symlink(real, path)
    store = SqliteStore(path)
    assert store.capabilities.location == str(real)
    store.enqueue_now([NewJob(id=new_id(), task="greet", payload=b"{}")])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    script = (
        "import sys; from holdfast.stores.sqlite import SqliteStore; from holdfast.types import NewJob\n"
        "from holdfast.clock import new_id\n"
        "SqliteStore(sys.argv[1]).enqueue_now([NewJob(id=new_id(), task='greet', payload=b'{}')])"
    )
    _, errors = _popen([sys.executable, "-c", script, str(real)]).communicate(timeout=60)
    assert errors.decode() == ""
    assert len((await store.find(Query())).items) == 2
    names = {"shop.db", "shop.db-wal", "shop.db-shm", "shop.db.queue", "shop.db.reserve", "shop.db.workers"}
    assert {one.name for one in real.parent.iterdir()} == names
    await store.close()
    assert {one.name for one in path.parent.iterdir()} == {"jobs.db", "data"}
    assert not real.with_name("shop.db-wal").exists()


def test_whoever_finds_the_new_file_locked_by_another_starter_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = connection.connect
    held: list[apsw.Connection] = []

    def let_go(clock: Clock) -> None:
        clock.sleep(0.05)
        held[0].close()

    def connect(path: str, synchronous: str, clock: Clock, *, may_create: bool) -> apsw.Connection:
        db = real(path, synchronous, clock, may_create=may_create)
        if not held:  # the other one comes between our switch to WAL and our first look at the tables
            held.append(apsw.Connection(path))
            held[0].execute("PRAGMA locking_mode = EXCLUSIVE")
            held[0].execute("BEGIN EXCLUSIVE")
            threading.Thread(target=let_go, args=(clock,)).start()
        return db

    monkeypatch.setattr(connection, "connect", connect)
    store = SqliteStore(path)
    assert store.capabilities.location == str(path)
    asyncio.run(store.close())


def test_only_the_first_connection_makes_a_file(path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be opened"):
        connection.connect(str(path), "FULL", SystemClock())
    assert not path.exists()


def test_nothing_is_opened_before_the_first_verb(path: Path) -> None:
    SqliteStore(path)
    assert not path.exists()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "does not exist; create it" in refusal_of(tmp_path / "nowhere" / "jobs.db")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert "this is a folder" in refusal_of(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "cannot be written" in refusal_of(tmp_path / "jobs.db")
    finally:
        tmp_path.chmod(0o700)


def test_a_text_file_is_no_database(path: Path) -> None:
    path.write_text("dear diary, " * 500)
    assert "not a SQLite database" in refusal_of(path)
    assert path.read_text().startswith("dear diary")


def test_a_damaged_header_is_refused(path: Path) -> None:
    make_database(path, "CREATE TABLE orders (id)")
    path.write_bytes(b"SQLite format 3\0" + bytes(4096))
    refusal_of(path)


def test_another_programs_file_is_refused(path: Path) -> None:
    make_database(path, "CREATE TABLE layers (id); PRAGMA application_id = 1196437808")
    assert "belongs to another program (application id 1196437808)" in refusal_of(path)


def test_a_table_with_our_name_that_is_not_ours_is_refused(path: Path) -> None:
    make_database(path, "CREATE TABLE holdfast_jobs (id)")
    assert "a table holdfast_jobs that Holdfast did not make" in refusal_of(path)


async def test_a_newer_schema_asks_for_an_upgrade(path: Path) -> None:
    store = SqliteStore(path)
    assert store.capabilities
    await store.close()
    make_database(path, "UPDATE holdfast_meta SET value = 99 WHERE key = 'schema_version'")
    assert "made by a newer Holdfast (schema 99" in refusal_of(path)


async def test_it_lives_beside_a_users_own_tables(store: SqliteStore, path: Path) -> None:
    make_database(path, "CREATE TABLE orders (id); INSERT INTO orders VALUES (7); PRAGMA user_version = 3")
    store.enqueue_now([NewJob(id=new_id(), task="greet", payload=b"{}")])
    db = apsw.Connection(str(path))
    assert db.execute("SELECT id FROM orders").fetchall() == [(7,)]
    assert db.execute("PRAGMA user_version").fetchall() == [(3,)]
    db.close()


@pytest.mark.parametrize("path", ["", ":memory:", "file:jobs.db?mode=memory"])
def test_a_path_that_is_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(ConfigError, match="memory://"):
        SqliteStore(path)


def test_settings_that_cannot_work_are_refused_at_once(path: Path) -> None:
    with pytest.raises(ConfigError, match="synchronous"):
        SqliteStore(path, synchronous="OFF")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="key_window_s"):
        SqliteStore(path, key_window_s=-1.0)


@pytest.mark.parametrize(("synchronous", "is_durable"), [("NORMAL", False), ("FULL", True), ("EXTRA", True)])
def test_only_what_outlives_a_power_cut_is_called_durable(
    path: Path, synchronous: Synchronous, is_durable: bool
) -> None:
    store = SqliteStore(path, synchronous=synchronous)
    assert store.capabilities.is_durable is is_durable
    asyncio.run(store.close())


def _popen(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)


async def test_several_processes_that_start_at_once_make_one_schema(path: Path) -> None:
    script = (
        "import sys; from holdfast.stores.sqlite import SqliteStore; from holdfast.types import NewJob\n"
        "from holdfast.clock import new_id; sys.stdin.readline()\n"
        "SqliteStore(sys.argv[1]).enqueue_now([NewJob(id=new_id(), task='greet', payload=b'{}')])"
    )
    command = [sys.executable, "-c", script, str(path)]
    starters = [_popen(command) for _ in range(4)]
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write(b"\n")
        starter.stdin.flush()
    for starter in starters:
        _, errors = starter.communicate(timeout=60)
        assert (starter.returncode, errors.decode()) == (0, "")
    store = SqliteStore(path)
    assert len((await store.find(Query())).items) == 4
    await store.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = SqliteStore(path)
    assert store.capabilities
    await store.close()
    with pytest.raises(StoreError, match="the store is closed"):
        store.enqueue_now([])


async def test_closing_moves_the_log_into_the_file(path: Path) -> None:
    store = SqliteStore(path)
    store.enqueue_now([NewJob(id=new_id(), task="greet", payload=b"{}")])
    await store.close()
    assert not path.with_name("jobs.db-wal").exists()


UNDO = """
DROP TABLE holdfast_letters; DROP TABLE holdfast_causes; DROP TABLE holdfast_letter_hours; DROP TABLE holdfast_marks;
DROP TABLE holdfast_counted; DROP TRIGGER holdfast_jobs_noted;
INSERT INTO holdfast_notes SELECT seq, 'c', x'31' FROM holdfast_jobs WHERE state IN ('completed', 'running');
UPDATE holdfast_jobs SET has_notes = 1 WHERE seq IN (SELECT seq FROM holdfast_notes);
CREATE INDEX holdfast_jobs_cause ON holdfast_jobs (fingerprint) WHERE given_up = 2;
UPDATE holdfast_meta SET value = 1 WHERE key = 'schema_version'
"""


async def test_a_file_of_the_first_version_is_counted_anew(path: Path, check_books: CheckBooks) -> None:
    before = SqliteStore(path)
    for n in range(6):
        await dead_letter(before, task="ab"[n % 2], tenant=("", "acme", "globex")[n % 3], user="ada")
    noted = [await job_in(before, state) for state in (JobState.COMPLETED, JobState.RUNNING)]
    await enqueue(before, *(new_job(task="rare", project="p") for _ in range(300)))
    groups = await before.groups(Query())
    await before.close()
    make_database(path, UNDO)
    after = SqliteStore(path)
    try:
        assert await after.groups(Query()) == groups
        assert [one.notes for one in await after.get(noted) if one] == [None, Notes(b"1", {})]
        assert len((await after.find(Query(user="ada"))).items) == 6
        assert len((await after.find(Query(project="p", limit=500))).items) == 300
        check_books()
    finally:
        await after.close()
