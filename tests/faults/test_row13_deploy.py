"""Row 13: workers and producers of two versions at once. What one does not know waits for the other, or is a letter."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
from msgspec.structs import replace

from holdfast import App
from holdfast.runtime.runner import Room
from holdfast.runtime.worker import Exit
from holdfast.types import FailureType, JobState
from tests.faults import checker, load
from tests.faults.arena import Arena
from tests.faults.conftest import small_on, waits
from tests.faults.deploy_shop import NEW, OLD, open_new, open_old
from tests.faults.report import Report, figures_of
from tests.faults.workers import SETTINGS, Fleet, poll

pytestmark = waits
ROOM = replace(SETTINGS, room=Room(concurrency=2, threads=1, isolates=1))


@small_on("sqlite")
def test_two_versions_at_once_lose_nothing_and_neither_ends_of_the_other(
    arena: Arena, is_full: bool, report: Report
) -> None:
    each = 500 if is_full else 20
    with _versions(arena) as (old, new), arena.fleet() as fleet:
        leaving = _start(fleet, OLD)
        workers = {leaving, _start(fleet, NEW)}
        poll(lambda: {one.pid for one in arena.stats().workers} == workers, 20, "both workers register")
        plain = _enqueue(arena, old, "bill", each) + _enqueue(arena, new, "bill", each)
        more = _enqueue(arena, new, "bill", each, currency="USD")
        renamed = _enqueue(arena, new, "notify", each)
        gone = _enqueue(arena, old, "remind", each)
        poll(lambda: _at_rest(arena), 60, "every job has ended, or waits")
        assert {one.pid for one in arena.effects()} == workers, "one of them had nothing: this run shows nothing"
        crashed = workers - set(fleet.running)
        assert crashed == set(), fleet.log()
        # The old worker goes, and a producer of its version is late: what that sends, the new one alone has to judge.
        fleet.send(leaving, signal.SIGTERM)
        assert fleet.wait(leaving) == Exit.DRAINED, fleet.log(leaving)
        gone += _enqueue(arena, old, "remind", 1)
        poll(lambda: _at_rest(arena), 20, "it waits")
        fleet.stop()

        # The deploy is over: there is the new version alone, and somebody retries what the old one has refused.
        refused = [job.id for job in arena.get(more) if job.state is JobState.DEAD_LETTER]
        assert {job.failure_type for job in arena.get(refused)} <= {FailureType.VALIDATION}
        assert all("currency" in job.message for job in arena.get(refused))
        for one in refused:
            new.dead_letters.retry(one)
        new.bridge.run(new.worker().run_until_idle(skip=True))  # the store's clock is moved on to what waits
        evidence = arena.evidence(fleet)

    assert checker.check(evidence) == []
    states = {one: evidence.jobs[one].state for one in evidence.jobs}
    assert {states[one] for one in (*plain, *more, *renamed)} == {JobState.COMPLETED}
    letters = [evidence.jobs[one] for one in gone if states[one] is not JobState.COMPLETED]
    assert letters, "the late one was done by nobody"
    assert {(one.state, one.reason, one.error_name.rpartition(".")[2]) for one in letters} == {
        (JobState.DEAD_LETTER, "unknown task", "UnknownTask")
    }
    ended = Counter(states[one].value for one in gone)
    report(
        "two versions at once: the new one has an argument more, and another name for a task",
        injected=len(more) + len(renamed) + len(gone),
        figures=figures_of(evidence),
        note=f"{len(renamed)} jobs of the new name all completed; of {len(gone)} of the old name "
        f"{ended['completed']} completed, {ended['dead_letter']} in the inbox as unknown; with the new "
        f"argument {len(refused)} of {len(more)} refused by the old version, and completed when retried; crashes "
        f"{len(crashed)}",
    )


@contextmanager
def _versions(arena: Arena) -> Iterator[tuple[App, App]]:
    place = (arena.engine.url, arena.folder / "effects")
    with closing(open_old(*place)) as old, closing(open_new(*place)) as new:
        yield old, new


def _start(fleet: Fleet, target: str) -> int:
    return fleet.run("holdfast.runtime.process", target, msgspec.json.encode(ROOM).decode())


def _enqueue(arena: Arena, app: App, task: str, count: int, **arguments: str) -> list[str]:
    calls = [app.tasks[task].bind(number, **arguments) for number in range(count)]
    load.enqueue(app, arena.client, calls)
    return [call.job.id for call in calls]


def _at_rest(arena: Arena) -> bool:
    """Whether nothing runs or is about to."""
    active = {JobState.QUEUED, JobState.RUNNING, JobState.RETRYING}
    return not any(tally.n for tally in arena.stats().tallies if tally.state in active)
