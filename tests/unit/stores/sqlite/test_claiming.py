"""Claims over many lanes, news between processes, and the loader of queries."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.clock import SystemClock, new_id, new_token
from holdfast.ports import Claim, Exchange, WorkerRecord
from holdfast.stores.picking import Head, pick
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.sqlite.queries import load
from holdfast.types import NewJob
from tests.unit.stores.sqlite.conftest import CheckBooks


async def claimed(store: SqliteStore, limit: int, **caps: int) -> list[str]:
    claim = Claim(
        worker="w", token=new_token(), limit=limit, caps={name.replace("_", ":"): n for name, n in caps.items()}
    )
    return [delivery.task for delivery in (await store.exchange(Exchange(claim=claim))).deliveries]


def job(task: str, priority: int = 0) -> NewJob:
    return NewJob(id=new_id(), task=task, payload=b"{}", priority=priority)


async def test_of_hundreds_of_lanes_every_job_is_claimed_once(store: SqliteStore, check_books: CheckBooks) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    tasks = [f"t{number:03}" for number in range(600)]
    await store.enqueue([job(task) for task in tasks])
    got: list[str] = []
    while some := await claimed(store, 97):
        got += some
    assert sorted(got) == tasks
    check_books()


async def test_a_lane_that_holds_all_the_first_jobs_is_followed_to_its_end(store: SqliteStore) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    await store.enqueue([job(f"low{number}") for number in range(10)])
    await store.enqueue([job("high", priority=1) for _ in range(100)])
    assert await claimed(store, 99) == ["high"] * 99
    assert await claimed(store, 3) == ["high", "low0", "low1"]


async def test_a_cap_over_several_lanes_leaves_room_for_the_others(store: SqliteStore) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    await store.enqueue(
        [job("a", 2) for _ in range(50)] + [job("b", 1) for _ in range(50)] + [job("c") for _ in range(50)]
    )
    assert await claimed(store, 60, task_a=3, task_b=0) == ["a"] * 3 + ["c"] * 50


async def test_of_each_lane_no_more_heads_are_read_than_may_be_taken(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def spy(heads: list[Head], *rest: Any) -> Any:
        read.append(len(heads))
        return pick(heads, *rest)

    monkeypatch.setattr("holdfast.stores.sqlite.claim.pick", spy)
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    await store.enqueue([job(f"t{n % 50}") for n in range(50 * 40)])
    for per_lane in (2, 3):
        claim = Claim(worker="w", token=new_token(), limit=32, per_lane=per_lane)
        assert len((await store.exchange(Exchange(claim=claim))).deliveries) == 32
    assert read == [50 * 2, 50 * 3]


async def test_the_heads_of_each_lane_come_in_order_out_of_the_index(store: SqliteStore, path: Path) -> None:
    assert store.capabilities
    plan = "EXPLAIN QUERY PLAN " + load("claim.sql")["heads"]
    values = {"lanes": apsw.carray(array("q", [1])), "limit": 2}
    steps = [row[3] for row in apsw.Connection(str(path)).execute(plan, values)]
    assert any("USING COVERING INDEX holdfast_jobs_ready (lane=?)" in step for step in steps), steps
    assert not any("TEMP B-TREE FOR ORDER BY" in step for step in steps), steps


async def test_another_processes_commit_ends_the_wait(store: SqliteStore, path: Path) -> None:
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    assert await claimed(store, 1) == []
    script = (
        "import sys; from holdfast.clock import new_id; from holdfast.types import NewJob\n"
        "from holdfast.stores.sqlite import SqliteStore\n"
        "SqliteStore(sys.argv[1]).enqueue_now([NewJob(id=new_id(), task='greet', payload=b'{}')])"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command):  # noqa: ASYNC220 - starting it takes no time
        async with SystemClock().timeout(60.0):
            while not await claimed(store, 1):
                await store.wait(50.0)


def test_queries_are_loaded_by_name() -> None:
    assert load("settle.sql")["complete"].startswith("UPDATE holdfast_jobs")
    assert all(not line.startswith("--") for query in load("claim.sql").values() for line in query.splitlines())


@pytest.mark.parametrize("query", ["complete", "settle"])
def test_the_fence_is_one_line_of_each_settling_query(query: str) -> None:
    guard = load("settle.sql")[query].partition("WHERE")[2]
    fences = [line.strip() for line in guard.splitlines() if "token" in line]
    assert fences == ["AND state = 'running' AND token = unhex(one.value ->> 1)"]


async def test_a_claim_is_late_also_in_the_same_commit_as_the_later_one(store: SqliteStore) -> None:
    await store.enqueue([job("greet"), job("greet")])
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    tokens = new_token(), new_token()
    asked = [store.exchange(Exchange(claim=Claim(worker="w", token=one, limit=1))) for one in reversed(tokens)]
    busy = asyncio.ensure_future(store.enqueue([job("greet")]))  # while this is committed, they gather
    later, early = await asyncio.gather(*asked)
    await busy
    assert (len(later.deliveries), len(early.deliveries)) == (1, 0)
