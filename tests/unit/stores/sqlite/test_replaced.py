"""A file that is replaced, moved or deleted under a process takes nothing more from it: nobody would find it again."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from holdfast.clock import new_id
from holdfast.errors import StoreAway, StoreError
from holdfast.ports import WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import NewJob

REFUSAL = "replaced, moved or deleted while in use, nothing was written; restart"


def new_job() -> NewJob:
    return NewJob(id=new_id(), task="greet", payload=b"{}")


def jobs_in(path: Path) -> set[str]:
    db = apsw.Connection(str(path))
    try:
        return {one for (one,) in db.execute("SELECT id FROM holdfast_jobs")}
    finally:
        db.close()


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


async def test_a_connection_that_cannot_write_is_opened_anew(store: SqliteStore) -> None:
    store.enqueue_now([new_job()])
    books = store._open().writer._books
    assert books is not None
    books.db.execute("PRAGMA query_only = 1")
    with pytest.raises(StoreError, match="cannot be written"):
        store.enqueue_now([new_job()])
    assert store.enqueue_now([new_job()])[0].is_new
