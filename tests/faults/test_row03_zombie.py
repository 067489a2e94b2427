"""Row 3: a worker is paused past its lease, and comes back. Its late settlements change nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from msgspec.structs import replace

import holdfast
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import Evidence
from tests.faults.conftest import Report
from tests.faults.workers import CLOCK, SETTINGS, Fleet, poll

LEASE_S = 1.0
QUICK = replace(SETTINGS, room=Room(concurrency=16, threads=2, isolates=4), lease_s=LEASE_S, heartbeat_s=0.25)
FENCE = re.compile(r"\n *AND state = 'running' AND token = .*")


def pause_past_the_lease(arena: Arena, fleet: Fleet) -> Evidence:
    """One worker is stopped for three leases in the middle of its jobs, while another takes them over.

    Some jobs are completed by the other when the first comes back, some still run there.
    """
    arena.enqueue([*(arena.call("once", 0.8) for _ in range(8)), *(arena.call("once", 0.8, 2.5) for _ in range(2))])
    zombie = fleet.start(QUICK)
    poll(lambda: arena.started(zombie) == 10, 20, "the first worker has begun all jobs")
    fleet.pause(zombie)
    paused_s = CLOCK.monotonic()
    fleet.start(QUICK)
    poll(lambda: arena.started() == 20, 20, "the other worker has begun all jobs again")
    poll(lambda: arena.unfinished() <= 2, 20, "the other worker has completed the short ones")
    CLOCK.sleep(max(0.0, paused_s + 3 * LEASE_S - CLOCK.monotonic()))
    fleet.resume(zombie)
    assert fleet.wait(zombie) == Exit.REPLACE
    arena.quiesce(20)
    fleet.stop()
    return arena.evidence(fleet)


def test_a_worker_that_was_paused_past_its_lease_changes_nothing(arena: Arena, report: Report) -> None:
    with arena.fleet() as fleet:
        evidence = pause_past_the_lease(arena, fleet)
        rejected = sum(int(n) for n in re.findall(r"(\d+) settlements came too late", fleet.log()))

    assert checker.check(evidence) == []
    assert {job.attempt for job in evidence.jobs.values()} == {2}
    report(f"row 3  SIGSTOP for 3 leases: late settlements rejected {rejected}, accepted 0; effects twice at most once")


def test_the_checker_goes_red_without_the_fence(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(Path(holdfast.__file__).parent, source / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    shipped = source / "holdfast" / "stores" / "sqlite" / "settle.sql"
    text, cut = FENCE.subn("", shipped.read_text())
    assert cut == 2, f"{cut} fences in {shipped}"
    shipped.write_text(text)

    found: list[str] = []
    for n in range(3):  # a late settlement is a race against the worker's own heartbeat, which stops its work
        folder = tmp_path / str(n)
        folder.mkdir()
        arena = Arena(folder)
        with arena.fleet(source=source) as fleet:
            found = checker.one_terminal(pause_past_the_lease(arena, fleet))
        arena.close()
        if found:
            break
    assert any(one.startswith("I2") for one in found), "no late settlement reached the store in three rounds"
