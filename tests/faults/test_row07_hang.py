"""Row 7: handlers that never return. Each is timed out and counted, and no place of a worker is lost to it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.runtime.runner import Room
from holdfast.types import JobState
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import small_on, waits
from tests.faults.report import Report, figures_of
from tests.faults.workers import SETTINGS

pytestmark = waits
PLACES = 2
NARROW = replace(SETTINGS, room=Room(concurrency=PLACES, threads=PLACES, isolates=PLACES), grace_s=3.0)
HANGING = {"hang_async": 3, "hang_process": 3, "hang_thread": 1}


@small_on("sqlite")
def test_handlers_that_never_return_are_timed_out_and_leave_no_place_taken(arena: Arena, report: Report) -> None:
    with arena.fleet() as fleet:
        fleet.supervise(1, NARROW)
        hanging = arena.enqueue(
            [arena.call(task) for task in ("hang_async", "hang_process") for _ in range(HANGING[task])]
        )
        timed_out_s = arena.quiesce(40)
        # In the same process, each place has to be free again for these to run side by side.
        plain = {
            task: arena.enqueue([arena.call(task, n, seconds=1.0) for n in range(4)]) for task in ("work", "apart")
        }
        arena.quiesce(20)
        assert "is replaced" not in fleet.log()
        hanging += arena.enqueue([arena.call("hang_thread") for _ in range(HANGING["hang_thread"])])
        timed_out_s = max(timed_out_s, arena.quiesce(40))
        plain["toil"] = arena.enqueue([arena.call("toil", n, seconds=1.0) for n in range(4)])
        arena.quiesce(20)
        fleet.stop()
        log = fleet.log()
        evidence = replace(arena.evidence(fleet), max_retries=dict.fromkeys(HANGING, 0))

    assert checker.check(evidence) == []
    for letter in arena.get(hanging):
        assert letter.state is JobState.DEAD_LETTER, letter
        assert letter.error_name.rpartition(".")[2] == "TimeLimitExceeded"
        assert (letter.reason, len(letter.attempts)) == ("retries used up", 1)
    at_once = {task: _most_at_once(evidence, ids) for task, ids in plain.items()}
    assert at_once == dict.fromkeys(plain, PLACES)
    assert completed(evidence) == sum(map(len, plain.values()))
    replaced = len(re.findall(r"worker process \d+ is replaced", log))
    assert replaced >= 1, "the process with a hanging thread went on"
    report(
        "handlers that never return: async, on a thread, in a process of their own",
        injected=len(hanging),
        figures=figures_of(evidence),
        note=f"all timed out within {timed_out_s:.1f} s, places lost {sum(PLACES - n for n in at_once.values())}, "
        f"processes replaced {replaced}",
    )


def _most_at_once(evidence: checker.Evidence, ids: Sequence[str]) -> int:
    """How many of these jobs ran at the same time."""
    edges = sorted((one.at, 1 if one.what == "start" else -1) for one in evidence.effects if one.job in ids)
    return max(itertools.accumulate(step for _, step in edges))
