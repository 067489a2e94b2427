"""A worker whose process is gone is given up at once; one that lives is not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import NewJob

WORKER = """
import asyncio, os, sys
from holdfast.clock import new_token
from holdfast.ports import Claim, Exchange, WorkerRecord
from holdfast.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.heartbeat(WorkerRecord(id="a/worker", lease_s=3600.0))
    got = await store.exchange(Exchange(claim=Claim(worker="a/worker", token=new_token(), limit=1)))
    if sys.argv[2] == "fork":
        heard, told = os.pipe()
        if os.fork() == 0:
            os.write(told, b".")  # it runs, so what is done after a fork has been done
            sys.stdin.readline()  # the child lives on, until the test closes the pipe
            os._exit(0)
        os.read(heard, 1)
    print(got.deliveries[0].id, flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


async def orphans_after_kill(store: SqliteStore, path: Path, how: str) -> None:
    job = NewJob(id=new_id(), task="greet", payload=b"{}")
    await store.enqueue([job])
    await store.heartbeat(WorkerRecord(id="me", lease_s=60.0))
    command = [sys.executable, "-c", WORKER, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        assert process.stdout.readline().decode().strip() == job.id
        assert await store.reclaim("me", new_token(), 10) == []  # it lives, and holds its lock
        process.send_signal(signal.SIGKILL)
        process.wait()
        orphans = await store.reclaim("me", new_token(), 10)
        assert [(orphan.id, orphan.worker) for orphan in orphans] == [(job.id, "a/worker")]
    assert [worker.id for worker in (await store.stats()).workers] == ["me"]
    assert [file.name for file in path.with_name("jobs.db.workers").iterdir()] == ["me.lock"]


async def test_a_killed_workers_jobs_come_back_long_before_its_lease_is_over(store: SqliteStore, path: Path) -> None:
    await orphans_after_kill(store, path, "plain")


async def test_a_forked_child_does_not_keep_its_parents_lock(store: SqliteStore, path: Path) -> None:
    await orphans_after_kill(store, path, "fork")


async def test_workers_of_one_process_do_not_give_each_other_up(store: SqliteStore, path: Path) -> None:
    other = SqliteStore(path)
    await store.enqueue([NewJob(id=new_id(), task="greet", payload=b"{}")])
    await store.heartbeat(WorkerRecord(id="one", lease_s=60.0))
    await store.exchange(Exchange(claim=Claim(worker="one", token=new_token(), limit=1)))
    for worker, asked in (("two", store), ("three", other)):
        await asked.heartbeat(WorkerRecord(id=worker, lease_s=60.0))
        assert await asked.reclaim(worker, new_token(), 10) == []
    await other.close()


async def test_without_its_file_a_workers_lease_decides(store: SqliteStore, path: Path) -> None:
    await store.heartbeat(WorkerRecord(id="one", lease_s=60.0))
    await store.heartbeat(WorkerRecord(id="two", lease_s=600.0))
    for file in path.with_name("jobs.db.workers").iterdir():
        file.unlink()
    await store.reclaim("two", new_token(), 10)
    assert [worker.id for worker in (await store.stats()).workers] == ["one", "two"]
    store.clock_offset_s += 61.0
    await store.reclaim("two", new_token(), 10)
    assert [worker.id for worker in (await store.stats()).workers] == ["two"]


async def test_taking_leave_removes_the_file(store: SqliteStore, path: Path) -> None:
    await store.heartbeat(WorkerRecord(id="one", lease_s=60.0))
    await store.heartbeat(WorkerRecord(id="one", lease_s=0.0))
    assert list(path.with_name("jobs.db.workers").iterdir()) == []
