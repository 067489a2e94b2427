"""Row 10: there is too little memory, for a job, for a thread, or for the whole process. Nothing is lost to it."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.types import FailureType, JobState
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.cgroups import group
from tests.faults.checker import Evidence, Fault
from tests.faults.conftest import small_on
from tests.faults.report import Report, figures_of
from tests.faults.rough_shop import RETRIES, TARGET, add_rough_tasks
from tests.faults.workers import SETTINGS, poll

MB = 2**20
ROOM = replace(SETTINGS, room=Room(concurrency=8, threads=2, isolates=1))


@small_on("sqlite")
def test_a_worker_that_may_have_no_more_memory_fails_the_hungry_job_and_goes_on(
    arena: Arena, is_full: bool, report: Report
) -> None:
    add_rough_tasks(arena.app, arena.folder / "effects")
    hungry, times = (10, 20) if is_full else (2, 1)
    with arena.fleet() as fleet:
        one_thread = replace(ROOM, room=Room(concurrency=8, threads=1, isolates=1))
        worker = fleet.run("holdfast.runtime.process", TARGET, msgspec.json.encode(one_thread).decode())
        poll(lambda: len(arena.stats().workers) == 1, 20, "the worker registers")
        resource.prlimit(worker, resource.RLIMIT_AS, (_size(worker) + 4 * MB, -1))
        arena.enqueue([arena.call("toil", n) for n in range(4)])
        poll(lambda: "no thread can be started" in fleet.log(worker), 20, "there is no room for a thread")

        resource.prlimit(worker, resource.RLIMIT_AS, (_size(worker) + 160 * MB, -1))
        gluttons = arena.enqueue([arena.call("glutton", 400) for _ in range(hungry)])
        arena.enqueue([arena.call(("work", "toil")[n % 2], n) for n in range(20 * times)])
        arena.quiesce(60)
        restarted = {worker} - set(fleet.running)
        assert restarted == set(), fleet.log()
        fleet.stop()
        evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    _assert_given_up(evidence, gluttons, "MemoryError")
    assert {evidence.jobs[one].failure_type for one in gluttons} == {FailureType.SYSTEM}
    report(
        "a worker's address space is limited (prlimit --as): no room for a thread, then none for hungry jobs",
        injected=1 + hungry * (RETRIES + 1),
        figures=figures_of(evidence),
        note=f"workers that ended {len(restarted)}; each hungry job used up its attempts with MemoryError",
    )


@small_on()
def test_a_job_that_has_its_worker_killed_for_its_memory_runs_out_of_attempts(
    arena: Arena, is_full: bool, report: Report
) -> None:
    add_rough_tasks(arena.app, arena.folder / "effects")
    hungry, plain = (4, 40) if is_full else (1, 20)
    gluttons: list[str] = []
    with group("memory") as box, arena.fleet() as fleet:
        supervisor = fleet.run("tests.faults.supervise", msgspec.json.encode(ROOM).decode(), "1", TARGET)
        box.add(supervisor)
        poll(lambda: len(arena.stats().workers) == 1, 20, "the worker registers")
        assert {one.pid for one in arena.stats().workers} <= set(box.pids), "it was started too soon for the group"
        box.limit(box.used + 100 * MB)
        for _ in range(hungry):  # one after the other: none is to die of what another has taken
            glutton = arena.call("glutton", 400)
            calls = [arena.call("work", n, seconds=0.01) for n in range(plain)]
            arena.enqueue([*calls[: plain // 2], glutton, *calls[plain // 2 :]])
            gluttons.append(glutton.job.id)
            arena.quiesce(60)
        assert fleet.running == [supervisor], fleet.log()
        fleet.stop()
        log = fleet.log()
        evidence = arena.evidence(fleet)
    restarts = len(re.findall(r"worker process \d+ ended with 137", log))
    # Each death is a fault of the hungry one's making, for the neighbours that were hit by it. One that has too little
    # memory to get on may lose its lease before it is killed, and has settled nothing since the hungry one began.
    last = {one.pid: one.at for one in evidence.effects}
    dead = {int(pid) for pid in re.findall(r"worker process (\d+) (?:ended with|is replaced)", log)}
    runs = checker.runs_by_job(evidence.effects)
    dead |= {run.start.pid for one in gluttons for run in runs[one]}
    hungry_s = {run.start.pid: run.start.at for one in gluttons for run in runs[one]}
    faults = [Fault("out of memory", pid, hungry_s.get(pid, last[pid]), last[pid]) for pid in dead if pid in last]
    evidence = replace(evidence, faults=faults)  # for how long it gasps for memory first nobody can say

    assert restarts, "no worker was killed: this run shows nothing"
    assert checker.check(evidence) == []
    _assert_given_up(evidence, gluttons, "WorkerDied")
    report(
        "jobs outgrow the memory of their control group, whose largest process the kernel kills",
        injected=sum(len(runs[one]) for one in gluttons),
        figures=figures_of(evidence),
        note=f"workers restarted {restarts}, runs of each hungry job {sorted(len(runs[one]) for one in gluttons)}, all "
        "given up as WorkerDied",
    )


def _size(pid: int) -> int:
    """The address space of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _assert_given_up(evidence: Evidence, ids: list[str], error: str) -> None:
    letters = [evidence.jobs[one] for one in ids]
    assert {(one.state, one.reason) for one in letters} == {(JobState.DEAD_LETTER, "retries used up")}
    assert {one.error_name.rpartition(".")[2] for one in letters} == {error}
    assert all(job.state is JobState.COMPLETED for one, job in evidence.jobs.items() if one not in ids)
