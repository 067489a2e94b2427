"""The checker goes red on a product that is broken for real: workers run on shipped code that was edited."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from holdfast.runtime.runner import Room
from tests.faults import checker
from tests.faults.arena import Arena
from tests.faults.checker import SETTLED_S
from tests.faults.conftest import every_store, waits
from tests.faults.edited import copied, edit
from tests.faults.test_row03_zombie import pause_past_the_lease
from tests.faults.workers import CLOCK, SETTINGS, poll

pytestmark = waits
Edit = tuple[str, str, str, int]
"""A file of the package, a pattern, what stands there instead, and how often it is found."""

FENCE: Final[dict[str, Edit]] = {
    "sqlite": ("stores/sqlite/settle.sql", r"\n *AND state = 'running' AND token = .*", "", 2),
    "postgres": ("stores/postgres/settle.sql", r"\n *AND job.state = 'running' AND job.token = one.token", "", 2),
    "redis": (
        "stores/redis/lua/settle.lua",
        r"if job\[STATE\] == RUNNING and job\[TOKEN\] == token and token ~= '' then",
        "if true then",
        1,
    ),
}
SWEEP_GUARD: Final[dict[str, Edit]] = {
    "sqlite": ("stores/sqlite/workers.sql", r"\(lease_until <= :now AND", "(true AND", 1),
    "postgres": ("stores/postgres/workers.sql", r"\n *AND lease_until <= :now", "", 1),
    "redis": ("stores/redis/lua/reclaim.lua", r"P \.\. 'leases', '-inf', now", "P .. 'leases', '-inf', '+inf'", 1),
}
LATE_ACKNOWLEDGEMENT: Final[dict[str, Edit]] = {
    "sqlite": ("stores/sqlite/claim.sql", r"state = 'running'", "state = 'completed'", 2),
    "postgres": ("stores/postgres/claim.sql", r"SET state = 'running'", "SET state = 'completed'", 1),
    "redis": ("stores/redis/lua/claim.lua", r"struct\.pack\(FRONT, RUNNING", "struct.pack(FRONT, COMPLETED", 1),
}
KEPT_BACK: Final[Edit] = (
    "runtime/runner.py",
    r"    def _finish_completed\((.*)\) -> None:\n",
    r"""    def _finish_completed(\1) -> None:
        asyncio.get_running_loop().call_later(60.0, self._finish_late, run, result, reason)

    def _finish_late(\1) -> None:
""",
    1,
)
ROOM: Final = replace(SETTINGS, room=Room(concurrency=2, threads=1, isolates=1))
HASTY: Final = replace(ROOM, grace_s=0.1)
"""Its jobs do not end by themselves, and nobody asks what becomes of them once the checker has seen enough."""


@pytest.fixture
def store(request: pytest.FixtureRequest) -> str:
    """The name of the store that the test runs on."""
    return str(request.node.callspec.params["engine"])


def broken(folder: Path, change: Edit) -> Path:
    """A copy of the package with this edit."""
    name, pattern, instead, times = change
    source = copied(folder)
    edit(source / "holdfast" / name, pattern, instead, times)
    return source


@every_store
def test_without_the_fence(arena: Arena, store: str, tmp_path: Path) -> None:
    with arena.fleet(source=broken(tmp_path, FENCE[store])) as fleet:
        found = checker.one_terminal(pause_past_the_lease(arena, fleet))
    assert any(one.startswith("I2 illegal change") for one in found), found
    assert any(one.startswith("I2 stale result") for one in found), found


@every_store
def test_without_the_guard_of_the_sweep(arena: Arena, store: str, tmp_path: Path) -> None:
    # They last until somebody takes them: a worker that was given up before it had any would leave all to the other.
    arena.enqueue([arena.call("work", n, seconds=60.0) for n in range(4)])
    with arena.fleet(source=broken(tmp_path, SWEEP_GUARD[store])) as fleet:
        fleet.supervise(2, HASTY)
        poll(
            lambda: any(len(runs) > 1 for runs in checker.runs_by_job(arena.effects()).values()), 30, "a job runs twice"
        )
        found = checker.bounded_duplicates(arena.evidence(fleet))
    assert any(one.startswith("I3 duplicate") for one in found), found


@every_store
def test_when_jobs_are_acknowledged_before_they_run(arena: Arena, store: str, tmp_path: Path) -> None:
    arena.enqueue([arena.call("work", n, seconds=60.0) for n in range(2)])  # none ends before its worker does
    with arena.fleet(source=broken(tmp_path, LATE_ACKNOWLEDGEMENT[store])) as fleet:
        pid = fleet.start(ROOM)
        poll(lambda: arena.started() == 2, 20, "both jobs run")
        fleet.kill(pid)
        found = checker.check(arena.evidence(fleet))
    assert any(one.startswith("I1 not run") for one in found), found
    assert any(one.startswith("I2 illegal change") for one in found), found


def test_when_settlements_are_kept_back(arena: Arena, tmp_path: Path) -> None:
    arena.enqueue([arena.call("work", n) for n in range(2)])
    with arena.fleet(source=broken(tmp_path, KEPT_BACK)) as fleet:
        pid = fleet.start(ROOM)
        poll(lambda: sum(one.what == "end" for one in arena.effects()) == 2, 20, "both jobs end")
        CLOCK.sleep(2 * SETTLED_S)
        fleet.kill(pid)
        fleet.start(ROOM)
        poll(lambda: arena.started() == 4, 20, "both jobs run again")
        found = checker.bounded_duplicates(arena.evidence(fleet))
    assert len(found) == 2, found
    assert all(one.startswith("I3 duplicate") for one in found), found
