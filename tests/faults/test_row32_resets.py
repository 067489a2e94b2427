"""Row 32: a network that cuts connections at random, for everybody. Nothing is lost, and nothing is done twice."""

from __future__ import annotations

from contextlib import closing

from tests.faults import checker
from tests.faults.arena import Arena, completed
from tests.faults.conftest import on, waits
from tests.faults.engines import PostgresEngine, RedisEngine
from tests.faults.load import Dice, mixed_calls
from tests.faults.report import Report, figures_of
from tests.faults.shop import open_shop
from tests.faults.storm import weather

pytestmark = waits
PROBABILITY = 0.02


@on("postgres", "redis")
def test_random_resets_cost_nothing(
    arena: Arena, engine: PostgresEngine | RedisEngine, is_full: bool, report: Report
) -> None:
    dice = Dice()
    jobs, strikes = (10_000, 120) if is_full else (400, 6)
    proxy = engine.proxy(dice.draw)
    calls = mixed_calls(arena.app, jobs, dice, seconds=0.02)

    def strike(_: object) -> None:
        proxy.reset_probability = PROBABILITY  # from the first on: the workers have come this far without

    with closing(open_shop(engine.url_by(proxy), arena.folder / "effects")) as far:
        after = weather(arena, calls, strike, strikes=strikes, every_s=0.5, url=engine.url_by(proxy), producer=far)

    assert checker.check(after.evidence) == []
    assert completed(after.evidence) == len(after.evidence.acked)
    assert proxy.traffic.resets > 5, "too few resets: this run shows nothing"
    report(
        "connections cut at random, everybody's",
        injected=proxy.traffic.resets,
        figures=figures_of(after.evidence),
        note=f"{PROBABILITY:.0%} of all chunks, {after.told}",
        seed=dice.seed,
    )
