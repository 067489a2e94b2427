"""Row 23: a snapshot stays open while jobs come and go. Claims step over ever more dead rows, and health says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec import Struct

from holdfast import App
from holdfast.clock import new_id, new_token
from holdfast.ports import Claim, Exchange, Settlement, Store, WorkerRecord
from holdfast.stores.postgres.stats import DEAD_ROWS, HELD_S
from holdfast.types import Change, NewJob
from tests.faults.checker import quantile
from tests.faults.conftest import full_only
from tests.faults.engines import PostgresEngine
from tests.faults.report import Report
from tests.faults.workers import CLOCK
from tests.servers import PostgresServer

pytestmark = full_only
STORE = "postgres"
AT_ONCE = 100
SLICE = 20_000
JOBS = 240_000
LIMIT_S = 240.0
HEALED_WITHIN_S = 60.0
_DEAD = """
SELECT pg_stat_get_dead_tuples('holdfast_ready'::regclass) + pg_stat_get_dead_tuples('holdfast_delayed'::regclass)
"""


class Slice(Struct, frozen=True):
    """So many jobs that came and went: how long claims took, in milliseconds, and what was dead after them."""

    p10: float
    """What they take when nothing else is in their way, on a busy machine too."""
    p50: float
    p99: float
    dead: int

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms at {self.dead:,} dead rows"


@pytest.fixture
def engine() -> Iterator[PostgresEngine]:
    """A server whose autovacuum comes often, so that the test need not wait for it."""
    with PostgresServer({"autovacuum_naptime": "5s"}) as server, closing(PostgresEngine(server)) as engine:
        yield engine


async def test_claims_bear_dead_rows_until_health_tells_of_them_and_recover(
    engine: PostgresEngine, report: Report
) -> None:
    app = App(engine.url)
    base = await _churned(app.store, engine, SLICE)
    slices: list[Slice] = []
    with closing(engine.connection()) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM holdfast_jobs")
        began_s = CLOCK.monotonic()
        warned: Slice | None = None
        while len(slices) * SLICE < JOBS or CLOCK.monotonic() - began_s < 1.5 * HELD_S:
            slices.append(await _churned(app.store, engine, SLICE))
            assert CLOCK.monotonic() - began_s < LIMIT_S, f"not {JOBS:,} jobs within {LIMIT_S:g} s: {slices}"
            check = (await app.ahealth()).checks["upkeep"]
            if check.status == "failed" and warned is None:
                warned = slices[-1]
                assert f"session {reader.info.backend_pid}" in (check.error or "")
    before = next(one for one in slices if one.dead > DEAD_ROWS)
    healed_s = await _healed_s(app, engine)
    after = await _churned(app.store, engine, SLICE)
    await app.aclose()

    assert before.p10 < 5 * base.p10, f"{base}; {slices}"
    assert warned is not None, "nobody was told"
    assert after.p10 < 2 * base.p10, f"{base}; {after}"
    report(
        "a REPEATABLE READ snapshot stays open while jobs come and go",
        injected=1,
        note=(
            f"claims of {AT_ONCE}: {base} before it; {before}, the limit of health; {slices[-1]} in the end; told at "
            f"{warned.dead:,}; vacuum was done {healed_s:.0f} s after its end: {after}"
        ),
    )


async def _churned(store: Store, engine: PostgresEngine, count: int) -> Slice:
    """Let so many jobs come and go, a few at a time: nothing is left of them in the way of a claim but dead rows."""
    took = []
    for _ in range(0, count, AT_ONCE):
        await store.heartbeat(WorkerRecord(id="w", lease_s=60.0))
        await store.enqueue([NewJob(id=new_id(), task="work", payload=b"{}") for _ in range(AT_ONCE)])
        began_s = CLOCK.monotonic()
        got = await store.exchange(Exchange(claim=Claim(worker="w", token=new_token(), limit=AT_ONCE)))
        took.append(1000 * (CLOCK.monotonic() - began_s))
        assert len(got.deliveries) == AT_ONCE
        ends = [Settlement(id=one.id, token=one.token, change=Change.COMPLETE) for one in got.deliveries]
        assert all((await store.exchange(Exchange(settlements=ends))).settled)
    return Slice(quantile(took, 0.1), quantile(took, 0.5), quantile(took, 0.99), _dead(engine))


def _dead(engine: PostgresEngine) -> int:
    ((dead,),) = engine.sql(_DEAD)
    return int(dead)


async def _healed_s(app: App, engine: PostgresEngine) -> float:
    """Seconds until vacuum has done its work by itself, and health says so."""
    began_s = CLOCK.monotonic()
    while _dead(engine) > DEAD_ROWS / 2 or (await app.ahealth()).checks["upkeep"].status != "ok":
        assert CLOCK.monotonic() - began_s < HEALED_WITHIN_S, "autovacuum does not come"
        await CLOCK.asleep(0.2)
    return CLOCK.monotonic() - began_s
