"""Row 19: PostgreSQL ends sessions at random. Workers and producers come back; nothing is lost, nothing repeated."""

from __future__ import annotations

from holdfast.types import JobState
from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import on
from tests.faults.engines import PostgresEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.storm import weather

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'holdfast'"
"""Those of workers and producers, not ours."""


@on("postgres")
def test_sessions_that_are_ended_at_random_cost_nothing(arena: Arena, is_full: bool, report: Report) -> None:
    engine, dice = arena.engine, Dice()
    assert isinstance(engine, PostgresEngine)
    jobs, strikes = (10_000, 200) if is_full else (300, 12)
    ended = 0
    seen: list[set[int]] = []

    def strike(_: object) -> None:
        nonlocal ended
        pids = [pid for (pid,) in engine.sql(SESSIONS)]
        seen.append(set(pids))
        if pids:
            ((is_there,),) = engine.sql(f"SELECT pg_terminate_backend({pids[dice.below(len(pids))]})")
            ended += is_there

    calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)
    after = weather(arena, calls, strike, strikes=strikes, every_s=0.3 if is_full else 0.15)

    assert checker.check(after.evidence) == []
    states = {job.state for job in after.evidence.jobs.values()}
    assert completed(after.evidence) == len(after.evidence.acked), states - {JobState.COMPLETED}
    anew = set[int]().union(*seen) - seen[0]
    assert anew or after.refusals, "nobody has noticed: this run shows nothing"
    report(
        "sessions ended (pg_terminate_backend) at random, those of producers too",
        injected=ended,
        figures=figures_of(after.evidence),
        note=f"sessions opened anew {len(anew)}, {after.told}",
        seed=dice.seed,
    )
