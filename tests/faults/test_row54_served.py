"""Row 54 on the running server: one tenant tries for the other's jobs, by id, by list, by export and by stream."""

from __future__ import annotations

from pathlib import Path

import httpx

from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, WorkerRecord
from holdfast.types import Change, NewJob
from tests.faults.api_server import ApiProcess
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store, full_only
from tests.faults.report import Report
from tests.faults.test_row54_tenants import ROUTES
from tests.faults.workers import poll

pytestmark = busy

LISTS = ("/jobs", "/dead-letters", "/retry/dead-letters", "/dead-letters/groups")
ASKED = ("", "?tenant=b", "?tenant=", "?text=b", "?tenant=a&tenant=b")
LETTERS = {"a": 3, "b": 2}
"""Not as many, so that it can be told whose were counted."""
EXPORTS = ("/dead-letters/export?tenant=b", "/dead-letters/export?format=csv&tenant=b")


async def filled(arena: Arena) -> dict[str, list[str]]:
    """Of each tenant so many letters, and as many jobs after them, with its name in all that they hold."""
    store = arena.app.store
    ids: dict[str, list[str]] = {"a": [], "b": []}
    for delay_s in (0.0, 3600.0):
        for tenant, mine in ids.items():
            new = [
                NewJob(
                    id=new_id(),
                    task="echo",
                    payload=b'{"value":"of %s"}' % tenant.encode(),
                    tenant=tenant,
                    delay_s=delay_s,
                )
                for _ in range(LETTERS[tenant])
            ]
            await store.enqueue(new)
            mine += [one.id for one in new]
    await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
    reply = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=100)))
    assert len(reply.deliveries) == sum(LETTERS.values())
    ends = [
        Settlement(id=one.id, token=one.token, change=Change.BURY, reason=f"of {one.tenant}")
        for one in reply.deliveries
    ]
    await store.exchange(Exchange(settlements=ends))
    await store.heartbeat(WorkerRecord(id="w", lease_s=0.0))
    return ids


def _are_done(client: httpx.Client) -> bool:
    replays = client.get("/replays").json()["items"]
    assert len(replays) == 2
    return all(one["state"] == "done" for one in replays)


@full_only
@every_store
def test_no_tenant_gets_at_anothers_jobs_through_the_running_server(
    arena: Arena, tmp_path: Path, report: Report
) -> None:
    ids = arena.app.bridge.run(filled(arena))
    before = arena.get(ids["b"])
    asked = 0
    leaks: list[str] = []
    with ApiProcess(tmp_path, arena.engine.url) as server, server.client("tenant a") as client:
        assert len(client.get("/jobs").json()["items"]) == 2 * LETTERS["a"], "it does not even see its own"
        for route in ROUTES:
            method, _, path = route.partition(" ")
            for one in ids["b"]:
                theirs = client.request(method, path.format(one))
                nobodys = client.request(method, path.format(f"0{one[1:]}"))
                assert theirs.status_code == nobodys.status_code == 404, route
                assert theirs.text.replace(one, "") == nobodys.text.replace(f"0{one[1:]}", ""), route
                asked += 1
        for path in [f"{path}{query}" for path in LISTS for query in ASKED] + list(EXPORTS):
            answer = client.get(path)
            assert answer.status_code in {200, 422}, path
            leaks += [f"{one} by {path}" for one in (*ids["b"], "of b") if one in answer.text]
            asked += 1
        for action in ("cancel", "retry"):
            done = client.post(f"/jobs/{action}", json={"ids": ids["b"]}).json()["items"]
            assert {(one["is_done"], one["state"]) for one in done} == {(False, None)}
            asked += len(ids["b"])
        with client.stream("GET", "/events") as events:
            heard = next(events.iter_text())
            leaks += [f"{one} by /events" for one in (*ids["b"], "of b") if one in heard]
            asked += 1
        for body in ({}, {"filter": {"tenant": "b"}}):
            preview = client.post("/replays/preview", json=body)
            leaks += [f"{one} by a preview" for one in (*ids["b"], "of b") if one in preview.text]
            started = client.post("/replays", json={**body, "rate": 1e6})
            assert (preview.status_code, started.status_code) == (200, 201)
            assert preview.json()["total"] == started.json()["total"] == LETTERS["a"]
            assert started.json()["tenant"] == "a"
            asked += 2
        with arena.fleet() as fleet:
            fleet.start()
            poll(lambda: _are_done(client), 30, "both replays are done")
            poll(lambda: arena.states(ids["a"])["completed"] == LETTERS["a"], 30, "its own letters have run")
            fleet.stop()
    changed = [now.id for then, now in zip(before, arena.get(ids["b"]), strict=True) if now != then]
    assert leaks == []
    assert changed == []
    report(
        "one tenant asks the running server for the other's jobs",
        injected=asked,
        note=f"leaks {len(leaks)}, changes {len(changed)}",
    )
