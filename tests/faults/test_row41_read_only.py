"""Row 41: the file system finds an error and goes read-only under everybody. New jobs are refused, none is lost."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from msgspec import json

from holdfast.errors import StoreError
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.checker import Fault
from tests.faults.conftest import full_only, waits
from tests.faults.engines import SqliteEngine
from tests.faults.gate_shop import TARGET, add_held
from tests.faults.report import Report, figures_of
from tests.faults.small_disk import failing_disk
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll

pytestmark = waits


@full_only
def test_a_read_only_disk_refuses_new_jobs_and_loses_none(tmp_path: Path, report: Report) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    jobs = 2_000
    never = str(tmp_path / "never")  # what runs goes on until it is stopped
    with failing_disk(tmp_path / "image", folder, 48) as disk:
        arena = _arena(tmp_path, folder)
        done = arena.enqueue([arena.call("work", n) for n in range(jobs)])
        with closing(arena), arena.fleet() as fleet:
            pid = _start(fleet)
            poll(lambda: arena.states(done) == {"completed": jobs}, 60, "jobs run")
            running = arena.enqueue([arena.call("held", never) for _ in range(4)])
            waiting = arena.enqueue([arena.call("work", n, seconds=0.5) for n in range(20)])
            poll(lambda: arena.states(running) == {"running": 4}, 20, "jobs run")
            at = CLOCK.monotonic()
            disk.fail()
            refused = _refused(arena, 10)
            health = arena.app.health()
            assert not health.healthy
            # It cannot renew its lease, so it stops its work and leaves: a supervisor would start another.
            assert fleet.wait(pid, 30) != 0, fleet.log()
            gone_s = CLOCK.monotonic() - at
            arena.close()
        disk.repair()
        arena = _arena(tmp_path, folder)
        with closing(arena), arena.fleet() as fleet:
            _start(fleet)
            arena.enqueue([arena.call("work", 0)])
            arena.quiesce(30)
            fleet.stop()
            evidence = arena.evidence(fleet)
    assert refused == 10
    evidence.faults = [Fault("read-only", pid, at, CLOCK.monotonic())]
    assert checker.check(evidence) == []
    assert completed(evidence) == jobs + len(running) + len(waiting) + 1
    report(
        "ext4 finds an error and goes read-only while jobs run; checked and mounted again",
        injected=1,
        figures=figures_of(evidence),
        note=f"enqueues refused {refused}, health says so, the worker left after {gone_s:.1f} s",
    )


def _arena(tmp_path: Path, folder: Path) -> Arena:
    arena = Arena(tmp_path, SqliteEngine(folder), is_audited=False)
    add_held(arena.app, tmp_path / "effects")
    return arena


def _start(fleet: Fleet) -> int:
    return fleet.run("holdfast.runtime.process", TARGET, json.encode(SETTINGS).decode())


def _refused(arena: Arena, times: int) -> int:
    for _ in range(times):
        with pytest.raises(StoreError, match=r"disk failed|cannot be (opened|written|read)") as caught:
            arena.enqueue([arena.call("work", 0)])
        assert "\n" not in str(caught.value)
    return times
