"""Full disks, broken disks, forks and kills: what was acknowledged stays, and the store goes on."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest

from holdfast.clock import new_id, new_token
from holdfast.errors import StoreError
from holdfast.ports import Claim, Exchange, Operation, Query, Settlement, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite import reserve as reserving
from holdfast.stores.sqlite import settle as settling
from holdfast.stores.sqlite.reserve import Reserve
from holdfast.testing import ManualClock
from holdfast.types import Change, JobState, NewJob
from tests.unit.stores.sqlite.conftest import CheckBooks

PRODUCER = """
import asyncio, sys
from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import Change, NewJob

async def main():
    store = SqliteStore(sys.argv[1])
    worker = new_id()
    await store.heartbeat(WorkerRecord(id=worker, lease_s=60.0))
    done = []
    while True:
        ids = [new_id() for _ in range(5)]
        await store.enqueue([NewJob(id=id, task="greet", payload=b"{}") for id in ids])
        claim = Claim(worker=worker, token=new_token(), limit=3)
        got = await store.exchange(Exchange(settlements=done, claim=claim))
        print("enqueued", *ids, "completed", *(one.id for one in done), flush=True)
        done = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in got.deliveries]

asyncio.run(main())
"""

MIB = 1024 * 1024


class Usage(NamedTuple):
    """What `shutil.disk_usage` answers."""

    total: int
    used: int
    free: int


def new_job(payload: bytes = b"{}") -> NewJob:
    return NewJob(id=new_id(), task="greet", payload=payload)


def writing_connection(store: SqliteStore) -> apsw.Connection:
    books = store._open().writer._books
    assert books is not None
    return books.db


async def test_a_full_disk_refuses_new_jobs_and_heals_by_itself(
    store: SqliteStore, path: Path, check_books: CheckBooks
) -> None:
    kept = new_job()
    await store.enqueue([kept])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1)))
    db = writing_connection(store)
    pages = db.execute("PRAGMA page_count").fetchall()[0][0]
    db.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    with pytest.raises(StoreError, match="disk is full") as caught:
        await store.enqueue([new_job(b"x" * 100_000)])
    assert isinstance(caught.value.__cause__, apsw.FullError)
    assert path.with_name("jobs.db.reserve").exists()  # kept for what is under way
    done = Settlement(id=kept.id, token=got.deliveries[0].token, change=Change.COMPLETE)
    assert (await store.exchange(Exchange(settlements=[done]))).settled == [True]
    db.execute("PRAGMA max_page_count = 1000000").fetchall()
    assert (await store.enqueue([new_job(b"x" * 100_000)]))[0].is_new
    check_books()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of six megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("A SMALL DISK CANNOT BE MOUNTED HERE")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            continue
    return ballast


async def test_on_a_full_disk_all_that_runs_is_settled_however_many_new_jobs_were_refused(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "jobs.db")
    await store.enqueue([new_job() for _ in range(60)])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=60)))
    ballast = fill(small_disk)
    refused = 0
    for _ in range(200):
        try:
            await store.enqueue([new_job(b"y" * 3000)])
        except StoreError:
            refused += 1
    assert refused > 100
    for one in got.deliveries:
        done = Settlement(id=one.id, token=one.token, change=Change.COMPLETE, result=b"r" * 2000)
        assert (await store.exchange(Exchange(settlements=[done]))).settled == [True]
        assert (await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))).is_alive
        with suppress(StoreError):
            await store.enqueue([new_job(b"y" * 3000)])
    ballast.unlink()
    assert (await store.enqueue([new_job(b"y" * 3000)]))[0].is_new
    await store.close()


async def test_on_a_full_disk_people_can_cancel_and_remove_everything(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "jobs.db")
    ids: list[str] = []
    with pytest.raises(StoreError, match="disk is full"):
        while job := new_job(b"x" * 10_000):
            await store.enqueue([job])
            ids.append(job.id)
    assert len(ids) > 100
    assert all(one.is_done for one in await store.change(Operation(change=Change.CANCEL, ids=ids, keep_s=0.0)))
    n_pruned = 0
    while n := await store.prune(1000):
        n_pruned += n
    assert n_pruned == len(ids)
    await store.close()


def test_a_reserve_is_not_made_of_the_space_that_it_gave_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Usage(total=8 * MIB, used=MIB, free=7 * MIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    clock, db = ManualClock(), apsw.Connection(str(path))
    reserve = Reserve(str(path), clock)
    assert reserve.make()
    file = path.with_name("jobs.db.reserve")
    size = file.stat().st_size
    assert size == 7 * MIB // 10
    assert len(list(reserve.make_room(db))) == 2
    assert not file.exists()
    disk = Usage(total=8 * MIB, used=8 * MIB - size, free=size)
    reserve.keep(db)
    assert not reserve.is_kept(db)
    disk = Usage(total=8 * MIB, used=7 * MIB, free=MIB)  # somebody has made room
    clock.advance(60.0)
    reserve.keep(db)
    assert file.exists()
    assert reserve.is_kept(db)
    db.close()


async def test_while_the_reserve_is_gone_new_jobs_are_refused_at_once(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue([new_job()])
    path.with_name("jobs.db.reserve").unlink()  # another process has spent it
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(total=100 * MIB, used=98 * MIB, free=2 * MIB))
    with pytest.raises(StoreError, match="disk is full"):
        store.enqueue_now([new_job()])
    assert (await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))).is_alive
    assert len((await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=9)))).deliveries) == 1
    monkeypatch.undo()
    assert store.enqueue_now([new_job()])[0].is_new
    assert path.with_name("jobs.db.reserve").stat().st_size == 2 * MIB


async def test_a_disk_that_does_not_say_how_full_it_is_keeps_nobody_from_writing(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> Usage:
        raise OSError(errno.EIO, "statvfs failed")

    monkeypatch.setattr(shutil, "disk_usage", broken)
    monkeypatch.setattr(reserving, "_LOOK_EVERY_PAGES", 1)  # after every commit
    async with asyncio.timeout(10.0):
        for _ in range(2):
            assert store.enqueue_now([new_job()])[0].is_new
            assert (await store.enqueue([new_job()]))[0].is_new
            path.with_name("jobs.db.reserve").unlink(missing_ok=True)  # so it is asked for before each write, too
    monkeypatch.undo()
    assert store.enqueue_now([new_job()])[0].is_new
    assert path.with_name("jobs.db.reserve").exists()


async def test_after_a_failed_write_the_connection_is_not_used_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, check_books: CheckBooks
) -> None:
    await store.enqueue([new_job()])
    writer = store._open().writer
    broken = writing_connection(store)
    real_end = writer._turn.end

    def fail_once(db: apsw.Connection) -> None:
        monkeypatch.setattr(writer._turn, "end", real_end)
        raise apsw.IOError("fsync failed")

    monkeypatch.setattr(writer._turn, "end", fail_once)
    with pytest.raises(StoreError, match="reading or writing the disk failed"):
        await store.enqueue([new_job()])
    assert (await store.enqueue([new_job()]))[0].is_new
    assert writing_connection(store) is not broken
    assert len((await store.find(Query())).items) == 2
    check_books()


@pytest.mark.parametrize("is_new_store", [False, True])
async def test_a_forked_child_is_refused_the_file_that_its_parent_has_open(
    store: SqliteStore, path: Path, check_books: CheckBooks, is_new_store: bool
) -> None:
    store.enqueue_now([new_job()])

    def write() -> None:
        (SqliteStore(path) if is_new_store else store).enqueue_now([new_job()])

    with pytest.raises(AssertionError, match="forked from one that has the file open"):
        in_a_child(write)
    store.enqueue_now([new_job()])
    assert len((await store.find(Query())).items) == 2
    check_books()


async def test_a_forked_child_opens_a_file_that_its_parent_has_closed(store: SqliteStore, path: Path) -> None:
    store.enqueue_now([new_job()])
    await store.close()

    in_a_child(lambda: SqliteStore(path).enqueue_now([new_job()]))

    assert len((await SqliteStore(path).find(Query())).items) == 2


async def test_a_forked_child_is_refused_its_parents_file_under_any_name_and_not_another_in_its_place(
    store: SqliteStore, path: Path
) -> None:
    store.enqueue_now([new_job()])
    away = path.with_name("away.db")
    shutil.move(path, away)
    with pytest.raises(AssertionError, match="forked from one that has the file open"):
        in_a_child(lambda: SqliteStore(away).capabilities)
    for suffix in ("-wal", "-shm"):
        shutil.move(f"{path}{suffix}", f"{away}{suffix}")
    in_a_child(lambda: SqliteStore(path).enqueue_now([new_job()]))
    assert len((await SqliteStore(path).find(Query())).items) == 1


def in_a_child(do: Callable[[], object]) -> None:
    """Fork, do it there, and fail as it did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as line:
        told = line.read().decode()
    os.waitpid(child, 0)
    assert not told, told


@pytest.mark.parametrize("lines", [1, 7, 40])
async def test_a_process_killed_at_any_line_loses_nothing_that_it_was_told(
    store: SqliteStore, path: Path, check_books: CheckBooks, lines: int
) -> None:
    enqueued: set[str] = set()
    completed: set[str] = set()
    command = [sys.executable, "-c", PRODUCER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        for _ in range(lines):
            words = process.stdout.readline().split()
            split = words.index("completed")
            enqueued.update(words[1:split])
            completed.update(words[split + 1 :])
        process.send_signal(signal.SIGKILL)
    records = {record.id: record for record in (await store.find(Query(limit=10_000))).items}
    assert enqueued <= records.keys()
    assert all(records[id].state is JobState.COMPLETED for id in completed)  # noqa: A001
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    orphans = await store.reclaim("w", new_token(), 100)
    running = [record.id for record in records.values() if record.state is JobState.RUNNING]
    assert sorted(orphan.id for orphan in orphans) == sorted(running)
    check_books()


async def test_without_its_fence_a_stale_settlement_would_take_effect(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.enqueue([new_job()])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=1)))
    stale = Settlement(id=got.deliveries[0].id, token=new_token(), change=Change.COMPLETE)
    assert (await store.exchange(Exchange(settlements=[stale]))).settled == [False]
    lines = settling._SQL["complete"].splitlines()
    assert lines[-1].strip() == "AND state = 'running' AND token = unhex(one.value ->> 1)"
    monkeypatch.setattr(settling, "_SQL", {**settling._SQL, "complete": "\n".join(lines[:-1])})
    assert (await store.exchange(Exchange(settlements=[stale]))).settled == [True]
