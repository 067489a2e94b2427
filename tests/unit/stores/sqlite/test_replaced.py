"""A file that is replaced, moved or deleted under a process takes nothing more from it: nobody would find it again."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.clock import new_id
from holdfast.errors import StoreAway, StoreError
from holdfast.ports import Settlement, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import Change, NewJob

REFUSAL = "replaced, moved or deleted while in use, nothing was written; restart"


def new_job() -> NewJob:
    return NewJob(id=new_id(), task="greet", payload=b"{}")


def jobs_in(path: Path) -> set[str]:
    db = apsw.Connection(str(path))
    try:
        return {one for (one,) in db.execute("SELECT id FROM holdfast_jobs")}
    finally:
        db.close()


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


async def test_a_database_with_another_in_its_place_is_not_written_to(store: SqliteStore, path: Path) -> None:
    job = new_job()
    store.enqueue_now([job])
    with closing(apsw.Connection(str(path))) as db:
        db.execute("VACUUM INTO ?", (str(path.with_name("copy.db")),))
    for suffix in ("", "-wal", "-shm"):
        shutil.move(f"{path}{suffix}", f"{path}{suffix}.away")
    shutil.move(path.with_name("copy.db"), path)
    for _ in range(2):  # again and again: only a restart helps
        with pytest.raises(StoreError, match=REFUSAL) as caught:
            store.enqueue_now([new_job()])
        assert not isinstance(caught.value, StoreAway)
    assert jobs_in(path) == {job.id}


async def test_a_log_that_is_deleted_takes_no_heartbeat_and_is_saved_at_the_end(store: SqliteStore, path: Path) -> None:
    job, worker = new_job(), WorkerRecord(id="w", lease_s=60.0)
    store.enqueue_now([job])
    await store.heartbeat(worker)
    path.with_name("jobs.db-wal").unlink()
    with pytest.raises(StoreError, match=REFUSAL):
        await store.heartbeat(worker)
    with pytest.raises(StoreError, match=REFUSAL):
        store.enqueue_now([new_job()])
    await store.close()
    assert jobs_in(path) == {job.id}


@pytest.fixture
async def swapped(store: SqliteStore, path: Path) -> SqliteStore:
    """A store that has written, and in whose place another was put since."""
    other = SqliteStore(path.with_name("other.db"))
    other.enqueue_now([new_job()])
    await other.close()
    store.enqueue_now([new_job()])
    for suffix in ("", "-wal", "-shm"):
        shutil.move(f"{path}{suffix}", f"{path}{suffix}.away")
    shutil.move(path.with_name("other.db"), path)
    return store


async def test_connections_that_are_made_later_leave_the_other_file_alone(swapped: SqliteStore, path: Path) -> None:
    content = content_of(path)
    settlement = Settlement(id="x", token=b"t", change=Change.COMPLETE)
    for _ in range(2):
        with pytest.raises(StoreError, match=REFUSAL):
            await swapped.heartbeat(WorkerRecord(id="w", lease_s=60.0))
        with pytest.raises(StoreError, match=REFUSAL):
            await swapped.stats()
        with pytest.raises(StoreError, match=REFUSAL), swapped.transaction(settlement, 1.0):
            pass
    assert content_of(path) == content
    assert not path.with_name("jobs.db-wal").exists()


async def test_a_connection_that_was_made_on_the_other_file_does_not_write(swapped: SqliteStore, path: Path) -> None:
    """It was put there between the look and the opening."""
    turn = swapped._open()._new_turn()
    with closing(apsw.Connection(str(path))) as db:
        with pytest.raises(StoreError, match=REFUSAL):
            turn.begin(db)
        assert not db.in_transaction
    turn.close()


async def test_a_file_that_is_moved_away_is_not_made_anew_and_is_taken_when_it_is_back(
    store: SqliteStore, path: Path
) -> None:
    worker = WorkerRecord(id="w", lease_s=60.0)
    store.enqueue_now([new_job()])
    for suffix in ("", "-wal", "-shm"):
        shutil.move(f"{path}{suffix}", f"{path}{suffix}.away")
    with pytest.raises(StoreError, match=REFUSAL):
        await store.heartbeat(worker)
    assert content_of(path) is None
    for suffix in ("", "-wal", "-shm"):
        shutil.move(f"{path}{suffix}.away", f"{path}{suffix}")
    assert (await store.heartbeat(worker)).is_alive


async def test_when_the_folder_is_gone_everybody_is_told_and_it_can_be_closed(tmp_path: Path) -> None:
    folder, away = tmp_path / "shop", tmp_path / "away"
    folder.mkdir()
    store = SqliteStore(folder / "jobs.db")
    job, later = new_job(), new_job()
    await store.enqueue([job])
    folder.rename(away)
    async with asyncio.timeout(10.0):
        for _ in range(2):
            with pytest.raises(StoreError, match=REFUSAL):
                await store.enqueue([new_job()])
            with pytest.raises(StoreError, match=REFUSAL):
                store.enqueue_now([new_job()])
        away.rename(folder)
        assert (await store.enqueue([later]))[0].is_new
        folder.rename(away)
        await store.close()
    assert jobs_in(away / "jobs.db") == {job.id, later.id}


async def test_a_log_that_is_deleted_is_not_made_anew_by_a_later_connection(store: SqliteStore, path: Path) -> None:
    job = new_job()
    store.enqueue_now([job])
    path.with_name("jobs.db-wal").unlink()
    with pytest.raises(StoreError, match=REFUSAL):
        await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    assert not path.with_name("jobs.db-wal").exists()
    await store.close()
    assert jobs_in(path) == {job.id}


async def test_the_log_stays_while_every_connection_that_was_in_use_is_dropped(store: SqliteStore, path: Path) -> None:
    """SQLite deletes the log with the last one; the next would make another, and be refused."""
    store.enqueue_now([new_job()])
    store._open().writer._drop()
    assert path.with_name("jobs.db-wal").exists()
    assert store.enqueue_now([new_job()])[0].is_new


async def test_a_connection_that_cannot_write_is_opened_anew(store: SqliteStore) -> None:
    store.enqueue_now([new_job()])
    books = store._open().writer._books
    assert books is not None
    books.db.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError, match="cannot be written"):
        store.enqueue_now([new_job()])
    assert store.enqueue_now([new_job()])[0].is_new
