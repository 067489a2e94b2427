"""New jobs that are known already, mostly or all: such as the links of a page, each with an id made of its address."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import apsw
import pytest

from holdfast.clock import new_id, new_secret, new_token
from holdfast.ports import Claim, Enqueued, Exchange, Settlement, WorkerRecord
from holdfast.stores.sqlite import SqliteStore
from holdfast.types import Change, JobState, NewJob
from tests.unit.stores.sqlite.conftest import CheckBooks


def link(n: int = 0, domain: str = "example.org") -> NewJob:
    gates = ("crawl", domain)
    return NewJob(id=str(UUID(bytes=new_secret(), version=4)), task="crawl", payload=b"%d" % n, gates=gates)


class Watcher:
    """Somebody else's connection: sees whether anything was committed."""

    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        self._log = path.with_name(f"{path.name}-wal")

    def seen(self) -> tuple[object, int, int]:
        """Changes with every commit that has written a page."""
        state = self._log.stat()
        return self.db.execute("PRAGMA data_version").get, state.st_size, state.st_mtime_ns


async def test_a_batch_that_is_all_known_writes_nothing(store: SqliteStore, path: Path) -> None:
    links = [link(n, f"d{n % 7}") for n in range(60)]
    await store.enqueue(links)
    watcher = Watcher(path)
    before = watcher.seen()
    for start in range(0, 60, 20):
        assert not any(answer.is_new for answer in await store.enqueue(links[start : start + 20]))
    assert watcher.seen() == before
    await store.enqueue([*links[:19], link()])
    assert watcher.seen() != before


async def test_a_batch_that_is_all_known_does_not_wait_for_who_writes(store: SqliteStore, path: Path) -> None:
    links = [link(n) for n in range(5)]
    await store.enqueue(links)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    known = [Enqueued(one.id, is_new=False) for one in links]
    assert await store.enqueue(links) == known
    assert store.enqueue_now(links) == known, "the lock is another's still"
    other.execute("ROLLBACK")
    other.close()


async def test_a_look_tells_the_state_of_now(store: SqliteStore) -> None:
    job = link()
    await store.enqueue([job])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    token = new_token()
    await store.exchange(Exchange(claim=Claim(worker="w", token=token, limit=1)))
    assert await store.enqueue([job]) == [Enqueued(job.id, is_new=False, state=JobState.RUNNING)]
    await store.exchange(Exchange(settlements=[Settlement(id=job.id, token=token, change=Change.COMPLETE)]))
    assert await store.enqueue([job, job]) == [Enqueued(job.id, is_new=False, state=JobState.COMPLETED)] * 2


@pytest.mark.parametrize("size", [1, 3, 20, 150])
async def test_only_those_that_are_new_are_written_and_marked(
    store: SqliteStore, path: Path, check_books: CheckBooks, size: int
) -> None:
    """Marks of lanes that got no job would make a search look where there is nothing."""
    known = [link(n, f"d{n}") for n in range(size)]
    await store.enqueue(known)
    await store.enqueue([link(0, "filler") for _ in range(300)])  # so that the next one is in another block
    db = Watcher(path).db
    before = set(db.execute("SELECT name, block FROM holdfast_marks"))
    new = link(0, "d0")
    answers = await store.enqueue([*known, new, new])
    assert [answer.is_new for answer in answers] == [*[False] * size, True, False]
    added = set(db.execute("SELECT name, block FROM holdfast_marks")) - before
    assert len(added) == 1
    check_books()


async def test_ids_made_of_the_time_are_not_looked_for_first(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []
    monkeypatch.setattr("holdfast.stores.sqlite.enqueue.known_states", looked.append)
    monkeypatch.setattr("holdfast.stores.sqlite.writer.known_states", looked.append)
    job = NewJob(id=new_id(), task="greet", payload=b"{}")
    assert await store.enqueue([job]) == [Enqueued(job.id)]
    assert await store.enqueue([job]) == [Enqueued(job.id, is_new=False)]
    assert looked == []
