"""Row 24: Redis is killed and starts again. If it writes its log before it answers, nothing is lost; else the store
says what may be.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
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
from tests.faults.workers import CLOCK, is_traced, poll
from tests.servers import RedisServer, program

pytestmark = waits
STORE = "redis"
MODES = {"always": True, "no": False}
"""Whether it survives a power cut too."""
POSTPONED_S = 2.5
"""While a sync is under way, Redis keeps writes back until the second one after has begun, by a clock that it reads ten
times a second; the rest is for the kill."""
UNWRITTEN_S = 0.5
"""So long it has kept them back when it is killed. It does for at least a second."""


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_redis_that_writes_before_it_answers_loses_nothing(
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

        assert arena.app.store.capabilities.is_durable is MODES[mode]
        calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)
        after = weather(arena, calls, strike, strikes=strikes, every_s=0.4, is_outage=True)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    report(
        f"the server killed (SIGKILL) and started again, appendfsync {mode}",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )


def test_a_redis_that_syncs_every_second_loses_what_came_last_while_its_disk_is_slow_and_says_so(
    tmp_path: Path, report: Report
) -> None:
    acked: list[tuple[float, str]] = []
    with (
        RedisServer({**AUDITED, "appendfsync": "everysec"}) as server,
        closing(RedisEngine(server)) as engine,
        closing(Arena(tmp_path, engine)) as arena,
    ):
        capabilities = arena.app.store.capabilities
        assert not capabilities.is_durable
        assert "death of its process" in capabilities.durability

        def enqueue_while(goes_on: Callable[[], bool]) -> None:
            end_s = CLOCK.monotonic() + 20.0
            while goes_on():
                ids = arena.enqueue([arena.call("work", len(acked))])
                acked.append((CLOCK.monotonic(), ids[0]))
                assert acked[-1][0] < end_s, "no sync hangs: this run shows nothing"
                CLOCK.sleep(0.005)

        # It writes without a sync when it has kept back enough; from there on it keeps back the next.
        with _killed_amid_a_sync(server), server.client() as client:
            enqueue_while(lambda: client.info("persistence")["aof_delayed_fsync"] == 0)
            until_s = CLOCK.monotonic() + UNWRITTEN_S
            enqueue_while(lambda: CLOCK.monotonic() < until_s)
            killed_s = CLOCK.monotonic()
        server.start()
        with arena.fleet() as fleet:
            again = arena.enqueue([arena.call("work", n) for n in range(50)])
            fleet.start()
            arena.quiesce(30)
            fleet.stop()
            evidence = arena.evidence(fleet)

    lost = frozenset(evidence.acked) - evidence.jobs.keys()
    assert lost, "nothing was kept back: this run shows nothing"
    assert lost <= {id for at, id in acked if at > killed_s - POSTPONED_S}  # noqa: A001
    assert len(lost) < len(acked), "nothing was acked before: this run shows nothing"
    assert checker.check(replace(evidence, removed=lost)) == []
    assert completed(evidence) == len(acked) - len(lost) + len(again)
    report(
        "the server killed (SIGKILL) and started again, appendfsync everysec, while a sync of its log hangs",
        injected=1,
        figures=figures_of(evidence, forfeited=lost),
        note=f"{len(acked)} were acked before it, over {killed_s - acked[0][0]:.1f} s; the store is labelled: "
        f'"{capabilities.durability}"',
    )


@contextmanager
def _killed_amid_a_sync(server: RedisServer) -> Iterator[None]:
    """A server whose syncs hang; at the end it is killed."""
    calls = "fsync,fdatasync"
    strace = [program("strace", "strace"), "-f", "-qq", "-o", "/dev/null", "-p", str(server.pid)]
    tracer = subprocess.Popen([*strace, "-e", f"trace={calls}", "-e", f"inject={calls}:delay_enter=30s"])
    try:
        poll(lambda: is_traced(server.pid), 20, "strace watches every thread")
        yield
    finally:
        os.kill(server.pid, signal.SIGKILL)  # before strace, which holds the sync; it lets go of the dead when it ends
        tracer.kill()
        tracer.wait(20)
        server.kill()


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
