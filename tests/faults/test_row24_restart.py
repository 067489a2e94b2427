"""Row 24: Redis is killed and starts again. With an append-only file nothing is lost; without, the store says so."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import AUDITED, waits
from tests.faults.engines import RedisEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.storm import weather
from tests.servers import RedisServer

pytestmark = waits
STORE = "redis"
MODES = {"always": True, "everysec": False}
"""Whether it survives a power cut too."""


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_redis_with_an_append_only_file_loses_nothing(
    tmp_path: Path, mode: str, is_full: bool, report: Report
) -> None:
    jobs, strikes = (10_000, 20) if is_full else (300, 2)
    dice = Dice()
    with (
        RedisServer({**AUDITED, "appendfsync": mode}) as server,
        closing(RedisEngine(server)) as engine,
        closing(Arena(tmp_path, engine)) as arena,
    ):

        def strike(_: object) -> None:
            server.kill()
            server.start()

        capabilities = arena.app.store.capabilities
        assert capabilities.is_durable is MODES[mode]
        calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)
        after = weather(arena, calls, strike, strikes=strikes, every_s=0.4, is_outage=True)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == jobs
    report(
        f"the server killed (SIGKILL) and started again, appendfsync {mode}",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )


def test_a_redis_without_an_append_only_file_is_labelled(tmp_path: Path, report: Report) -> None:
    with (
        RedisServer() as server,
        closing(RedisEngine(server)) as engine,
        closing(Arena(tmp_path, engine, is_audited=False)) as arena,
    ):
        capabilities = arena.app.store.capabilities
        assert not capabilities.is_durable
        assert any("appendonly" in line for line in capabilities.warnings), capabilities.warnings
        ids = arena.enqueue([arena.call("work", n) for n in range(200)])
        with arena.fleet() as fleet:
            server.kill()
            server.start()
            again = arena.enqueue([arena.call("work", n) for n in range(50)])
            fleet.start()
            arena.quiesce(30)
            fleet.stop()
            evidence = arena.evidence(fleet)

    lost = frozenset(evidence.acked) - evidence.jobs.keys()
    assert lost == set(ids)
    assert checker.check(replace(evidence, removed=lost)) == []
    assert completed(evidence) == len(again)
    report(
        "the server killed (SIGKILL) and started again, no append-only file",
        injected=1,
        figures=figures_of(evidence, forfeited=lost),
        note=f"{len(ids)} were acked before it; the store is labelled as not durable",
    )
