"""The API over HTTP on every store: a real server on a port, a real store behind it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from holdfast import App, Permanent
from holdfast.ops.api import ApiSettings
from holdfast.ops.api.serving import ApiServer, address_of, listen

HOSTILE = ["'; DROP TABLE jobs; --", "%_\\", "a\u0000b", "{{7*7}}", "*", "\u202e", "x" * 200, "\U0001d54f/../", '"}{"']


def new_app(url: str) -> App:
    app = App(url)

    @app.task(name="charge")
    def charge(order_id: int, cents: int = 5, note: str = "") -> str:
        if cents > 100:
            raise Permanent(f"order {order_id} declined")
        return "charged"

    return app


@contextmanager
def served(app: App) -> Iterator[httpx.Client]:
    """A client of a server that runs on a thread of its own."""
    listening = listen("127.0.0.1", 0)
    server = ApiServer(app, ApiSettings(allows_simulation=True, rate=None), listening)
    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.run(started.set)))
    thread.start()
    assert started.wait(30)
    try:
        with httpx.Client(base_url=address_of("127.0.0.1", listening), timeout=30) as client:
            yield client
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(params=["sqlite", "postgres_url", "redis_url"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    is_file = request.param == "sqlite"
    found = new_app(f"sqlite:///{tmp_path}/shop.db" if is_file else request.getfixturevalue(request.param))
    yield found
    found.close()


def test_a_day_of_an_operator(app: App) -> None:
    with served(app) as client:
        for order in range(4):
            body = {
                "task": "charge",
                "arguments": {"order_id": order, "cents": 500, "note": "x"},
                "tenant": f"t{order % 2}",
            }
            assert client.post("/jobs", json=body | {"idempotency_key": f"k{order}"}).status_code == 201
            assert client.post("/jobs", json=body | {"idempotency_key": f"k{order}"}).status_code == 200
        other = {"task": "charge", "arguments": {"order_id": 9}, "tenant": "t0", "idempotency_key": "k0"}
        assert client.post("/jobs", json=other).status_code == 409
        assert client.get("/overview").json()["states"] == {"queued": 4}
        app.run_until_idle()
        (group,) = client.get("/dead-letters/groups").json()["items"]
        assert (group["count"], sorted(group["tenants"]), len(group["hours"])) == (4, ["t0", "t1"], 24)
        assert client.get("/dead-letters/groups", params={"tenant": "t1"}).json()["total"] == 2
        first = client.get("/dead-letters", params={"limit": 3}).json()
        rest = client.get("/dead-letters", params={"limit": 3, "cursor": first["cursor"]}).json()
        ids = [one["id"] for one in first["items"] + rest["items"]]
        assert len(set(ids)) == 4
        edited = client.post(f"/dead-letters/{ids[0]}/retry", json={"arguments": {"order_id": 3, "cents": 5}})
        assert edited.json() == {"id": ids[0], "is_done": True, "state": "queued"}
        replay = client.post("/replays", json={"filter": {"tenant": "t0"}, "edit": {"cents": 5}}).json()
        assert replay["total"] == 2
        app.run_until_idle()
        states = {one["id"]: one["state"] for one in client.get("/jobs").json()["items"]}
        assert sorted(states.values()) == ["completed", "completed", "completed", "dead_letter"]
        assert client.get("/replays").json()["items"][0]["sent"] == 2
        (left,) = [one for one, state in states.items() if state == "dead_letter"]
        assert len(client.get("/dead-letters/export").text.splitlines()) == 1
        assert client.delete(f"/dead-letters/{left}").json() == {"removed": 1}
        assert client.get(f"/dead-letters/{left}").status_code == 404
        assert client.post("/queues/default/pause").json()["is_paused"]
        modes = [client.post("/retry/simulate-failure", params={"task_type": "charge"}) for _ in range(5)]
        assert modes[-1].json()["breaker"]["state"] == "open"
        assert client.get("/health").status_code in (200, 503)
        assert client.get("/metrics").status_code == 200
        stats = client.get("/retry/stats").json()
        assert stats["dead_letter_stats"]["total_dead_letters"] == 0
        actions = [one["action"] for one in client.get("/audit").json()["items"]]
        assert actions[-1] == "letter.edit"
        assert len(actions) == 10


def test_whatever_is_searched_for_is_only_text(app: App) -> None:
    with served(app) as client:
        client.post("/jobs", json={"task": "charge", "arguments": {"order_id": 1}})
        for text in HOSTILE:
            for path in ("/jobs", "/dead-letters", "/dead-letters/groups"):
                for names in (("text",), ("task", "tenant") + (("queue", "user", "cursor") if path == "/jobs" else ())):
                    answer = client.get(path, params=dict.fromkeys(names, text))
                    assert answer.status_code in (200, 422), (path, names, text, answer.text)
            answer = client.get(f"/jobs/{quote(text[:60], safe='')}")
            assert answer.status_code in (404, 405), (text, answer.text)
        assert len(client.get("/jobs").json()["items"]) == 1
