"""Row 61: an old backup is restored while a worker still runs. Its leases are worth nothing, and work runs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.ports import Exchange, Settlement
from holdfast.types import Change
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.backups import backup_of
from tests.faults.checker import Fault
from tests.faults.conftest import full_only, waits
from tests.faults.engines import Engine
from tests.faults.report import Report, figures_of
from tests.faults.workers import CLOCK, SETTINGS, poll

pytestmark = waits
HELD = 4
"""Jobs that the worker runs when the backup is taken, and still when it is restored."""
_FOREVER_S = 300.0


@pytest.mark.parametrize(
    "engine",
    ["sqlite", pytest.param("postgres", marks=full_only), pytest.param("redis", marks=full_only)],
    indirect=True,
)
def test_leases_from_before_a_restore_settle_nothing(
    engine: Engine, tmp_path: Path, is_full: bool, report: Report
) -> None:
    since, late = (500, 200) if is_full else (10, 5)
    backup = backup_of(engine, tmp_path)
    arena = Arena(tmp_path, engine, is_audited=False)
    with arena.fleet() as fleet:
        with closing(arena):
            forgotten = fleet.start(SETTINGS)
            held = arena.enqueue([arena.call("once", _FOREVER_S, 0.0) for _ in range(HELD)])
            poll(lambda: arena.started() == HELD, 30, "jobs run")
            arena.app.queues.pause("default")
            done_since = arena.enqueue([arena.call("work", n) for n in range(since)])
            taken_s = CLOCK.monotonic()
            backup.take()
            arena.app.queues.resume("default")
            gone = arena.enqueue([arena.call("work", n) for n in range(late)])
            poll(lambda: arena.states([*done_since, *gone]) == {"completed": since + late}, 60, "the others run")
            gone += arena.enqueue([arena.call("once", _FOREVER_S, 0.0) for _ in range(HELD)])
            poll(lambda: {*gone} <= {one.job for one in arena.effects()}, 30, "jobs run")
            tokens = {one.job: one.token for one in arena.effects()}
            fleet.pause(forgotten)
        backup.restore()
        arena = Arena(tmp_path, engine, is_audited=False)
        with closing(arena):
            arena.app.queues.resume("default")
            accepted = _late(arena, tokens, gone)
            fleet.start(SETTINGS)
            arena.quiesce(60)
            accepted += _late(arena, tokens, held)
            assert accepted == [False] * (len(gone) + HELD)
            fleet.resume(forgotten)
            assert fleet.wait(forgotten, 30) != 0, "a worker that was not stopped works on with a store that is gone"
            fleet.stop()
            evidence = arena.evidence(fleet)

    lost = frozenset(evidence.acked) - evidence.jobs.keys()
    assert lost == set(gone), "what was enqueued since the backup is all that is missing"
    runs = Counter(one.job for one in evidence.effects if one.what == "start")
    assert {runs[one] for one in held} == {2}, "what was held runs once more"
    again = sum(runs[one] == 2 for one in done_since)  # a pause takes a moment to be heard of: some had run before it
    assert again > 0, "nothing was done since the backup: this run shows nothing"
    assert {runs[one] for one in done_since} <= {1, 2}
    assert {runs[one] for one in gone} == {1}
    now_s = CLOCK.monotonic()
    evidence = replace(evidence, removed=lost, faults=[Fault("restore", forgotten, taken_s, now_s)])
    assert checker.check(evidence) == []
    assert completed(evidence) == HELD + since
    report(
        "a backup is restored, and a worker that held leases then and later was not stopped",
        injected=1,
        # How long ago the backup was taken says nothing of how soon it runs again.
        figures=replace(figures_of(evidence, forfeited=lost), recoveries=()),
        note=f"late settlements accepted {sum(accepted)} of {len(accepted)}, jobs that ran once more {HELD + again}, "
        f"gone because they were enqueued since {len(lost)}",
    )


def _late(arena: Arena, tokens: dict[str, str], jobs: Sequence[str]) -> list[bool]:
    """What the store says to settlements under leases from before."""
    late = [
        Settlement(id=one, token=bytes.fromhex(tokens[one]), change=Change.COMPLETE, result=b'"late"') for one in jobs
    ]
    return list(arena.app.bridge.run(arena.app.store.exchange(Exchange(settlements=late))).settled)
