"""Row 26: Redis runs out of memory. A server that would throw jobs away is refused; one that would not, says no."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StoreError
from tests.faults import checker, load
from tests.faults.arena import Arena, completed
from tests.faults.conftest import AUDITED
from tests.faults.engines import RedisEngine
from tests.faults.report import Report, figures_of
from tests.faults.shop import open_shop
from tests.servers import RedisServer

STORE = "redis"
PAYLOAD = "x" * 2_000


def test_a_server_that_evicts_is_refused(tmp_path: Path, report: Report) -> None:
    with RedisServer({"maxmemory": "8mb", "maxmemory-policy": "allkeys-lru"}) as server:
        app = open_shop(server.url(), tmp_path / "effects")
        with closing(app), pytest.raises(StoreError, match="noeviction"):
            app.tasks["echo"].enqueue("x")
    report("a server that evicts keys (allkeys-lru)", injected=1, note="refused at the start")


def test_a_full_server_refuses_new_jobs_and_loses_none(tmp_path: Path, report: Report) -> None:
    options = {**AUDITED, "maxmemory": "8mb", "maxmemory-policy": "noeviction"}
    with (
        RedisServer(options) as server,
        closing(RedisEngine(server)) as engine,
        closing(Arena(tmp_path, engine)) as arena,
    ):
        with pytest.raises(StoreError, match="memory") as refused:
            for _ in range(10_000):
                load.enqueue(arena.app, arena.client, [arena.call("work", n, ballast=PAYLOAD) for n in range(5)])
        acked = len(arena.client.acked)
        with arena.fleet() as fleet:
            fleet.start()
            with server.client() as client:
                client.config_set("maxmemory", "64mb")
            arena.enqueue([arena.call("work", 0, ballast=PAYLOAD)])
            arena.quiesce(30)
            fleet.stop()
            evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    assert completed(evidence) == acked + 1
    assert len(evidence.jobs) == acked + 1, "of what was refused nothing is there"
    report(
        "the server runs out of memory (noeviction)",
        injected=1,
        figures=figures_of(evidence),
        note=f"{acked:,} acked, then refused: {refused.value}",
    )
