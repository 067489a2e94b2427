"""Row 50: strings that are SQL, Lua, patterns, paths or keys to somebody. They are text, and find only themselves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final
from urllib.parse import quote

import httpx

from holdfast.clock import new_id
from holdfast.ops.api import build_api
from holdfast.types import NewJob
from tests.faults.arena import Arena
from tests.faults.conftest import busy, every_store
from tests.faults.report import Figures, Report
from tests.faults.web import UNLIMITED, asking

pytestmark = busy

HOSTILE: Final = (
    "' OR 1=1--",
    "'; DROP TABLE holdfast_jobs; --",
    '" OR ""="',
    "x') UNION SELECT payload FROM holdfast_jobs --",
    "%",
    "_",
    "%' ESCAPE '",
    "\\",
    "*",
    "[a-z]*",
    "holdfast_*",
    "{other}:state",
    "}{\r\nFLUSHALL\r\n",
    "a\nb",
    "$1",
    "%(task)s",
    ":task",
    "?",
    "{0.__class__}",
    "return redis.call('FLUSHALL')",
    "../../etc/passwd",
    "$.payload",
    "$(touch x)",
    "`id`",
    "${jndi:ldap://x}",
    "a\x00b",
    "\U0001f980",
    "-1",
    "1e999",
    "9" * 30,
    "true",
    "null",
    "NaN",
)
FILTERS: Final = {
    "/jobs": ("task", "queue", "tenant", "user", "project", "text", "cursor", "state", "since", "limit", "sort"),
    "/dead-letters": ("group", "task", "tenant", "text", "cursor", "failure_type", "until", "order"),
    "/dead-letters/groups": ("group", "task", "tenant", "text", "sort"),
    "/dead-letters/export": ("group", "task", "tenant", "text", "format"),
    "/retry/dead-letters": ("group", "task", "tenant", "text", "cursor"),
}
EXACT: Final = ("task", "queue", "tenant", "user", "project", "group")
"""Filters that find what has this name, which nothing here has."""
QUEUED: Final = 5
BURIED: Final = 3
IN_PATHS: Final = (
    "POST /queues/{}/pause",
    "POST /queues/{}/resume",
    "GET /jobs/{}",
    "POST /jobs/{}/cancel",
    "POST /jobs/{}/retry",
    "GET /dead-letters/{}",
    "DELETE /dead-letters/{}",
    "POST /dead-letters/{}/retry",
    "POST /replays/{}/stop",
    "POST /breakers/{}/reset",
    "POST /breakers/{}/force-open",
    "POST /schedules/{}/pause",
    "POST /tasks/{}/validate",
    "POST /retry/circuit-breakers/{}/reset",
    "POST /retry/simulate-failure?task_type={}",
)
IN_BODIES: Final = ("queue", "idempotency_key", "tenant", "user", "project", "task")


class Attack:
    """Sends hostile strings to every place that takes one, and keeps what broke."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.asked = 0
        self.broken: list[tuple[str, str, int]] = []

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        self.asked += 1
        answer = await self._client.request(method, path, **options)
        if answer.status_code >= 500:
            self.broken.append((method, f"{path} {options}", answer.status_code))
        return answer

    async def filter(self, path: str, name: str, text: str, kept: Collection[str]) -> list[str]:
        """What an exact filter finds that has another name: which of these ids, and of all jobs, in which there are
        others by and by that have it.
        """
        answer = await self.send("GET", path, params={name: text})
        if name not in EXACT:
            return []
        jobs = answer.json()["items"] if path == "/jobs" and answer.status_code == 200 else []
        return [one for one in kept if one in answer.text] + [job["id"] for job in jobs if job[name] != text]

    async def look(self, kept: Collection[str]) -> None:
        """See that without a filter each list has something that a filter could let through."""
        for path in FILTERS:
            answer = (await self._client.get(path)).text
            assert any(one in answer for one in kept), f"{path} has none of them: this run shows nothing"

    async def act(self, route: str, text: str) -> None:
        method, _, path = route.partition(" ")
        body: Any = {"arguments": {}} if path.endswith("/validate") else None
        await self.send(method, path.format(quote(text, safe="")), json=body)

    async def submit(self, field: str, text: str) -> None:
        body = {"task": "echo", "arguments": {"value": text}, "user": "hostile", field: text}
        made = await self.send("POST", "/jobs", json=body)
        if made.status_code == 201:
            job = (await self.send("GET", f"/jobs/{made.json()['id']}")).json()
            assert (job["arguments"], job[field]) == ({"value": text}, text)


async def filled(arena: Arena) -> dict[str, str]:
    """Jobs and dead letters by their ids, with the state that each is in and has to stay in."""
    bad = [NewJob(id=new_id(), task="count", payload=b'{"value":"no number"}') for _ in range(BURIED)]
    await arena.app.store.enqueue(bad)
    await arena.app.arun_until_idle()
    jobs = await arena.app.aenqueue_many([arena.call("echo", f"kept {number}") for number in range(QUEUED)])
    return {**{one.id: "dead_letter" for one in bad}, **{one.id: "queued" for one in jobs}}


async def changed(arena: Arena, kept: dict[str, str]) -> list[str]:
    """Which of these are gone, or are not what they were."""
    left = await arena.app.store.get(list(kept))
    return [id_ for id_, one in zip(kept, left, strict=True) if one is None or one.state.value != kept[id_]]


@every_store
async def test_what_is_code_to_somebody_is_text_here(arena: Arena, is_full: bool, report: Report) -> None:
    kept = await filled(arena)
    places: list[tuple[str, str]] = [(path, name) for path, names in FILTERS.items() for name in names]
    places += [("", route) for route in (*IN_PATHS, *IN_BODIES)]
    async with asking(build_api(arena.app, UNLIMITED)) as client:
        attack = Attack(client)
        await attack.look(kept)
        for number, text in enumerate(HOSTILE):
            for path, name in places if is_full else places[number % 5 :: 5]:
                if path:
                    assert await attack.filter(path, name, text, kept) == [], (path, name, text)
                elif " " in name:
                    await attack.act(name, text)
                else:
                    await attack.submit(name, text)

    assert attack.broken == []
    lost = await changed(arena, kept)
    assert lost == []
    report(
        "SQL, Lua, patterns, paths and keys in every filter, id, name and key",
        injected=attack.asked,
        figures=Figures(acked=len(kept), lost=len(lost)),
        note=f"{len(HOSTILE)} strings, 5xx {len(attack.broken)}",
    )


@every_store
async def test_a_pattern_finds_only_itself(arena: Arena) -> None:
    marked = {text: arena.app.tasks["echo"].enqueue(f"<{text}>").id for text in ("%", "_", "*", "a%b", "[x]", "\\")}
    arena.app.tasks["echo"].enqueue("<x> <axb>")
    async with asking(build_api(arena.app, UNLIMITED)) as client:
        for text, id_ in marked.items():
            wanted = f"<{text}>".replace("\\", "\\\\")  # as JSON has it
            found = (await client.get("/jobs", params={"text": wanted})).json()["items"]
            assert [item["id"] for item in found] == [id_], text
