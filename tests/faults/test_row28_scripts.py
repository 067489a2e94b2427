"""Row 28: Redis forgets its scripts under load. They are sent again, and nobody hears of it."""

from __future__ import annotations

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import on
from tests.faults.engines import RedisEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.storm import weather


@on("redis")
def test_forgotten_scripts_are_sent_again_and_nobody_hears_of_it(arena: Arena, is_full: bool, report: Report) -> None:
    engine, dice = arena.engine, Dice()
    assert isinstance(engine, RedisEngine)
    jobs, strikes = (10_000, 1_000) if is_full else (300, 40)

    def strike(_: object) -> None:
        with engine.server.client() as client:
            client.script_flush()

    calls = mixed_calls(arena.app, jobs, dice, seconds=0.01)
    after = weather(arena, calls, strike, strikes=strikes, every_s=0.03)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    assert after.refusals == []
    assert "NOSCRIPT" not in after.log
    report(
        "the server forgets its scripts (SCRIPT FLUSH)",
        injected=strikes,
        figures=figures_of(after.evidence),
        note=after.told,
        seed=dice.seed,
    )
