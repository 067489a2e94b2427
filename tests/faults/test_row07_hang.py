"""Row 7: handlers that never return. Each is timed out and counted, and no place of a worker is lost to it."""

from __future__ import annotations

import re

from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.types import JobState
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.conftest import small_on, waits
from tests.faults.report import Report, figures_of
from tests.faults.workers import SETTINGS

pytestmark = waits
NARROW = replace(SETTINGS, room=Room(concurrency=2, threads=2, isolates=2), grace_s=3.0)
HANGING = {"hang_async": 3, "hang_thread": 1, "hang_process": 3}


@small_on("sqlite")
def test_handlers_that_never_return_are_timed_out_and_leave_no_place_taken(arena: Arena, report: Report) -> None:
    hanging = arena.enqueue([arena.call(task) for task, n in HANGING.items() for _ in range(n)])
    with arena.fleet() as fleet:
        fleet.supervise(1, NARROW)
        timed_out_s = arena.quiesce(40)
        # More of each kind than there are places: all must come free for these to end.
        plain = arena.enqueue([arena.call(task, n) for task in ("work", "toil", "apart") for n in range(6)])
        arena.quiesce(20)
        fleet.stop()
        log = fleet.log()
        evidence = replace(arena.evidence(fleet), max_retries=dict.fromkeys(HANGING, 0))

    assert checker.check(evidence) == []
    for letter in arena.get(hanging):
        assert letter.state is JobState.DEAD_LETTER, letter
        assert letter.error_name.rpartition(".")[2] == "TimeLimitExceeded"
        assert (letter.reason, len(letter.attempts)) == ("retries used up", 1)
    assert arena.states(plain) == {"completed": len(plain)}
    replaced = len(re.findall(r"worker process \d+ is replaced", log))
    assert replaced >= 1, "the process with a hanging thread went on"
    report(
        "handlers that never return: async, on a thread, in a process of their own",
        injected=len(hanging),
        figures=figures_of(evidence),
        note=f"all timed out within {timed_out_s:.1f} s, places lost {len(plain) - arena.states(plain)['completed']}, "
        f"processes replaced {replaced}",
    )
