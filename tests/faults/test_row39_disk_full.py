"""Row 39: the disk is full. New jobs are refused, what runs is settled, nothing is lost, and it heals by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import json

from holdfast.errors import StoreError
from holdfast.types import JobState
from tests.faults import checker, load
from tests.faults.arena import Arena
from tests.faults.conftest import waits
from tests.faults.engines import SqliteEngine
from tests.faults.gate_shop import TARGET, add_held
from tests.faults.report import Report, figures_of
from tests.faults.small_disk import small_disk
from tests.faults.workers import CLOCK, SETTINGS, poll

pytestmark = waits
BALLAST = 400 * 1024
PAYLOAD = "x" * 10_000


@pytest.fixture
def disk(tmp_path: Path, is_full: bool) -> Iterator[Path]:
    """A file system of two megabytes, or eight at full size, some of which is taken."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with small_disk(folder, 8 if is_full else 2):
        (folder / "ballast").write_bytes(bytes(BALLAST))
        yield folder


def test_a_full_disk_refuses_new_jobs_and_loses_none(disk: Path, tmp_path: Path, report: Report) -> None:
    arena = Arena(tmp_path, SqliteEngine(disk), is_audited=False)
    add_held(arena.app, tmp_path / "effects")
    gate = tmp_path / "gate"
    running = arena.enqueue([arena.call("held", str(gate)) for _ in range(4)])
    with arena.fleet() as fleet:
        fleet.run("holdfast.runtime.process", TARGET, json.encode(SETTINGS).decode())
        poll(lambda: arena.started() == 4, 20, "jobs run")
        refused = _fill(arena)
        assert arena.states(running) == {"running": 4}
        gate.touch()
        poll(lambda: arena.states(running) == {"completed": 4}, 20, "what ran is settled on the full disk")
        with pytest.raises(StoreError, match="full"):
            _enqueue_late(arena)
        held = len(arena.client.acked)
        assert len(arena.records()) == held

        (disk / "ballast").unlink()
        began_s = CLOCK.monotonic()
        poll(lambda: _is_accepted(arena), 10, "a new job is accepted once there is space")
        recovery_s = CLOCK.monotonic() - began_s
        new = arena.enqueue([arena.call("work", n) for n in range(10)])
        poll(lambda: arena.states(new) == {"completed": 10}, 20, "new jobs run")
        late = [one.id for one in arena.records().values() if not one.state.is_terminal]
        assert all(changed.is_done for changed in arena.app.jobs.cancel(late))
        fleet.stop()
        evidence = arena.evidence(fleet)
    arena.close()

    assert checker.check(evidence) == []
    assert {evidence.jobs[one].state for one in running} == {JobState.COMPLETED}
    report(
        "the disk is full",
        injected=1,
        figures=figures_of(evidence),
        note=f"{held} jobs acked, then refused {refused} times with StoreError, all {len(running)} running jobs "
        f"settled on the full disk, accepted again {recovery_s:.2f} s after space returned",
    )


def _enqueue_late(arena: Arena) -> None:
    """A job that takes space and is not due."""
    call = arena.app.tasks["echo"].options(delay=3_600).bind(PAYLOAD)
    load.enqueue(arena.app, arena.client, [call])


def _fill(arena: Arena) -> int:
    """Enqueue until the store refuses ten times in a row; how often it refused."""
    refused = in_a_row = 0
    while in_a_row < 10:
        try:
            _enqueue_late(arena)
            in_a_row = 0
        except StoreError as error:
            if "full" not in str(error):
                raise
            refused += 1
            in_a_row += 1
    return refused


def _is_accepted(arena: Arena) -> bool:
    try:
        arena.enqueue([arena.call("work", 0)])
    except StoreError:
        return False
    return True
