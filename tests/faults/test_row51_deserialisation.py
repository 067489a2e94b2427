"""Row 51: somebody who can write to the store puts pickles, paths of functions and class names there. None is run."""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from holdfast.clock import new_id, new_token
from holdfast.ops.api import build_api
from holdfast.ports import Claim, Exchange, Settlement, ValueChange, WorkerRecord
from holdfast.types import Change, JobState, NewJob
from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store, full_only
from tests.faults.report import Report
from tests.faults.web import UNLIMITED, asking
from tests.faults.workers import CLOCK, poll

pytestmark = busy


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def bombs(fired: Path) -> dict[str, bytes]:
    """What unpickles, loads or imports into harm, if anybody did that with it."""
    call = f"import os; os.mkdir({str(fired)!r})"
    return {
        "pickle 0": pickle.dumps(Bomb(fired), 0),
        "pickle 4": pickle.dumps(Bomb(fired), 4),
        "pickle in JSON": b'{"value": "' + pickle.dumps(Bomb(fired), 0).hex().encode() + b'"}',
        "YAML": b"!!python/object/apply:os.mkdir [" + str(fired).encode() + b"]",
        "class": b'{"value": {"__class__": "os.system", "__reduce__": ["os.mkdir", ["' + str(fired).encode() + b'"]]}}',
        "py/object": b'{"py/object": "os.mkdir", "py/reduce": [["os.mkdir"], ["' + str(fired).encode() + b'"]]}',
        "source": call.encode(),
        "marshal": b"\xe3\x00\x00\x00\x00",
    }


TASKS: Final = ("os.system", "builtins:exec", "tests.faults.shop:os.abort", "__import__", "../echo", "holdfast.app")
LOOKS: Final = (
    "/jobs",
    "/dead-letters",
    "/dead-letters/groups",
    "/dead-letters/export",
    "/replays",
    "/breakers",
    "/queues",
)
LOOKS_AROUND: Final = (
    "/schedules",
    "/overview",
    "/audit",
    "/metrics",
    "/retry/stats",
    "/health",
    "/workers",
    "/alerts",
)


def test_the_bombs_are_live(tmp_path: Path) -> None:
    pickle.loads(bombs(tmp_path / "fired")["pickle 4"])
    assert (tmp_path / "fired").exists()


async def plant(arena: Arena, planted: Mapping[str, bytes]) -> tuple[dict[str, str], list[str], list[str]]:
    """As payloads, as results and as tasks: the ids of each."""
    store = arena.app.store
    ids = {name: new_id() for name in planted}
    await store.enqueue(
        [NewJob(id=ids[name], task="echo", queue="default", payload=data) for name, data in planted.items()]
    )
    results = {name: new_id() for name in planted}
    await store.enqueue([NewJob(id=one, task="work", queue="results", payload=b"{}") for one in results.values()])
    await store.heartbeat(WorkerRecord(id="forger", lease_s=60.0))
    token = new_token()
    await store.exchange(Exchange(claim=Claim(worker="forger", token=token, limit=50, queues=("results",))))
    await store.exchange(
        Exchange(
            settlements=[
                Settlement(id=results[name], token=token, change=Change.COMPLETE, result=data)
                for name, data in planted.items()
            ]
        )
    )
    await store.heartbeat(WorkerRecord(id="forger", lease_s=0.0))
    strange = [new_id() for _ in TASKS]
    await store.enqueue(
        [NewJob(id=one, task=name, queue="default", payload=b"{}") for one, name in zip(strange, TASKS, strict=True)]
    )
    return ids, list(results.values()), strange


@every_store
async def test_what_was_planted_in_the_store_is_never_run(arena: Arena, tmp_path: Path, report: Report) -> None:
    fired = tmp_path / "fired"
    ids, results, strange = await plant(arena, bombs(fired))
    await _run(arena, [*ids.values(), *strange])

    async with asking(build_api(arena.app, UNLIMITED)) as client:
        for path in (*LOOKS, *LOOKS_AROUND, *(f"/jobs/{one}" for one in [*ids.values(), *results])):
            assert (await client.get(path)).status_code < 500, path
        for name in TASKS:
            answer = await client.post("/jobs", json={"task": name, "arguments": {}})
            assert answer.status_code == 404, name

    (spoilt,) = await arena.app.store.get([ids["pickle 4"]])
    assert spoilt is not None
    assert spoilt.state is JobState.DEAD_LETTER
    _report(arena, fired, "pickles, YAML and paths of functions planted in the store", report)


@full_only
@every_store
def test_what_was_planted_is_run_by_no_worker_process_and_no_server(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    fired = tmp_path / "fired"
    ids, results, strange = arena.app.bridge.run(plant(arena, bombs(fired)))
    looked_at = [*ids.values(), *strange]
    with arena.fleet() as fleet, ApiProcess(tmp_path, arena.engine.url) as server, server.client("admin") as client:
        pid = fleet.start()
        poll(lambda: all(one.state not in _UNSEEN for one in arena.get(looked_at)), 30, "the worker looks at each")
        for path in (*LOOKS, *LOOKS_AROUND, *(f"/jobs/{one}" for one in [*ids.values(), *results])):
            assert client.get(path).status_code < 500, path
        for name in TASKS:
            assert client.post("/jobs", json={"task": name, "arguments": {}}).status_code == 404, name
        after = arena.enqueue([arena.call("work", 0)])
        poll(lambda: arena.states(after) == {"completed": 1}, 20, "the worker goes on")
        assert fleet.running == [pid], f"the worker ended by itself: {fleet.log()}"
    assert "Traceback" not in server.log, server.log[-2000:]
    assert arena.states([ids["pickle 4"]]) == {"dead_letter": 1}
    what = "pickles, YAML and paths of functions planted in the store of a running server and worker"
    _report(arena, fired, what, report)


def _report(arena: Arena, fired: Path, what: str, report: Report) -> None:
    ran = {one.task for one in arena.effects()} & set(TASKS)
    assert not fired.exists()
    assert ran == set()
    count = len(bombs(fired))
    report(
        what,
        injected=2 * count + len(TASKS),
        note=f"{count} as payload and as result, {len(TASKS)} paths as tasks, executed {fired.exists() + len(ran)}",
    )


_UNSEEN: Final = (JobState.QUEUED, JobState.RUNNING)


async def _run(arena: Arena, ids: list[str]) -> None:
    """Until a worker has looked at each of these; tasks that it does not know are kept for one that may."""
    worker = asyncio.create_task(arena.app.arun_until_idle())
    async with CLOCK.timeout(20):
        while any(one is None or one.state in _UNSEEN for one in await arena.app.store.get(ids)):
            await CLOCK.asleep(0.02)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


KEYS: Final = ("audit", "breaker:echo", "queue:default", "schedule:nightly", "replay:x", "limit:echo", "alert:x")


async def test_a_spoilt_value_of_the_store_is_never_run(arena: Arena, tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    store = arena.app.store
    versions = dict.fromkeys(KEYS, 0)
    async with asking(build_api(arena.app, UNLIMITED)) as client:
        for data in bombs(fired).values():
            known = await store.exchange(Exchange())  # the trail is written to meanwhile
            versions.update((value.key, value.version) for value in known.values if value.key in versions)
            changes = [ValueChange(key, version, data) for key, version in versions.items()]
            await store.exchange(Exchange(changes=changes))
            for path in (*LOOKS, *LOOKS_AROUND):
                await client.get(path)
    assert not fired.exists()
